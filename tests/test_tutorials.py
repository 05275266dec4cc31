"""Each tutorial is a notebook in text form, has a place in the navigation, and is run by `make docs`."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
SITE = (ROOT / "mkdocs.yml").read_text()


def test_there_are_tutorials_and_the_navigation_has_no_other():
    named = re.findall(r"tutorials/(\w+)\.md", SITE.split("\nnav:")[1])
    assert sorted(named) == [path.stem for path in TUTORIALS]
    assert len(named) >= 8


def test_the_site_runs_them():
    assert re.search(r"^hooks: .*docs/_site/tutorials\.py", SITE, re.MULTILINE)
    assert "make docs" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_is_cells_of_text_and_of_python_that_parses(path):
    text = path.read_text()
    ast.parse(text)
    assert text.startswith("# %% [markdown]\n# # "), "a tutorial begins with its title"
    kinds = re.findall(r"^# %%(.*)$", text, re.MULTILINE)
    assert set(kinds) == {"", " [markdown]"}
    assert "plt.show()" in text, "a tutorial has a picture"


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_a_tutorial_reads_public_names_alone(path):
    imported = {node.module for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)}
    assert not [name for name in imported if name and name.startswith("smdl")]
