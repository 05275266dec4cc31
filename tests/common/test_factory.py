"""A user's own models, data sets and strategies by package.module:name."""

import pytest
from torch import nn

from smdl.common.factory import from_factory, load_object

MODULE = """
from torch import nn
def net(shape, classes): return nn.Linear(shape[0], classes)
def plain(): return nn.Identity()
def anything(**given): return nn.Linear(given["shape"][0], 2)
number = 3
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    (tmp_path / "my_nets.py").write_text(MODULE)
    (tmp_path / "needy.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")


@pytest.mark.parametrize("name", ["net", "plain", "anything"])
@pytest.mark.usefixtures("mine")
def test_a_factory_gets_the_arguments_it_takes(name):
    assert isinstance(from_factory(f"my_nets:{name}", "model.name", nn.Module, shape=(5,), classes=3), nn.Module)


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("my_nets:nett", "did you mean 'net'"),
        ("my_netz:net", "no module 'my_netz'"),
        ("my_nets:number", "must be callable, got int"),
        ("my_nets:", "of the form package.module:name"),
        ("json:loads", None),
        ("builtins:dict", "must make a Module, got dict"),
    ],
)
def test_what_cannot_work_is_named(path, said):
    with pytest.raises(ValueError if said else TypeError, match=said):
        from_factory(path, "model.name", nn.Module, shape=(5,), classes=3)


@pytest.mark.usefixtures("mine")
def test_a_module_that_misses_another_says_which():
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        load_object("needy:net", "model.name")
