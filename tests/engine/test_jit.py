"""A cache of another version, a damaged cache, or no cache at all never breaks a compiled loop."""

import importlib.util
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numba
import pytest

import smdl
from smdl.engine import jit
from tests.faults import MUTATIONS, failing_disk, full, mutated

SOURCE = Path(smdl.__file__).parent / "engine"
MODULE = """
from smdl.engine.jit import compiled

@compiled
def double(x):
    return 2 * x

@compiled
def triple(x):
    return 3 * x
"""
#: An index by the same version of numba, about a class that no longer exists.
UNREADABLE = pickle.dumps(numba.__version__) + b"csmdl.greedy.gains\nRenamed\n."


@pytest.fixture
def load_module(tmp_path, monkeypatch):
    """A function that imports a module with two compiled loops, each time as a new process would."""
    monkeypatch.setattr("numba.core.config.CACHE_DIR", "")
    jit._warn_once.cache_clear()
    path = tmp_path / "loops.py"
    path.write_text(MODULE)

    def load() -> Any:
        spec = importlib.util.spec_from_file_location("loops", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


def hits(function: Any) -> int:
    return sum(function.stats.cache_hits.values())


def test_a_compiled_loop_is_loaded_from_the_cache(load_module):
    assert load_module().double(4) == 8
    again = load_module()
    assert again.double(4) == 8
    assert hits(again.double) == 1


def test_a_loop_compiled_from_other_sources_is_not_loaded(load_module, monkeypatch):
    load_module().double(4)
    monkeypatch.setattr(jit, "_version", lambda: "other")
    again = load_module()
    assert again.double(4) == 8
    assert hits(again.double) == 0


@pytest.mark.parametrize("content", [UNREADABLE, b"", b"no pickle"], ids=["renamed class", "empty", "nonsense"])
def test_an_unreadable_index_is_replaced(load_module, tmp_path, content):
    load_module().double(4)
    (index,) = tmp_path.rglob("loops.double-*.nbi")
    index.write_bytes(content)
    assert load_module().double(4) == 8
    again = load_module()
    assert again.double(4) == 8
    assert hits(again.double) == 1


def test_damaged_code_is_compiled_again(load_module, tmp_path):
    load_module().double(4)
    (code,) = tmp_path.rglob("loops.double-*.nbc")
    code.write_bytes(code.read_bytes()[:-50])
    assert load_module().double(4) == 8


def test_no_mutation_of_compiled_code_is_loaded(tmp_path):
    file, key = jit._CacheFile(str(tmp_path), "loop", "stamp"), ("int64", "x86")
    for data in (b"other", bytes(range(256)) * 30):
        file.save(key, ("compiled", data))
    (path,) = tmp_path.glob("*.nbc")
    content = path.read_bytes()
    assert file.load(key) == ("compiled", data)
    for number in range(MUTATIONS):
        path.write_bytes(mutated(content, number))
        found = None
        with suppress(Exception):  # `_Cache` compiles again after any error
            found = file.load(key)
        assert found in (None, ("compiled", data)), "only bytes that are not read may differ"
    path.write_bytes(content)
    file.save(("float64", "x86"), "code of another type")
    (other,) = set(tmp_path.glob("*.nbc")) - {path}
    path.write_bytes(other.read_bytes())
    assert file.load(key) is None


def test_without_a_folder_to_write_to_there_is_one_warning(load_module, tmp_path, monkeypatch):
    (tmp_path / "__pycache__").write_text("a file where numba wants a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "__pycache__"))
    with pytest.warns(UserWarning, match=r"cannot be cached.*set NUMBA_CACHE_DIR") as caught:
        module = load_module()
    assert (module.double(4), module.triple(4)) == (8, 12)
    assert len(caught) == 1


def test_a_folder_that_can_no_longer_be_written_to_is_one_warning(load_module, tmp_path):
    module = load_module()
    (tmp_path / "__pycache__").rmdir()
    (tmp_path / "__pycache__").write_text("a file where numba wants a folder")
    with pytest.warns(UserWarning, match="cannot be cached") as caught:
        assert (module.double(4), module.triple(4)) == (8, 12)
    assert len(caught) == 1


@pytest.mark.parametrize("at", range(4))
def test_a_disk_that_becomes_full_is_one_warning(load_module, tmp_path, at):
    def stays_full(path):
        disk.at = len(disk.done)
        full(path)

    module = load_module()
    with pytest.warns(UserWarning, match="cannot be cached") as caught, failing_disk(tmp_path, at, stays_full) as disk:
        assert (module.double(4), module.triple(4)) == (8, 12)
    assert len(caught) == 1
    again = load_module()
    assert (again.double(4), again.triple(4)) == (8, 12)


def test_every_module_with_compiled_loops_is_known():
    marks = ("from smdl.engine.jit import", ": Loops(_")  # the parts that terms bring are compiled into their callers
    users = [path for path in SOURCE.parent.rglob("*.py") if any(mark in path.read_text() for mark in marks)]
    names = [path.relative_to(SOURCE).as_posix() for path in users]
    assert sorted([*names, "jit.py"]) == list(jit.KERNEL_MODULES)


@pytest.mark.slow
def test_selection_survives_an_unreadable_cache(tmp_path):
    objective, pool = "smdl.Objective(mean_closeness=1.0)", "smdl.Pool([[0.0], [1.0], [3.0]])"
    code = f"import smdl; print(smdl.select({pool}, {objective}, 2, seed=1))"

    def select() -> str:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
        return subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        ).stdout

    first, indices = select(), list(tmp_path.rglob("*.nbi"))
    assert indices
    for index in indices:
        index.write_bytes(UNREADABLE)
    assert select() == first
