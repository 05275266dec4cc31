"""Checkpoints hold tensors and plain values. A damaged one is refused, and nothing in one is ever executed."""

import hashlib
import io
import pickle

import pytest
import torch

from smdl.common.storage import write_sealed
from smdl.training import checkpoint
from smdl.training.checkpoint import CheckpointError
from tests.faults import MUTATIONS, mutated

STATE = {"step": 3, "model": {"weight": torch.arange(999.0)}, "window": [{"indices": torch.tensor([1])}], "text": "é"}


@pytest.fixture
def path(tmp_path):
    checkpoint.save(tmp_path / "checkpoint.pt", STATE)
    return tmp_path / "checkpoint.pt"


def test_what_was_saved_is_loaded(path):
    state = checkpoint.load(path)
    assert str(state) == str(STATE)
    assert torch.equal(state["model"]["weight"], STATE["model"]["weight"])


def test_no_mutation_is_loaded(path):
    content = path.read_bytes()
    for number in range(MUTATIONS):
        path.write_bytes(mutated(content, number))
        with pytest.raises(CheckpointError, match=r"checkpoint\.pt is damaged") as refused:
            checkpoint.load(path)
        assert "\n" not in str(refused.value)
    path.write_bytes(content)
    checkpoint.load(path)


def test_every_flipped_bit_of_the_first_line_is_refused(path):
    content = path.read_bytes()
    for bit in range(8 * (content.index(b"\n") + 1)):
        path.write_bytes(bytes(byte ^ (1 << bit % 8 if at == bit // 8 else 0) for at, byte in enumerate(content)))
        with pytest.raises(CheckpointError, match="is damaged"):
            checkpoint.load(path)


class Bomb:
    """Writes a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("form", ["torch", "pickle 2", "pickle 5"])
@pytest.mark.parametrize("sealed", [True, False])
def test_a_foreign_pickle_is_refused_and_not_executed(tmp_path, form, sealed):
    path, trace, file = tmp_path / "checkpoint.pt", tmp_path / "executed", io.BytesIO()
    if form == "torch":
        torch.save({"step": Bomb(trace)}, file)
    else:
        file.write(pickle.dumps(Bomb(trace), protocol=int(form[-1])))
    if sealed:  # a checksum proves that nothing changed, and not who wrote it
        write_sealed(path, file.getvalue(), checkpoint._KIND)
    else:
        path.write_bytes(file.getvalue())
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt") as refused:
        checkpoint.load(path)
    assert "weights_only" not in str(refused.value)
    assert not trace.exists()


def test_a_file_of_another_kind_or_version_is_named(path):
    older = f"smdl checkpoint 3 sha256 {hashlib.sha256(b'old').hexdigest()}\n".encode() + b"old"
    for content in (b"", b"not a checkpoint at all", older, older.replace(b"old", b"new")):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=r"checkpoint\.pt is damaged, or is not a file of the kind 'smdl ch"):
            checkpoint.load(path)
    torch.save({"weight": torch.ones(2)}, path)
    with pytest.raises(CheckpointError, match="is damaged, or is not a file of the kind"):
        checkpoint.load(path)


def test_what_cannot_be_read_is_named(tmp_path, monkeypatch, path):
    with pytest.raises(CheckpointError, match=r"nothing\.pt cannot be read: No such file"):
        checkpoint.load(tmp_path / "nothing.pt")
    with pytest.raises(CheckpointError, match="cannot be read: Is a directory"):
        checkpoint.load(tmp_path)

    def denied(_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.read_bytes", denied)
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt cannot be read: Permission denied"):
        checkpoint.load(path)
