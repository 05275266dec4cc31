"""What is installed fits what is imported, and the lowest versions are those that are tested."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

import smdl
from smdl.common.messages import TRAIN_PACKAGES

SOURCE = Path(smdl.__file__).parent
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TRAIN = PROJECT["optional-dependencies"]["train"]
SELECT = [name for name in PROJECT["optional-dependencies"]["select"] if not name.startswith("smdl")]
IMPORT_NAMES = {"pillow": "PIL", "scikit-learn": "sklearn", "PyYAML": "yaml", "Jinja2": "jinja2"}
#: Parts of the package that need smdl[train]; all others work with the core dependencies.
TRAINING = {"training", "experiments", "files", "judging", "paper", "report"}
#: Modules that import a package of another extra when it is needed.
OTHERS = {
    "integrations/transformers.py": {"transformers"},
    "files/engines.py": {"ray"},
    "files/row_files.py": {"fsspec"},
    "files/rows.py": {"fsspec"},
    "files/tables.py": {"pyarrow"},
}


def name_of(requirement):
    return re.findall(r"^[\w-]+", requirement)[0]


def imports_of(path):
    """The packages outside smdl and the standard library that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        yield from {name.partition(".")[0] for name in names} - {"smdl", *sys.stdlib_module_names}


def test_the_train_extra_is_what_the_commands_ask_for():
    assert {IMPORT_NAMES.get(name_of(package), name_of(package)) for package in TRAIN} == set(TRAIN_PACKAGES)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_import_is_a_dependency(path):
    part = path.relative_to(SOURCE).parts[0]
    allowed = {"torch", "numpy", "numba"}
    if part == "common":
        allowed |= {"filelock", "rich"}
    if part == "cli":
        allowed |= {"jsonargparse", "yaml"}  # yaml comes with jsonargparse
    if part in TRAINING or part == "cli":
        allowed |= set(TRAIN_PACKAGES)
    allowed |= OTHERS.get("/".join(path.relative_to(SOURCE).parts), set())
    assert set(imports_of(path)) <= allowed


def test_the_lowest_versions_that_are_tested_are_those_that_pyproject_admits():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints-lowest.txt").read_text(), re.MULTILINE))
    for requirement in (*PROJECT["dependencies"], *TRAIN, *SELECT):
        bound = re.findall(r">=([\d.]+)(?:;|$)", requirement)[0]
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", pins[name_of(requirement)]), requirement


def test_every_dependency_is_pinned_for_ci():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    extras = PROJECT["optional-dependencies"].values()
    assert {name_of(requirement) for extra in (PROJECT["dependencies"], *extras) for requirement in extra} - {
        "smdl"
    } <= set(pins)


def test_the_integrations_extra_holds_the_extra_of_every_integration():
    extras, modules = PROJECT["optional-dependencies"], (SOURCE / "integrations").glob("[a-z]*.py")
    held = set(re.findall(r"smdl\[(.*?)\]", extras["integrations"][0])[0].split(","))
    assert {module.stem for module in modules} <= held <= set(extras)


def test_what_is_not_python_is_packaged():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["smdl"]
    packaged = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    others = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    others = {path for path in others if "__pycache__" not in path.parts}
    assert packaged == others
