"""Every public name says what its parameters are, what it returns and raises, and shows an example that runs."""

import doctest
import inspect
import re

import pytest

import smdl

#: Classes that others make, or that hold nothing but what is written in their attributes.
NO_ERRORS = {"Candidates", "Deduplication", "Evaluation", "Method", "RowScores", "Selection", "SelectionPlan"}
NO_ERRORS |= {"Scoring", "Strategy", "StreamPicks", "methods"}


def sections(name):
    """Return the sections of a docstring by their headings."""
    text = inspect.getdoc(getattr(smdl, name)) or ""
    parts = re.split(r"^(Args|Attributes|Returns|Raises|Examples):$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("name", smdl.__all__)
def test_every_parameter_is_described(name):
    found = sections(name)
    described = re.findall(r"^    \*{0,2}(\w+): \S", found.get("Args", "") + found.get("Attributes", ""), re.MULTILINE)
    parameters = [each for each in inspect.signature(getattr(smdl, name)).parameters if not each.startswith("_")]
    assert [each for each in parameters if each not in described] == []
    assert len(described) == len(set(described)), "each once"


@pytest.mark.parametrize("name", smdl.__all__)
def test_what_comes_back_and_what_goes_wrong_are_described(name):
    found = sections(name)
    if inspect.isfunction(getattr(smdl, name)):
        assert found.get("Returns", "").strip()
    if name not in NO_ERRORS:
        assert re.search(r"^    \w+Error: \S", found.get("Raises", ""), re.MULTILINE)


@pytest.mark.parametrize("name", smdl.__all__)
@pytest.mark.filterwarnings("ignore")
def test_the_example_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = doctest.DocTestFinder(recurse=False).find(getattr(smdl, name), name, globs={})
    assert examples
    assert any(test.examples for test in examples)
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for test in examples:
        runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)
