"""Results are what the files of the runs say. Damaged files are reported and skipped."""

import json
import shutil

import pytest

from smdl.common.storage import digest, write_json
from smdl.experiments import results, runner
from smdl.experiments.comparison_plan import ComparisonPlan, FolderError
from smdl.experiments.records import Comparison, Welch
from smdl.experiments.verdicts import answer
from tests.report import made
from tests.report.made import read_lines, write_lines

#: People read results.json with scripts of their own: no key may go.
KEYS = {
    "": ["title", "caption", "paper", "baseline", "against", "primary", "protocols", "equal", "arms", "seeds",
         "earlier_seeds", "looks", "minutes", "metric", "higher_is_better", "learning_rates", "planned_steps",
         "methods", "regimes", "endpoints", "gains", "data", "answer", "verdict", "rows", "tests", "secondary",
         "calibration", "runs", "problems", "warnings", "config", "overrides", "environment"],
    "rows": ["arm", "protocol", "seeds", "steps", "seconds", "seconds_per_step", "seconds_per_epoch", "by_the_log",
             "overhead", "forwards_per_step", "steps_to_baseline", "seconds_to_baseline", "reached_baseline",
             "reference_seconds", "final_accuracy", "mean_accuracy", "final_loss", "mean_loss", "final_train_accuracy",
             "mean_train_accuracy", "final_train_loss", "mean_train_loss", "class_balance", "metrics", "refit_seconds"],
    "tests": ["arm", "against", "protocol", "failed", "empty", "difference", "half", "p", "p_holm",
              "half_90", "pairs", "verdict", "seeds_needed", "welch", "metric", "margin"],
    "runs": ["arm", "protocol", "seed", "folder", "steps", "epochs", "problem"],
}  # fmt: skip


def test_results_json_has_all_its_keys(tmp_path):
    made.experiment(tmp_path)
    results.write(tmp_path, results.collect(tmp_path))
    found = made.results_of(tmp_path)
    assert list(found) == KEYS[""]
    for name in ("rows", "tests", "runs"):
        assert {tuple(entry) for entry in found[name]} == {tuple(KEYS[name])}
    assert list(found["rows"][0]["overhead"]) == ["scoring", "selection", "total"]
    assert list(found["rows"][0]["final_accuracy"]) == ["mean", "half", "count"]
    assert found["runs"][0]["epochs"] == read_lines(tmp_path / found["runs"][0]["folder"] / "metrics.jsonl")
    assert list(found["tests"][0]["welch"]) == ["difference", "half", "p"]
    assert found["tests"][0]["failed"] == {found["tests"][0]["arm"]: 0, "uniform": 0}


def comparison(arm, verdict="unclear", **values):
    usual = {"protocol": "time", "difference": 0.2, "half": 0.5, "p": 0.4, "p_holm": 0.4, "half_90": 0.4, "pairs": 5}
    rest = {"against": "uniform", "failed": {}, "empty": [], "seeds_needed": None, "welch": Welch(0.2, 0.6, 0.5)}
    return Comparison(**{**usual, **rest, **values, "arm": arm, "verdict": verdict})


def test_the_verdict_never_says_that_there_is_no_difference():
    plain = ComparisonPlan("digits", {}, {"uniform": {}, "loss": {}})
    tests = [
        comparison("a", "equivalent", half=0.3),
        comparison("b", "better", difference=1.2),
        comparison("c", "worse", difference=-3.0, half=0.9),
        comparison("d", "better", difference=9.0, protocol="steps"),
        comparison("e", difference=-14.4, half=29.5, seeds_needed=40),
        comparison("f", difference=-0.4, half=9.5, seeds_needed=101),
        comparison("g", difference=1.0, half=None, pairs=1, seeds_needed=3),
        comparison("i", difference=0.5, half=None, pairs=3, seeds_needed=4),
        comparison("h", "better", difference=0.2, half=0.1, half_90=0.08),
        comparison("j", difference=-1.7, half=0.9, seeds_needed=7),
    ]
    said = results.verdict(plain, tests, "time")
    for words in (
        "a is equivalent (+0.20 ± 0.30 points, surely within ±0.5)",
        "b is better by 1.20 ± 0.50 points;",
        "c is worse by 3.00 ± 0.90 points;",
        "too few seeds to tell for e (-14.40 ± 29.50 points; about 40 seeds are needed)",
        "too few seeds to tell for f (-0.40 ± 9.50 points; more than 100 seeds are needed)",
        "too few seeds to tell for g (+1.00 points; at least 3 seeds are needed)",
        "for i (+0.50 points in every seed, and without spread there is no test; at least 4 seeds are needed)",
        "h is better by 0.20 ± 0.10 points, too little to matter",
        "for j (-1.70 ± 0.90 points, not significant after the correction; about 7 seeds are needed)",
    ):
        assert words in said
    assert "no difference" not in said
    assert "9.0" not in said, "the primary endpoint is equal time"


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        (["worse", "better", "unclear"], "Yes, use b here: +1.00 ± 0.50 points at equal time against uniform."),
        (["worse", "worse"], "No: at equal time, uniform is better."),
        (["worse", "equivalent"], "No need to: at equal time, nothing is better than uniform by 0.5 points."),
        (["unclear", "worse"], "Not known yet for a: too few seeds to tell at equal time; about 7 seeds are needed."),
        (["chance", "chance"], "This cannot be answered yet: nothing was learned."),
        (["missing"], "This cannot be answered yet: there are no finished runs to compare."),
    ],
)
def test_should_i_use_it_here_is_answered_first(verdicts, said):
    tests = [comparison(arm, kind, difference=1.0, seeds_needed=7) for arm, kind in zip("abc", verdicts, strict=False)]
    assert answer(tests, "time", "uniform") == said


