"""What is installed fits what is imported, and the lowest versions are those that are tested."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import smdl
from smdl.cli.commands import main
from smdl.common.environment import CORE, EXTRA_PACKAGES
from smdl.common.messages import DISTRIBUTION, EXTRAS
from tests.test_architecture import MODULES, own_imports

SOURCE = Path(smdl.__file__).parent
ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
IMPORT_NAMES = {"pillow": "PIL", "scikit-learn": "sklearn", "PyYAML": "yaml", "Jinja2": "jinja2"}
#: Parts of the package that need the extra train; all others work with the core dependencies.
TRAINING = {"training", "experiments", "files", "judging", "paper", "report"}
#: Modules that import a package of another extra when it is needed.
OTHERS = {
    "integrations/transformers.py": {"transformers"},
    "files/engines.py": {"ray"},
    "files/file_paths.py": {"fsspec"},
    "files/tables.py": {"pyarrow"},
    "report/panels.py": {"markupsafe"},  # comes with Jinja2
}


def name_of(requirement):
    return re.findall(r"^[\w-]+", requirement)[0]


def imports_of(path):
    """The packages outside smdl and the standard library that a file imports."""
    return packages_in(path.read_text())


def without_functions(module):
    """The code of a module that runs when it is imported."""
    tree = ast.parse(MODULES[module].read_text())
    tree.body = [node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If)]
    return ast.unparse(tree)


def packages_in(code):
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        yield from {name.partition(".")[0] for name in names} - {"smdl", *sys.stdlib_module_names}


def requirements(extra):
    """The requirements of an extra, with those of the extras that it includes."""
    for requirement in PROJECT["optional-dependencies"][extra]:
        included = re.findall(rf"^{DISTRIBUTION}\[(.*)\]$", requirement)
        if included:
            for name in included[0].split(","):
                yield from requirements(name)
        else:
            yield requirement


def test_messages_name_the_distribution():
    assert PROJECT["name"] == DISTRIBUTION


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_holds_what_its_commands_ask_for(extra):
    names = {name_of(requirement) for requirement in requirements(extra)} - {"faiss-cpu"}  # Linux only
    assert {IMPORT_NAMES.get(name, name) for name in names} == set(EXTRAS[extra])


def test_doctor_knows_the_packages_of_the_core_and_of_every_extra_for_users():
    assert {name_of(requirement).partition("[")[0] for requirement in PROJECT["dependencies"]} == set(CORE)
    extras, ours = PROJECT["optional-dependencies"], {"integrations", "test", "docs", "release", "bench"}
    own = {
        extra: {name_of(one) for one in extras[extra] if sys.platform == "linux" or "linux" not in one}
        for extra in set(extras) - ours
    }
    assert {extra: names - {DISTRIBUTION} for extra, names in own.items()} == {
        extra: set(names) for extra, names in EXTRA_PACKAGES.items()
    }


def test_the_package_is_described_by_the_first_sentence_of_the_readme(capsys):
    first = " ".join((ROOT / "README.md").read_text().split("\n\n")[1].split()).partition(". ")[0]
    assert first.startswith("smdl chooses")
    assert PROJECT["description"] == first
    assert first in " ".join((smdl.__doc__ or "").split())
    with pytest.raises(SystemExit):
        main(["--help"])
    assert first in " ".join(capsys.readouterr().out.split())


#: The modules of select, and the functions of the commands that call them.
SELECTING = {name for name in MODULES if name.startswith("files.")} | {"report.selection_page", "report.row_pages"}
#: Their optional packages: each says which extra it needs.
ASKED_FOR = {"ray", "sentence_transformers", "transformers", "huggingface_hub"}


def test_select_needs_nothing_that_only_training_needs():
    seen, waiting = set(), {*SELECTING, "cli.commands", "cli.options", "cli.parser"}
    core, needed = {"jsonargparse", "markupsafe", "numba", "numpy", "torch", "yaml"}, {}  # markupsafe comes with Jinja2
    while waiting:
        seen.add(module := waiting.pop())
        whole = module in SELECTING
        waiting |= own_imports(MODULES[module].read_text() if whole else without_functions(module)) - seen
        for package in imports_of(MODULES[module]) if whole else packages_in(without_functions(module)):
            needed.setdefault(package, module)
    unknown = {package: module for package, module in needed.items() if package not in {*core, *EXTRAS["select"]}}
    assert {package: module for package, module in unknown.items() if package not in ASKED_FOR} == {}


def test_select_and_its_report_work_without_the_packages_for_training(tmp_path):
    code = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(set(EXTRAS["train"]) - set(EXTRAS["select"]) - {"yaml"})}))
import numpy as np
from smdl.cli.commands import main
np.save("x.npy", np.random.default_rng(0).normal(size=(60, 3)))
assert main("select x.npy --size 5 --out chosen.parquet --quiet".split()) == 0
assert main("report chosen.select".split()) == 0
"""
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_import_is_a_dependency(path):
    part = path.relative_to(SOURCE).parts[0]
    allowed = {"torch", "numpy", "numba"}
    if part == "common":
        allowed |= {"filelock", "rich"}
    if part == "cli":
        allowed |= {"jsonargparse", "yaml"}  # yaml comes with jsonargparse
    if part in TRAINING or part == "cli":
        allowed |= set(EXTRAS["train"])
    if part == "labelling":
        allowed |= {*EXTRAS["label"], "threadpoolctl"}  # which comes with sklearn
    allowed |= OTHERS.get("/".join(path.relative_to(SOURCE).parts), set())
    assert set(imports_of(path)) <= allowed


def test_the_lowest_versions_that_are_tested_are_those_that_pyproject_admits():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints-lowest.txt").read_text(), re.MULTILINE))
    for requirement in (*PROJECT["dependencies"], *requirements("train"), *requirements("label")):
        bound = re.findall(r">=([\d.]+)(?:;|$)", requirement)[0]
        assert re.fullmatch(rf"{re.escape(bound)}(\.0)*", pins[name_of(requirement)]), requirement


def test_every_dependency_is_pinned_for_ci():
    pins = dict(re.findall(r"^([\w-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    extras = PROJECT["optional-dependencies"].values()
    names = {name_of(requirement) for extra in (PROJECT["dependencies"], *extras) for requirement in extra}
    assert names - {DISTRIBUTION} <= set(pins)


def test_the_integrations_extra_holds_the_extra_of_every_integration():
    extras, modules = PROJECT["optional-dependencies"], (SOURCE / "integrations").glob("[a-z]*.py")
    held = set(re.findall(r"\[(.*?)\]", extras["integrations"][0])[0].split(","))
    assert {module.stem for module in modules} <= held <= set(extras)


def test_what_is_not_python_is_packaged():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["smdl"]
    packaged = {path for pattern in patterns for path in SOURCE.glob(pattern)}
    others = {path for path in SOURCE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    others = {path for path in others if "__pycache__" not in path.parts}
    assert packaged == others


@pytest.mark.parametrize("path", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_calls_targets_that_exist(path):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    steps = [step for job in yaml.safe_load(path.read_text())["jobs"].values() for step in job["steps"]]
    commands = " ".join(step.get("run", "") for step in steps)
    assert set(re.findall(r"make ([\w-]+)", commands)) <= set(targets)
