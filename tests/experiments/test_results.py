"""Results are what the files of the runs say. Damaged files are reported and skipped."""

import shutil

import pytest

from smdl.experiments import results, runner
from smdl.experiments.plan import Plan
from smdl.experiments.records import Comparison
from tests.report import made
from tests.report.made import read_lines, write_json, write_lines

#: People read results.json with scripts of their own: no key may go.
KEYS = {
    "": ["title", "caption", "paper", "baseline", "against", "primary", "protocols", "equal", "arms", "seeds",
         "verdict", "rows", "tests", "calibration", "runs", "problems", "config", "overrides", "environment"],
    "rows": ["arm", "protocol", "seeds", "steps", "seconds", "seconds_per_step", "seconds_per_epoch", "by_the_log",
             "overhead", "forwards_per_step", "steps_to_baseline", "seconds_to_baseline", "reached_baseline",
             "final_accuracy", "mean_accuracy", "final_loss", "mean_loss", "final_train_accuracy",
             "mean_train_accuracy", "final_train_loss", "mean_train_loss", "class_balance"],
    "tests": ["arm", "against", "protocol", "failed", "empty", "difference", "half", "p", "p_holm"],
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
    assert found["tests"][0]["failed"] == {found["tests"][0]["arm"]: 0, "uniform": 0}


def test_the_verdict_says_no_difference_where_none_is_seen():
    plain = Plan("digits", {}, {"uniform": {}, "loss": {}})
    tests = [
        {"arm": "a", "protocol": "time", "difference": 0.2, "half": 0.5, "p": 0.4, "p_holm": 0.4},
        {"arm": "b", "protocol": "time", "difference": 1.2, "half": 0.5, "p": 0.001, "p_holm": 0.002},
        {"arm": "c", "protocol": "time", "difference": -3.0, "half": 0.9, "p": 0.001, "p_holm": 0.002},
        {"arm": "e", "protocol": "time", "difference": -3.0, "half": 2.9, "p": 0.03, "p_holm": 0.09},
        {"arm": "d", "protocol": "steps", "difference": 9.0, "half": 0.9, "p": 0.001, "p_holm": 0.002},
    ]
    tests = [Comparison(**test, against="uniform", failed={}, empty=[]) for test in tests]
    said = results.verdict(plain, tests, "time")
    assert "no difference seen for a (+0.20 ± 0.50 points)" in said
    assert "b is better by 1.20 ± 0.50 points" in said
    assert "c is worse by 3.00 ± 0.90 points" in said
    assert "not settled for e (-3.00 ± 2.90 points, p = 0.09 over all comparisons)" in said
    assert "9.0" not in said, "the primary endpoint is equal time"


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


@pytest.mark.parametrize("environment", ["x", None])
def test_a_damaged_summary_is_a_run_not_finished(tmp_path, environment):
    experiment = made.experiment(tmp_path)
    folder = experiment.run("recommended", "time", 0)
    write_json(folder / "summary.json", {"environment": environment})
    assert any("not finished" in problem for problem in results.collect(tmp_path).problems)
    assert not runner.finished(folder), "so the same command mends it"
