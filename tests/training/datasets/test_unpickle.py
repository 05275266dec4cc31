"""A pickle gives data or an error, and never runs code."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from smdl.training.datasets.problems import DataError
from smdl.training.datasets.unpickle import unpickle
from tests.training.datasets import made

MARK = "executed"


@pytest.mark.parametrize("style", ["python2", "python3"])
def test_arrays_lists_and_text_come_back(tmp_path, style):
    content = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 3], "name": "batch é"}
    made.pickled(tmp_path / "batch", content, style)
    found = unpickle(tmp_path / "batch")
    assert found["data"].dtype == np.uint8
    assert np.array_equal(found["data"], content["data"])
    assert found["labels"] == [1, 2, 3]
    assert found["name"] == "batch é"


def test_keys_become_text(tmp_path):
    made.pickled(tmp_path / "batch", {b"fine_labels": [1]}, "python3")
    assert unpickle(tmp_path / "batch") == {"fine_labels": [1]}


class Calls:
    """Pickled as a call of any function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def touch(name):
    Path(name).touch()


def attacks():
    import os

    line = f"__import__('pathlib').Path({MARK!r}).touch()"
    yield "posix.system", pickle.dumps(Calls(os.system, f"touch {MARK}"))
    yield "builtins.eval", pickle.dumps(Calls(eval, line))
    yield "builtins.exec", pickle.dumps({"data": [Calls(exec, line)]})
    yield "touch", pickle.dumps(Calls(touch, MARK))
    # Old opcodes: GLOBAL and INST name a module and a function in plain text.
    yield "os.system", f"cos\nsystem\n(S'touch {MARK}'\ntR.".encode()
    yield "os.system", f"(S'touch {MARK}'\nios\nsystem\n.".encode()
    # Protocol 4 splits dotted names: attributes of what is admitted must not be reached.
    for name in ("ndarray.__class__", "dtype.__init__.__globals__", "ctypeslib.ctypes.CDLL"):
        yield f"numpy.{name}", b"\x80\x04\x8c\x05numpy" + b"\x8c" + bytes([len(name)]) + name.encode() + b"\x93."
    # The complete attack: getattr(getattr(ndarray, ...)) through builtins.
    yield "builtins.getattr", pickle.dumps(Calls(getattr, np.ndarray, "__class__"))
    yield "copyreg._reconstructor", b"ccopyreg\n_reconstructor\n."


@pytest.mark.parametrize(("name", "attack"), [pytest.param(*attack, id=attack[0]) for attack in attacks()])
def test_an_attack_is_refused_by_name_and_runs_nothing(tmp_path, monkeypatch, name, attack):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "batch").write_bytes(attack)
    with pytest.raises(DataError, match="not run") as caught:
        unpickle(tmp_path / "batch")
    assert name in str(caught.value)
    assert "batch" in str(caught.value)
    assert not (tmp_path / MARK).exists()


def test_the_attacks_would_work_on_pickle_itself(tmp_path, monkeypatch):
    """Otherwise the test above could not fail."""
    monkeypatch.chdir(tmp_path)
    worked = 0
    for _, attack in attacks():
        (tmp_path / MARK).unlink(missing_ok=True)
        try:
            pickle.loads(attack)
        except Exception:
            continue
        worked += (tmp_path / MARK).exists()
    assert worked >= 5


def test_a_refused_module_is_not_imported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "malicious.py").write_text(f"open({MARK!r}, 'w').close()")
    (tmp_path / "batch").write_bytes(b"cmalicious\nname\n.")
    with pytest.raises(DataError, match=r"malicious\.name"):
        unpickle(tmp_path / "batch")
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "EOFError"),
        (b"nonsense", "complete pickle"),
        (pickle.dumps([1, 2]), "dictionary was expected, found list"),
        (pickle.dumps({"data": np.zeros(1000)}, 2)[:-50], "complete pickle"),
        (b"\x80\x02Pid\n.", "complete pickle"),
        (b"cnumpy\nndarray\n(I-1\ntR.", "complete pickle"),
    ],
    ids=["empty", "nonsense", "list", "truncated", "persistent id", "bad array"],
)
def test_a_broken_pickle_is_named(tmp_path, content, problem):
    (tmp_path / "data_batch_3").write_bytes(content)
    with pytest.raises(DataError, match=problem) as caught:
        unpickle(tmp_path / "data_batch_3")
    assert "data_batch_3 is damaged" in str(caught.value)
