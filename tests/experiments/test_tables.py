"""The terminal's table fits, says what results.json says, and takes names for names."""

import io

import pytest
from rich.console import Console

from smdl.experiments import paper_tables, tables
from smdl.experiments.results import collect
from tests.experiments import made


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables") / "experiment"
    made.experiment(folder)
    return collect(folder)


def printed(results, width=80):
    file = io.StringIO()
    Console(file=file, width=width).print(tables.summary_table(results))
    return file.getvalue()


def test_it_says_what_the_results_say(results):
    text = printed(results)
    rows = {row["arm"]: row for row in tables.rows_of(results, "time")}
    for row in rows.values():
        accuracy = row["final_accuracy"]
        assert f"{accuracy['mean']:.2f} ± {accuracy['half']:.2f}" in text
    gap = rows["recommended"]["difference"]
    assert f"−{-gap['mean']:.2f} ± {gap['half']:.2f}" in text  # fewer steps in the same time
    assert f"p {tables.p_value(rows['recommended']['p_holm'])}" in text
    for cell in ("1.00 ×", "1.10 ×", "2.00 ×", "equal time", "equal steps", "baseline", "(3/3)"):
        assert cell in text


def test_it_fits_80_columns(results):
    rows = [
        {**row, "steps_to_baseline": 1_234_567, "final_accuracy": {"mean": 100.0, "half": 12.34, "count": 3}}
        for row in results["rows"]
    ]
    tests = [{**test, "difference": -12.34, "half": 12.34, "p_holm": 1e-9} for test in results["tests"]]
    text = printed({**results, "rows": rows, "tests": tests})
    assert max(len(line) for line in text.splitlines()) <= 80
    for cell in ("100.00 ± 12.34", "−12.34 ± 12.34", "p < 0.001", "1,234,567"):
        assert cell in text


def test_names_are_not_markup(results):
    name = "[bold red]x[/]"
    renamed = {
        **results,
        "arms": [name],
        "rows": [{**row, "arm": name} for row in results["rows"] if row["arm"] == "recommended"],
    }
    assert name in printed(renamed).replace("\n", "")


def test_what_there_is_not_is_a_dash(tmp_path):
    made.experiment(tmp_path, timed=False, seeds=1)
    results = collect(tmp_path)
    text = printed(results)
    assert "equal time" not in text
    assert tables.NOTHING in text  # seconds a step
    assert "p " not in text.replace("steps to", "").replace("a step", "")  # one seed tests nothing
    assert tables.shown(float("nan"), ".2f") == tables.shown(None, ".2f") == tables.NOTHING


@pytest.mark.parametrize(("p", "said"), [(None, "–"), (0.0004, "< 0.001"), (0.0123, "0.012"), (1.0, "1.000")])
def test_p_values_are_never_zero(p, said):
    assert tables.p_value(p) == said


def test_only_what_the_test_says_is_coloured(results):
    tests = [{**test, "p_holm": 0.2 if test["arm"] == "recommended" else 0.01} for test in results["tests"]]
    html = tables.page_table({**results, "tests": tests}, "time", tables.LEARNED)
    marked = [row for row in html.split("<tr ") if 'class="better"' in row or 'class="worse"' in row]
    assert len(marked) == 1
    assert "&lt;script&gt;" in marked[0]


def test_the_markdown_says_the_same(results):
    text = tables.markdown(results)
    assert text.startswith(f"**{results['verdict']}**")
    for row in results["rows"]:
        accuracy = row["final_accuracy"]
        assert f"| {row['arm']} | {accuracy['mean']:.2f} ± {accuracy['half']:.2f} |" in text
    widths = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert len(widths) == 1, "every line has the same columns"


def test_the_papers_numbers_stand_beside_ours(rendered):
    results = made.results_of(rendered)
    ours = next(row for row in results["rows"] if (row["arm"], row["protocol"]) == ("uniform", "steps"))
    wanted = tables.estimate_text(ours["final_accuracy"], ".2f")
    assert f"| error <%> | 8.10 → {wanted} | 9.20 → – |" in paper_tables.markdown(results)
    assert wanted in made.Page((rendered / "report.html").read_text()).text
    file = io.StringIO()
    Console(file=file, width=80).print(*paper_tables.terminal(results))
    assert wanted in file.getvalue()
    assert paper_tables.terminal({**results, "paper": None}) == paper_tables.markdown({**results, "paper": None}) == []
    words = {**results, "paper": {"columns": [], "rows": [], "note": "curves alone"}}
    assert paper_tables.terminal(words) == ["curves alone"]
    assert paper_tables.page_part(words)[0] == "What the paper says"


def test_arms_can_have_baselines_of_their_own(tmp_path):
    pairs = [(name, lr) for lr in (0.1, 0.2) for name in ("uniform", "loss")]
    arms = {f"{name}, lr {lr}": {"optimizer": {"lr": lr}, "strategy": name} for name, lr in pairs}
    own = {f"loss, lr {lr}": f"uniform, lr {lr}" for lr in (0.1, 0.2)}
    made.experiment(tmp_path, arms=arms, timed=False, baseline="uniform, lr 0.1", against=own)
    results = collect(tmp_path)
    finals = {row["arm"]: row["final_accuracy"]["mean"] for row in results["rows"]}
    assert {test["arm"]: test["against"] for test in results["tests"]} == own, "and nothing else is tested"
    for test in results["tests"]:
        assert test["difference"] == pytest.approx(finals[test["arm"]] - finals[own[test["arm"]]])
    assert "loss, lr 0.2 (against uniform, lr 0.2)" in results["verdict"]
    assert "(vs uniform, lr 0.2)" in tables.markdown(results)
    assert "vs its own" in printed(results)