def test_a_gain_that_is_surely_small_is_no_reason_to_change():
    tests = [comparison("a", "better", difference=0.2, half=0.1, half_90=0.08)]
    assert (
        answer(tests, "time", "uniform") == "No need to: at equal time, nothing is better than uniform by 0.5 points."
    )


def test_the_paired_test_decides_and_welchs_stands_beside_it(tmp_path):
    """The arms of the fixture differ by the same amount in every seed, up to 2 points of noise that they share."""
    experiment = made.experiment(tmp_path)
    for seed, gain in enumerate((0.010, 0.012, 0.008)):
        path = experiment.run("recommended", "steps", seed) / "metrics.jsonl"
        uniform = read_lines(experiment.run("uniform", "steps", seed) / "metrics.jsonl")
        write_lines(path, [{**record, "test_error": record["test_error"] - gain} for record in uniform])
    found = results.collect(tmp_path)
    (test,) = (test for test in found.tests if (test.arm, test.protocol) == ("recommended", "steps"))
    assert (test.difference, test.pairs, test.verdict) == (pytest.approx(1.0), 3, "better")
    assert test.half == pytest.approx(4.3027 * 0.2 / 3**0.5, rel=1e-4)
    assert test.p_holm is not None
    assert test.p_holm < 0.05 < (test.welch.p or 0)
    assert (test.welch.half or 0) > (test.half or 0)


def test_seeds_that_only_one_arm_has_are_no_pair(tmp_path):
    experiment = made.experiment(tmp_path, seeds=4)
    shutil.rmtree(experiment.run("recommended", "time", 1))
    shutil.rmtree(experiment.run("uniform", "time", 2))
    (test,) = (test for test in results.collect(tmp_path).tests if (test.arm, test.protocol) == ("recommended", "time"))
    assert (test.pairs, test.p, test.verdict) == (2, None, "unclear")


def at_error(experiment, arms, error):
    """Every run of these arms ends at a test error."""
    for run in experiment.plan["runs"]:
        if run["arm"] in arms:
            path = experiment.folder / run["folder"] / "metrics.jsonl"
            write_lines(path, [{**record, "test_error": error + 0.001 * run["seed"]} for record in read_lines(path)])


def test_where_nothing_was_learned_there_is_no_verdict_and_a_problem_per_arm(tmp_path):
    experiment = made.experiment(tmp_path)
    at_error(experiment, made.ARMS, 0.667)
    found = results.collect(tmp_path)
    assert {test.verdict for test in found.tests} == {"chance"}
    assert "nothing was learned: every arm is at chance level" in found.verdict
    assert found.answer == "This cannot be answered yet: nothing was learned."
    assert "uniform, equal time: final accuracy 33.20 % is at chance level (33.33 %)" in found.problems
    assert len(found.problems) == 6


def test_one_arm_at_chance_is_named_and_still_tested(tmp_path):
    at_error(made.experiment(tmp_path), ["recommended"], 0.667)
    found = results.collect(tmp_path)
    assert [problem.partition(":")[0] for problem in found.problems] == [
        "recommended, equal steps",
        "recommended, equal time",
    ]
    assert "recommended is worse" in found.verdict


def test_shorter_runs_and_changed_seeds_are_said(tmp_path):
    base = {**made.CONFIG, "steps": 40}
    made.experiment(tmp_path, minutes=2.0, planned_steps=2000, earlier_seeds=[5, 2], base=base)
    found = results.collect(tmp_path)
    assert "over 3 seeds, shortened from 2,000 to 40 steps to fit 2 minutes:" in found.verdict
    assert any(line.startswith("seeds: 5, later 2, later 3.") for line in found.warnings)


