"""What a function reads from outside tells it from another, wherever it reads it."""

import functools
import importlib
import sys
from functools import partial

import pytest

from smdl.judging.code_reads import is_library
from smdl.judging.identity import UnknownIdentityError, identity

PACKAGE = {
    "pack/__init__.py": "",
    "pack/config.py": "RATE = {rate}\nOTHER = 1\n",
    "pack/deep/__init__.py": "",
    "pack/deep/inner.py": "RATE = {rate}\n\ndef rate():\n    return {rate}\n",
    "pack/use.py": """
import functools
import pack.config
import pack.deep.inner
from pack import config

def by_package():
    return pack.config.RATE

def by_two_packages():
    return pack.deep.inner.RATE

def by_call():
    return pack.deep.inner.rate()

def passed_on():
    return read(config)

def read(module):
    return module.RATE

def by_text():
    return getattr(config, "RATE")

def by_alias():
    short = config
    return short.RATE

def in_a_nested_function():
    return [config.RATE for _ in range(3)]

def imported_inside():
    import pack.config
    return pack.config.RATE

def name_imported_inside():
    from pack.config import RATE
    return RATE

def module_imported_inside():
    from . import config as settings
    return settings.RATE

@functools.cache
def cached():
    return {rate}

def by_cached():
    return cached()

class Singleton:
    def __reduce__(self):
        return "ONLY"
    def rate(self):
        return {rate}

ONLY = Singleton()

def by_object_with_a_name():
    return ONLY.rate()

def unrelated():
    return config.OTHER
""",
}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write a package of the user whose rate is a number, and import it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(rate, name="use"):
        for path, code in PACKAGE.items():
            place = tmp_path / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(code.replace("{rate}", str(rate)))
        for module in [each for each in sys.modules if each.partition(".")[0] == "pack"]:
            monkeypatch.delitem(sys.modules, module)
        return __import__(f"pack.{name}", fromlist=["use"])

    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two versions within a second
    yield make
    for module in [each for each in sys.modules if each.partition(".")[0] == "pack"]:
        del sys.modules[module]


READERS = (
    "by_package",
    "by_two_packages",
    "by_call",
    "passed_on",
    "by_text",
    "by_alias",
    "in_a_nested_function",
    "imported_inside",
    "name_imported_inside",
    "module_imported_inside",
    "cached",
    "by_cached",
    "by_object_with_a_name",
)


def test_a_value_of_a_module_of_the_user_counts_however_it_is_read(package):
    first = {name: identity(getattr(package(0.1), name)) for name in READERS}
    again = {name: identity(getattr(package(0.1), name)) for name in READERS}
    other = {name: identity(getattr(package(3.0), name)) for name in READERS}
    assert first == again
    assert [name for name in READERS if first[name] == other[name]] == []


def test_values_that_a_function_does_not_read_do_not_count(package):
    assert identity(package(0.1).unrelated) == identity(package(3.0).unrelated)


def test_a_module_that_is_an_argument_counts_with_all_that_it_holds(package):
    def train(config):
        return config.RATE

    first = identity(partial(train, config=package(0.1, "config")))
    assert identity(partial(train, config=package(0.1, "config"))) == first
    assert identity(partial(train, config=package(3.0, "config"))) != first


def test_a_module_with_something_that_cannot_be_compared_is_not_compared(package, tmp_path):
    module = package(0.1, "config")
    with (tmp_path / "log").open("w") as module.LOG, pytest.raises(UnknownIdentityError, match="_io"):
        identity(partial(print, module))


@pytest.mark.parametrize("error", ["ValueError('no GPU')", "RuntimeError('no GPU')", "SystemExit('no GPU')"])
def test_a_module_whose_import_fails_is_not_compared(error, tmp_path, monkeypatch):
    def train():
        import broken_when_imported  # pyright: ignore[reportMissingImports]

        return broken_when_imported

    (tmp_path / "broken_when_imported.py").write_text(f"raise {error}")
    monkeypatch.syspath_prepend(str(tmp_path))
    said = f"the import of broken_when_imported fails with {error.partition('(')[0]}: no GPU"
    with pytest.raises(UnknownIdentityError, match=f"^{said}$"):
        identity(train)


def test_a_module_that_cannot_be_found_does_not_count(monkeypatch):
    def train():
        from ...nowhere import rate  # noqa: TID252  # pyright: ignore[reportMissingImports]

        return rate

    monkeypatch.setitem(globals(), "__package__", "tests")
    assert identity(train) == identity(train)


def made(rate):
    def train():
        return rate

    return train


def test_what_wrappers_of_libraries_hold_counts():
    for wrap in (functools.cache, functools.lru_cache(maxsize=3)):
        assert identity(wrap(made(1))) == identity(wrap(made(1)))
        assert identity(wrap(made(1))) != identity(wrap(made(2)))


def test_a_function_without_a_module_is_one_of_the_user():
    def compiled(rate):
        space = {}
        exec(f"def train():\n    return {rate}", space)
        return space["train"]

    assert compiled(1).__module__ in (None, "builtins")
    assert identity(compiled(1)) == identity(compiled(1))
    assert identity(compiled(1)) != identity(compiled(2))


def test_a_function_that_claims_the_name_of_a_library_is_one_of_the_user():
    def train(rate):
        def mean():
            return rate

        return functools.wraps(sorted)(mean)

    assert identity(train(1)) != identity(train(2))


def test_functions_of_libraries_count_by_name():
    import numpy as np
    from torch import nn

    for thing in (np.mean, np.add, nn.functional.relu, nn.Linear.forward, functools.wraps, np, nn):
        assert identity(thing) == identity(thing)
    assert identity(np.mean) != identity(np.median)


def test_packages_of_the_user_or_of_another_interpreter_are_libraries(tmp_path, monkeypatch):
    for folder, expected in (("site-packages", True), ("work", False)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"installed_in_{folder[:4]}.py").write_text("LR = 0.1")
        monkeypatch.syspath_prepend(tmp_path / folder)
        module = importlib.import_module(f"installed_in_{folder[:4]}")
        assert is_library(module.__name__) is expected
