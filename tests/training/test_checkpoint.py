"""Checkpoints hold tensors and plain values, and nothing in one is ever executed."""

import pickle

import pytest
import torch

from smdl.training import checkpoint


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(
        path, {"step": 3, "model": {"weight": torch.arange(4.0)}, "window": [{"indices": torch.tensor([1])}]}
    )
    state = checkpoint.load(path)
    assert state["step"] == 3
    assert state["model"]["weight"].tolist() == [0, 1, 2, 3]


class Bomb:
    """Writes a file when unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


@pytest.mark.parametrize("form", ["torch", "pickle 2", "pickle 5"])
def test_a_foreign_pickle_is_refused_and_not_executed(tmp_path, form):
    path, trace = tmp_path / "checkpoint.pt", tmp_path / "executed"
    if form == "torch":
        torch.save({"format": "smdl checkpoint 2", "step": Bomb(trace)}, path)
    else:
        path.write_bytes(pickle.dumps(Bomb(trace), protocol=int(form[-1])))
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.load(path)
    assert not trace.exists()


@pytest.mark.parametrize("damage", [lambda b: b[: len(b) // 2], lambda _: b"", lambda _: b"not a checkpoint at all"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = tmp_path / "checkpoint.pt"
    checkpoint.save(path, {"step": 3})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(checkpoint.CheckpointError, match=r"checkpoint\.pt"):
        checkpoint.load(path)


def test_somebody_elses_tensors_are_not_a_checkpoint(tmp_path):
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.ones(2)}, path)
    with pytest.raises(checkpoint.CheckpointError, match="not a checkpoint of this version of smdl"):
        checkpoint.load(path)
    with pytest.raises(checkpoint.CheckpointError, match="no checkpoint at"):
        checkpoint.load(tmp_path / "nothing.pt")


def test_a_checkpoint_of_an_earlier_version_is_refused_in_words(tmp_path):
    torch.save({"format": "smdl checkpoint 1", "step": 3}, tmp_path / "checkpoint.pt")
    with pytest.raises(checkpoint.CheckpointError, match="of this version of smdl: delete its folder"):
        checkpoint.load(tmp_path / "checkpoint.pt")