def test_time_that_was_not_equal_is_a_warning(tmp_path):
    """The runs of the fixture log 0.1 s per epoch of any method, so fewer steps take less time."""
    made.experiment(tmp_path)
    lines = results.collect(tmp_path).warnings
    assert ["recommended, equal time: the runs logged 0.50 ×" in line for line in lines] == [True]


def test_the_reference_model_is_a_part_of_the_cost(tmp_path):
    experiment = made.experiment(tmp_path)
    calibration = json.loads((tmp_path / "calibration.json").read_text())
    before = {row.arm: row for row in results.collect(tmp_path).rows if row.protocol == "time"}["recommended"]
    calibration["recommended"]["reference_seconds"] = 0.1
    write_json(experiment.folder / "calibration.json", calibration)
    row = {row.arm: row for row in results.collect(tmp_path).rows if row.protocol == "time"}["recommended"]
    assert row.seconds == pytest.approx(before.seconds + 0.1)
    assert row.by_the_log == pytest.approx(before.by_the_log + 0.1 / 0.4), "the baseline logs 4 epochs of 0.1 s"


def test_the_verdict_names_what_was_left_out(tmp_path):
    experiment = made.experiment(tmp_path)
    for seed in range(3):
        write_json(experiment.run("recommended", "time", seed) / "failed.json", {"error": "the loss is nan"})
        said = results.collect(tmp_path).verdict
        assert (f"{seed + 1} of recommended’s runs left out" if seed < 2 else "recommended has no finished run") in said
    for seed in range(3):
        shutil.rmtree(experiment.run("uniform", "time", seed))
    assert "uniform has no finished run" in results.collect(tmp_path).verdict


def test_commits_and_the_command_are_those_of_all_runs(tmp_path):
    experiment = made.experiment(tmp_path, command="smdl compare --seeds 3")
    found = results.collect(tmp_path).environment
    assert (found["commit"], found["command"]) == ("abc123-dirty", "smdl compare --seeds 3")
    path = experiment.run("uniform", "time", 0) / "summary.json"
    write_json(path, {"environment": {"commit": "def456"}})
    runs = len({run.folder for run in results.collect(tmp_path).runs})
    assert results.collect(tmp_path).environment["commit"] == f"def456 (1 runs), abc123-dirty ({runs - 1} runs)"


@pytest.mark.parametrize(
    "damage",
    [
        {"seconds": 5},
        {"seconds": {"training": None}},
        {"train_loss": "abc"},
        {"test_loss": float("inf")},
        {"test_error": None},
        {"steps": None},
    ],
)
def test_a_damaged_record_costs_its_run_and_no_other(tmp_path, damage):
    experiment = made.experiment(tmp_path)
    path = experiment.run("recommended", "time", 0) / "metrics.jsonl"
    records = read_lines(path)
    write_lines(path, [{**records[0], **damage}, *records[1:]])
    found = results.collect(tmp_path)
    assert [problem for problem in found.problems if "metrics.jsonl is damaged" in problem]
    assert sum(not run.problem for run in found.runs) == len(found.runs) - 1


def change_a_digit(path, before, after):
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))


def test_a_changed_digit_is_reported_and_not_believed(tmp_path):
    experiment = made.experiment(tmp_path)
    runs = [experiment.run("recommended", "time", seed) for seed in range(2)]
    for run in runs:
        summary = {"environment": {"threads": 2}, "metrics_sha256": digest(run / "metrics.jsonl")}
        write_json(run / "summary.json", summary, checksum=True)
    path = tmp_path / "calibration.json"
    write_json(path, json.loads(path.read_text()), checksum=True)
    assert results.collect(tmp_path).problems == []
    change_a_digit(runs[0] / "summary.json", '"threads": 2', '"threads": 3')
    change_a_digit(runs[1] / "metrics.jsonl", '"test_error": 0.', '"test_error": 0.0')
    assert [problem.partition(": ")[2] for problem in results.collect(tmp_path).problems] == [
        "not finished: summary.json is missing or damaged",
        "metrics.jsonl is damaged: it does not have the checksum that summary.json names",
    ]
    assert not runner.finished(runs[0]), "so the same command mends it"
    change_a_digit(path, '"seconds_per_step": 0.', '"seconds_per_step": 1.')
    with pytest.raises(FolderError, match=r"calibration\.json is damaged: run the same command again"):
        results.collect(tmp_path)


@pytest.mark.parametrize("environment", ["x", None])
def test_a_damaged_summary_is_a_run_not_finished(tmp_path, environment):
    experiment = made.experiment(tmp_path)
    folder = experiment.run("recommended", "time", 0)
    write_json(folder / "summary.json", {"environment": environment})
    assert any("not finished" in problem for problem in results.collect(tmp_path).problems)
    assert not runner.finished(folder), "so the same command mends it"
