"""Rules for the source: layers of imports, an engine without model or file code, and a light `import smdl`."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import smdl

SOURCE = Path(smdl.__file__).parent

#: Modules and packages by layer. A module may import its own layer and the layers above it in this table.
#: One more rule holds for report: it imports neither torch nor numba, so of experiments and training it may use only
#: the modules that do not import them (tests/report checks that in a process of its own).
LAYERS = {
    "common": ("common",),
    "engine": ("engine",),
    "scoring": ("scoring",),
    "loading": ("loading",),
    "files": ("files",),
    "training": ("training",),
    "integrations": ("integrations",),
    "experiments": ("experiments",),
    "labelling": ("labelling",),
    "paper": ("paper",),
    "report": ("report",),
    "judging": ("judging",),
    "cli": ("__main__", "cli"),
}
#: Private names of other libraries that have no public counterpart, by the module that reads them.
FOREIGN = {
    "cli.parser": {"_HelpAction", "_option_string_actions"},
    "scoring.reading": {"_iterator", "_index_queues", "_workers_done_event"},  # torch's workers
    "training.evaluation": {"_BatchNorm"},
}
#: Public, in spite of the underscore.
PUBLIC = {"_asdict", "_exit", "_replace"}
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
    if path != SOURCE / "__init__.py"
}


def layer_of(module: str) -> int:
    """Return the position of the layer of a module."""
    top = module.partition(".")[0]
    (layer,) = [place for place, names in enumerate(LAYERS.values()) if top in names]
    return layer


def imports_in(code: str) -> set[str]:
    """Return the dotted names that code imports at run time: also in functions, but not under TYPE_CHECKING."""
    tree = ast.parse(code)
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def own_imports(code: str) -> set[str]:
    """Return the modules of smdl that code imports."""
    names = {name.removeprefix("smdl.") for name in imports_in(code) if name.startswith("smdl.")}
    return {name if name in MODULES else name.rpartition(".")[0] for name in names} - {""}


def calls_in(code: str) -> set[str]:
    """Return the dotted names of all functions that code calls."""
    return {ast.unparse(node.func) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in PUBLIC


def private_reads(code: str) -> set[str]:
    """Return the private names that code imports, or reads from an object other than `self`, and does not define."""
    nodes = list(ast.walk(ast.parse(code)))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    defined |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    defined |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    read = {alias.name for node in nodes if isinstance(node, ast.ImportFrom) for alias in node.names}
    read |= {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls")
    }
    return {name for name in read - defined if is_private(name)}


def twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def test_the_root_holds_the_public_names_and_the_command_alone():
    assert {path.name for path in SOURCE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_no_name_of_a_module_or_package_occurs_twice():
    assert not twice(module.rpartition(".")[2] for module in MODULES)


def test_no_class_name_occurs_twice():
    trees = [ast.parse(path.read_text()) for path in MODULES.values()]
    assert not twice(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))


def test_no_package_is_called_like_a_public_name():
    assert not {module.rpartition(".")[2] for module in MODULES if module.partition(".")[0] == module} & set(
        smdl.__all__
    )


def test_no_module_reads_the_private_names_of_another():
    found = {module: private_reads(path.read_text()) for module, path in MODULES.items()}
    assert {module: names for module, names in found.items() if names} == FOREIGN


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from smdl.engine.plan import _limit", {"_limit"}),
        ("def f(loader):\n    return loader._scorer.form", {"_scorer"}),
        ("self._scorer.run()", set()),
        ("class Twin:\n    def __eq__(self, other):\n        self._x = 1\n        return other._x", set()),
        ("part._replace(size=1)", set()),
    ],
)
def test_private_names_are_noticed_where_another_module_reads_them(code, found):
    assert private_reads(code) == found


def test_every_module_belongs_to_one_layer():
    tops = {module.partition(".")[0] for module in MODULES}
    named = [name for names in LAYERS.values() for name in names]
    assert tops <= set(named)
    assert len(named) == len(set(named))


def test_imports_point_to_the_same_or_an_earlier_layer():
    for module, path in MODULES.items():
        later = {name for name in own_imports(path.read_text()) if layer_of(name) > layer_of(module)}
        assert not later, f"{module} imports {later}, which are in later layers"


def test_no_module_imports_itself_through_others():
    TopologicalSorter({module: own_imports(path.read_text()) for module, path in MODULES.items()}).prepare()


def test_imports_inside_functions_count():
    code = "def function():\n    from smdl.training import loop\n    import smdl.loading.loader"
    assert own_imports(code) == {"training.loop", "loading.loader"}
    assert own_imports("if TYPE_CHECKING:\n    from smdl.training import loop") == set()


def test_the_engine_knows_no_models_datasets_or_files():
    forbidden = ("json", "pathlib", "torch.nn", "torch.utils", "yaml")
    for module, path in MODULES.items():
        if module.startswith("engine"):
            code = path.read_text()
            found = {name for name in imports_in(code) if name.startswith(forbidden)}
            found |= {name for name in calls_in(code) if name == "open" or name.startswith(forbidden)}
            assert not found, f"{module} uses {found}"


def test_no_module_imports_an_integration():
    for module, path in MODULES.items():
        assert not any(name.startswith("integrations") for name in own_imports(path.read_text())), module


def test_public_names_are_sorted_and_exist():
    assert smdl.__all__ == sorted(smdl.__all__)
    for name in smdl.__all__:
        assert getattr(smdl, name).__module__.startswith("smdl.")


def test_importing_smdl_imports_nothing_heavy():
    code = "import sys, smdl; print([m for m in ('torch', 'numba', 'numpy', 'matplotlib') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
