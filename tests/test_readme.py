"""The pages of the documentation: their code runs, their links lead somewhere, every method and term has a card."""

import doctest
import inspect
import re
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

import smdl
from smdl.cli.options import COMMANDS
from smdl.engine.terms import TERMS
from smdl.loading.methods import METHODS
from smdl.training.config import TrainConfig
from tests.test_architecture import imports_in

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
CARDS = ROOT / "docs" / "methods"
#: Options of the commands that are no fields of TrainConfig.
OTHERS = {"config", "help", "help-all", "print_config", "out", "resume", "quiet", "tracker"}
OTHERS |= {"methods", "seeds", "minutes", "regimes", "protocols", "jobs", "values", "tune_lr", "seconds"}


def code_of(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)


def marked(page: Path) -> Any:
    """One page selects from 10,000 samples, which takes seconds. The page of the trainers needs their libraries."""
    marks = {
        "arrays.md": [pytest.mark.slow],
        "trainers.md": [pytest.mark.integrations, pytest.mark.filterwarnings("default")],
    }
    return pytest.param(page, marks=marks.get(page.name, ()) if page.parent != CARDS else ())


@pytest.mark.parametrize("page", [marked(page) for page in PAGES if code_of(page)], ids=lambda page: page.name)
def test_the_code_of_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in code_of(page):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_the_page_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text()):
        if target.startswith("http"):
            continue
        linked = page.parent / target if target else page
        if linked.parent.name == "tutorials":
            linked = linked.with_suffix(".py")  # the page is made of it
        assert linked.exists(), f"{page.name} links to {target}"
        assert not anchor or anchor in anchors_of(linked), f"{page.name} links to {target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_files_that_the_page_names_exist(page):
    named = re.findall(r"`((?:src/smdl|tests|benchmarks|docs|examples)/[\w/.-]+)[`:]", page.read_text())
    missing = [name for name in named if "NAME" not in name and not (ROOT / name).exists()]
    assert not missing, f"{page.name} names {missing}"


def is_public(name: str) -> bool:
    """Whether a dotted name begins with a public name of smdl, or with a module that docs/api.md declares public."""
    modules = re.findall(r"^- `(smdl\.[\w.]+)`:", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    return name.split(".")[1] in smdl.__all__ or any(f"{name}.".startswith(f"{module}.") for module in modules)


def exists(name: str) -> bool:
    """Whether a dotted name leads somewhere: through attributes, and through modules that are not imported yet."""
    found: Any = smdl
    for number, part in enumerate(name.split(".")[1:], 2):
        try:
            found = getattr(found, part) if hasattr(found, part) else import_module(".".join(name.split(".")[:number]))
        except ImportError:
            return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_names_of_smdl_on_the_page_are_public_and_exist(page):
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    named = re.findall(r"(?<![\w./])smdl(?:\.\w+)+", " ".join(re.findall(r"`([^`]+)`", prose)))
    wrong = [name for name in named if not (is_public(name) and exists(name))]
    assert not wrong, f"{page.name} names {wrong}"


def examples() -> dict[str, str]:
    """Return the code that readers copy: that of pages, tutorials, docstrings and examples. examples/demo.py makes the
    picture of the first page, and is no example of use."""
    files = [path for folder in ("docs/tutorials", "examples") for path in (ROOT / folder).glob("*.py")]
    found = {path.name: path.read_text() for path in files if path.name != "demo.py"}
    found |= {str(page.relative_to(ROOT)): "\n".join(code_of(page)) for page in PAGES}
    for name in smdl.__all__:
        parts = doctest.DocTestParser().get_examples(inspect.getdoc(getattr(smdl, name)) or "")
        found[name] = "".join(part.source for part in parts)
    return found


def test_no_example_imports_what_is_internal():
    imported = {place: imports_in(code) for place, code in examples().items()}
    used = {place: {name for name in names if name.startswith("smdl.")} for place, names in imported.items()}
    assert any(used.values())
    internal = {place: {name for name in names if not is_public(name)} for place, names in used.items()}
    assert {place: names for place, names in internal.items() if names} == {}


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def pages_in(nav: Any) -> list[str]:
    """Return the pages of a navigation, at any depth."""
    if isinstance(nav, str):
        return [nav]
    return [page for part in (nav.values() if isinstance(nav, dict) else nav) for page in pages_in(part)]


def test_every_page_has_one_place_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    found = pages_in(yaml.safe_load(text.partition("\nnav:\n")[2]))
    tutorials = (path.with_suffix(".md") for path in (ROOT / "docs" / "tutorials").glob("*.py"))
    pages = [*(ROOT / "docs").rglob("*.md"), *tutorials]
    assert sorted(found) == sorted(str(page.relative_to(ROOT / "docs")) for page in pages)


def test_the_reference_has_every_public_name_once():
    found = re.findall(r"^::: smdl\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert sorted(found) == smdl.__all__


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def options_of(config: Any, prefix: str = "") -> set[str]:
    """Return the dotted names of all fields of a config. Those of a dict end with a dot: its keys are free."""
    names = set()
    for field in fields(config):
        value, name = getattr(config, field.name), prefix + field.name
        names |= options_of(value, f"{name}.") if is_dataclass(value) else {f"{name}." if value == {} else name}
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_options_in_the_commands_of_the_page_exist(page):
    known = options_of(TrainConfig())
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        for command in re.findall(r"smdl (?:train|compare|preview|ablate) ([^#;\n]*)", block.replace("\\\n", " ")):
            for option in re.findall(r"--([\w.-]+)", command):
                free = option.partition(".")[0] + "."
                assert option in known | OTHERS or free in known, f"{page.name} has --{option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_options_of_smdl_select_on_the_page_exist(page):
    known = {option.lstrip("-") for option in COMMANDS["select"].own} | {"help"}
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        for command in re.findall(r"smdl select ([^#;\n]*)", block.replace("\\\n", " ")):
            found = {option.partition(".")[0] for option in re.findall(r"--([\w.-]+)", command)}
            assert found <= known, f"{page.name} has {found - known}"


@pytest.mark.parametrize("name", [*METHODS, *TERMS])
def test_every_method_and_term_has_a_card_with_what_a_reader_needs(name):
    found = re.search(rf"^\| \[{name}\]\((\w+\.md)\)", (CARDS / "README.md").read_text(), re.MULTILINE)
    assert found, f"the index of methods and terms lacks {name}"
    card = (CARDS / found[1]).read_text()
    for part in ("**What ", "## How to use ", "```python", "```sh", "## Costs", "## When ", "## Attribution"):
        assert part in card, f"{found[1]} lacks {part}"
