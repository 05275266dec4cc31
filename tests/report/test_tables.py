"""The terminal's table fits, says what results.json says, and takes names for names."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from smdl.experiments.results import collect
from smdl.experiments.statistics import Estimate
from smdl.report import paper_tables, text_tables
from smdl.report import summaries as tables
from tests.report import made


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "experiment"
    made.experiment(folder)
    return collect(folder)


def printed(results, width=80):
    file = io.StringIO()
    Console(file=file, width=width).print(text_tables.summary_table(results))
    return file.getvalue()


def test_it_says_what_the_results_say(results):
    text = printed(results)
    for row in (row for row in results.rows if row.protocol == "time"):
        assert f"{row.final_accuracy.mean:.2f} ± {row.final_accuracy.half:.2f}" in text
    (test,) = (test for test in results.tests if (test.arm, test.protocol) == ("recommended", "time"))
    assert f"−{-test.difference:.2f} ± {test.half:.2f}" in text  # fewer steps in the same time
    assert f"p {tables.p_value(test.p_holm)}" in text
    for cell in ("1.00 ×", "1.10 ×", "2.00 ×", "equal time", "equal steps", "baseline", "(3/3)"):
        assert cell in text


def test_it_fits_80_columns(results):
    large = {"steps_to_baseline": 1_234_567, "final_accuracy": Estimate(100.0, 12.34, 3)}
    rows = [replace(row, **large) for row in results.rows]
    tests = [replace(test, difference=-12.34, half=12.34, p_holm=1e-9) for test in results.tests]
    text = printed(replace(results, rows=rows, tests=tests))
    assert max(len(line) for line in text.splitlines()) <= 80
    for cell in ("100.00 ± 12.34", "−12.34 ± 12.34", "p < 0.001", "1,234,567"):
        assert cell in text


def test_names_are_not_markup(results):
    name = "[bold red]x[/]"
    rows = [replace(row, arm=name) for row in results.rows if row.arm == "recommended"]
    assert name in printed(replace(results, arms=[name], rows=rows)).replace("\n", "")


def test_a_missing_value_is_a_dash(tmp_path):
    made.experiment(tmp_path, timed=False, seeds=1)
    results = collect(tmp_path)
    text = printed(results)
    assert "equal time" not in text
    assert tables.MISSING in text  # seconds per step
    assert "p " not in text.replace("steps to", "").replace("/ step", "")  # one seed tests nothing
    assert tables.shown(float("nan"), ".2f") == tables.shown(None, ".2f") == tables.MISSING


@pytest.mark.parametrize(("p", "said"), [(None, "–"), (0.0004, "< 0.001"), (0.0123, "0.012"), (1.0, "1.000")])
def test_p_values_are_never_zero(p, said):
    assert tables.p_value(p) == said


def test_only_significant_differences_are_coloured(results):
    tests = [replace(test, verdict="unclear" if test.arm == "recommended" else "better") for test in results.tests]
    table = tables.page_table(replace(results, tests=tests), "time", tables.LEARNED)
    kinds = {
        arm: {number.kind for cell in cells for number in cell.numbers} - {"", "half"} for arm, cells in table.rows
    }
    assert kinds == {"uniform": set(), made.SCRIPT: {"better"}, "recommended": set()}


def test_the_markdown_says_the_same(results):
    text = text_tables.markdown(results)
    assert text.startswith(f"**{results.verdict}**")
    for row in results.rows:
        assert f"| {row.arm} | {row.final_accuracy.mean:.2f} ± {row.final_accuracy.half:.2f} |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1, "every line has the same columns"


def test_the_papers_numbers_stand_next_to_ours(rendered):
    results = collect(rendered)
    ours = next(row for row in results.rows if (row.arm, row.protocol) == ("uniform", "steps")).final_accuracy
    wanted = f"{ours.mean:.2f} ± {ours.half:.2f}"
    assert f"| error <%> | 8.10 → {wanted} | 9.20 → – |" in paper_tables.markdown(results)
    assert wanted in made.Page((rendered / "report.html").read_text()).text
    file = io.StringIO()
    Console(file=file, width=80).print(*paper_tables.terminal(results))
    assert wanted in file.getvalue()
    none = replace(results, paper=None)
    assert paper_tables.terminal(none) == paper_tables.markdown(none) == []
    words = replace(results, paper={"columns": [], "rows": [], "note": "curves alone"})
    assert paper_tables.terminal(words) == ["curves alone"]


def test_arms_can_have_baselines_of_their_own(tmp_path):
    pairs = [(name, lr) for lr in (0.1, 0.2) for name in ("uniform", "loss")]
    arms = {f"{name}, lr {lr}": {"optimizer": {"lr": lr}, "method": name} for name, lr in pairs}
    own = {f"loss, lr {lr}": f"uniform, lr {lr}" for lr in (0.1, 0.2)}
    made.experiment(tmp_path, arms=arms, timed=False, baseline="uniform, lr 0.1", against=own)
    results = collect(tmp_path)
    finals: Any = {row.arm: row.final_accuracy.mean for row in results.rows}
    assert {test.arm: test.against for test in results.tests} == own, "and nothing else is tested"
    for test in results.tests:
        assert test.difference == pytest.approx(finals[test.arm] - finals[own[test.arm]])
    assert "loss, lr 0.2 (against uniform, lr 0.2)" in results.verdict
    assert "(vs uniform, lr 0.2)" in text_tables.markdown(results)
    assert "vs its own" in printed(results)
