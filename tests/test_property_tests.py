"""The property tests: the same examples in every run of the tests, others in every round of `make fuzz`."""

import re
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

from tests import fuzz

PROFILE = "from hypothesis import settings\nsettings.register_profile('fuzz')"
PROPERTY = """
from hypothesis import given, strategies as st
@given(st.integers(0, 10**6))
def test_property(n):
    assert n {comparison}
"""


def drawn() -> list[int]:
    """Return the examples that the settings of the tests choose."""
    values = []

    @settings(max_examples=300)
    @given(st.integers(0, 2**32))
    def draw(value):
        values.append(value)

    draw()
    return values


def test_the_examples_do_not_depend_on_the_modules_that_are_loaded(tmp_path, monkeypatch):
    before = drawn()
    (tmp_path / "many_constants.py").write_text(f"NUMBERS = {list(range(7 * 10**6, 7 * 10**6 + 500))}")
    monkeypatch.syspath_prepend(tmp_path)
    __import__("many_constants")
    assert drawn() == before
    assert len(set(before)) > 200


def test_the_tests_draw_a_fixed_choice_and_fuzzing_others():
    assert settings.get_profile("fixed").derandomize
    assert not settings.get_profile("fuzz").derandomize


def test_every_round_of_fuzzing_has_another_seed(capsys):
    with mock.patch("subprocess.run", side_effect=[mock.Mock(returncode=0)] * 3) as run:
        assert fuzz.fuzz(minutes=0, arguments=[]) == fuzz.fuzz(minutes=0, arguments=[]) == 0
    seeds = [re.findall(r"--hypothesis-seed=\d+", " ".join(call.args[0]))[0] for call in run.call_args_list]
    assert len(set(seeds)) == len(seeds) == 2
    assert re.findall(r"--hypothesis-seed=\d+", capsys.readouterr().out) == seeds


def test_fuzzing_prints_the_smallest_example(tmp_path, capsys):
    (tmp_path / "conftest.py").write_text(PROFILE)
    path = tmp_path / "test_false.py"
    path.write_text(PROPERTY.format(comparison="<= 1000"))
    assert fuzz.fuzz(0, [str(path), "-p", "no:xdist"]) == 1
    printed = capsys.readouterr().out
    assert "a find with --hypothesis-seed=" in printed
    assert "n=1001" in re.sub(r"\s", "", printed)
    path.write_text(PROPERTY.format(comparison=">= 0"))
    assert fuzz.fuzz(0, [str(path), "-p", "no:xdist"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "rounds without a find: 1"


def test_a_round_that_was_killed_is_no_find(capsys):
    with mock.patch("subprocess.run", return_value=mock.Mock(returncode=-9, stdout="", stderr="")):
        assert fuzz.fuzz(0, []) == -9
    assert "exit code -9, no find" in capsys.readouterr().out
