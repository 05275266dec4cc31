"""Rules of the house, as tests."""

import ast
import subprocess
import sys
from pathlib import Path

import smdl

SOURCE = Path(smdl.__file__).parent

#: Later modules may import earlier ones, never the other way round.
ORDER = [
    "errors",
    "jit",
    "randomness",
    "arithmetic",
    "pool",
    "distances",
    "gradients",
    "similarity",
    "terms",
    "objective",
    "greedy.gains",
    "greedy.kernels",
    "greedy.maximise",
    "greedy.partition",
    "greedy.specification",
    "selection",
    "strategies.strategy",
    "strategies.uniform",
    "strategies.loss_rank",
    "strategies.submodular",
    "strategies.registry",
    "candidates",
    "batches",
    "reading",
    "scoring",
    "reference_model",
    "loss_hook",
    "loader",
    "streaming",
    "training.config",
    "training.files",
    "training.factory",
    "training.datasets.errors",
    "training.datasets.augment",
    "training.datasets.in_memory",
    "training.datasets.progress",
    "training.datasets.subsets",
    "training.datasets.unpickle",
    "training.datasets.formats",
    "training.datasets.folder",
    "training.datasets.download",
    "training.datasets.catalogue",
    "training.datasets.user_dataset",
    "training.datasets.load",
    "training.models",
    "training.schedule",
    "training.meters",
    "training.checkpoint",
    "training.environment",
    "training.doctor",
    "training.build",
    "training.evaluation",
    "training.generators",
    "training.usage_snapshot",
    "training.progress",
    "training.loop",
    "experiments.statistics",
    "experiments.arms",
    "experiments.calibration",
    "experiments.logs",
    "experiments.runner",
    "experiments.compare",
    "experiments.results",
    "experiments.figures",
    "experiments.plots",
    "experiments.panels",
    "experiments.usage",
    "experiments.pictures",
    "experiments.theme",
    "experiments.page",
    "experiments.tables",
    "experiments.paper_tables",
    "experiments.run_results",
    "experiments.sections",
    "experiments.report",
    "experiments.sweeps",
    "experiments.published",
    "experiments.ablate",
    "experiments.paper",
    "options",
    "cli",
    "__main__",
]


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imports_of(path: Path) -> set[str]:
    """smdl's own modules that a file imports at run time (not under TYPE_CHECKING)."""
    found, tree = set(), ast.parse(path.read_text())
    tree.body = [
        node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("smdl"):
            home = node.module.removeprefix("smdl").removeprefix(".")
            for alias in node.names:
                inner = f"{home}.{alias.name}".removeprefix(".")
                found.add(inner if inner in ORDER else home)
    return found - {""}


def test_every_module_has_its_place():
    modules = {name_of(path) for path in SOURCE.rglob("*.py")}
    modules = {name for name in modules if not name.endswith("__init__")}
    assert modules == set(ORDER)


def test_imports_point_one_way():
    for path in SOURCE.rglob("*.py"):
        if path.name != "__init__.py":
            place = ORDER.index(name_of(path))
            later = {name for name in imports_of(path) if ORDER.index(name) >= place}
            assert not later, f"{name_of(path)} imports {later}, which come after it"


def test_public_names_are_sorted_and_exist():
    assert smdl.__all__ == sorted(smdl.__all__)
    for name in smdl.__all__:
        assert getattr(smdl, name).__module__.startswith("smdl.")


def test_importing_smdl_imports_nothing_heavy():
    code = "import sys, smdl; print([m for m in ('torch', 'numba', 'numpy', 'matplotlib') if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"
