"""An experiment of long ago: it is still rendered, to the same numbers, and still known to be finished."""

import json
import shutil
from dataclasses import asdict, field, make_dataclass
from pathlib import Path

import numpy as np
import pytest
import yaml

from smdl.experiments import arms, experiment, folders, results, runner
from smdl.experiments.comparison_plan import read_plan
from smdl.report.rendering import render
from smdl.training.config import TrainConfig
from tests.report import made

FROZEN = Path(__file__).parent / "frozen"
EXPECTED = json.loads((FROZEN / "expected.json").read_text())
#: name -> (field of metrics.jsonl, an accuracy, mean over epochs)
MEASURES = {
    "final_accuracy": ("test_error", True, False),
    "mean_accuracy": ("test_error", True, True),
    "final_loss": ("test_loss", False, False),
    "mean_loss": ("test_loss", False, True),
    "final_train_accuracy": ("train_error", True, False),
    "mean_train_accuracy": ("train_error", True, True),
    "final_train_loss": ("train_loss", False, False),
    "mean_train_loss": ("train_loss", False, True),
    "class_balance": ("class_balance", False, True),
}


@pytest.fixture
def folder(tmp_path):
    """A copy, so that nothing is written into the repository."""
    return Path(shutil.copytree(FROZEN, tmp_path / "frozen"))


def logs_of(arm, protocol):
    """The lines of metrics.jsonl of each seed."""
    runs = yaml.safe_load((FROZEN / "plan.yaml").read_text())["runs"]
    mine = [run for run in runs if (run["arm"], run["protocol"]) == (arm, protocol)]
    return [made.read_lines(FROZEN / run["folder"] / "metrics.jsonl") for run in mine]


def values_of(arm, protocol, measure):
    """The measure of each seed."""
    name, accuracy, mean = MEASURES[measure]
    series = [np.array([record[name] for record in log]) for log in logs_of(arm, protocol)]
    series = [100 * (1 - each) if accuracy else each for each in series]
    return np.array([each.mean() if mean else each[-1] for each in series])


def test_the_expected_file_holds_what_numpy_makes_of_the_logs():
    for row in EXPECTED["rows"]:
        for measure in MEASURES:
            values = values_of(row["arm"], row["protocol"], measure)
            assert row[measure]["mean"] == pytest.approx(values.mean())
            assert row[measure]["half"] is None, "two seeds have no interval"
            assert row[measure]["count"] == 2
    for test in EXPECTED["tests"]:
        mine, rival = (values_of(arm, test["protocol"], "final_accuracy") for arm in (test["arm"], test["against"]))
        gaps = mine - rival  # of the same seeds
        assert test["difference"] == pytest.approx(gaps.mean())
        assert test["half"] is test["half_90"] is test["welch"]["half"] is None, "two seeds have no interval"
        assert test["p"] is test["p_holm"] is test["welch"]["p"] is None, "two seeds test nothing"
        assert (test["pairs"], test["verdict"]) == (2, "unclear")
        assert test["welch"]["difference"] == pytest.approx(gaps.mean())


def test_the_costs_of_the_expected_file_follow_from_the_calibration_by_hand():
    """2 ms per step for uniform and 3 ms for recommended: 12 steps of the one buy 8 of the other."""
    cost = {(row["arm"], row["protocol"]): row for row in EXPECTED["rows"]}
    assert [row["steps"] for row in EXPECTED["rows"]] == [12, 12, 12, 8]
    assert cost["recommended", "time"]["seconds"] == pytest.approx(0.024) == cost["uniform", "time"]["seconds"]
    assert cost["recommended", "steps"]["seconds"] == pytest.approx(0.036)
    assert cost["recommended", "steps"]["seconds_per_epoch"] == pytest.approx(0.012)
    assert cost["recommended", "steps"]["overhead"] == pytest.approx({"scoring": 0.35, "selection": 0.1, "total": 0.5})
    assert cost["recommended", "steps"]["forwards_per_step"] == 60
    for (arm, protocol), row in cost.items():
        spent = [
            np.mean(
                [sum(r["seconds"][part] for r in log for part in r["seconds"] if part != "evaluation") for log in logs]
            )
            for logs in (logs_of(arm, protocol), logs_of("uniform", protocol))
        ]
        assert row["by_the_log"] == pytest.approx(spent[0] / spent[1])
        goal = values_of("uniform", protocol, "final_accuracy").mean()
        hits = [
            next((r["steps"] for r in log if 100 * (1 - r["test_error"]) >= goal), None)
            for log in logs_of(arm, protocol)
        ]
        reached = sorted(step for step in hits if step is not None)
        assert row["reached_baseline"] == f"{len(reached)}/2"
        assert row["steps_to_baseline"] == (reached[0] if reached else None), "the lower median of two"


def same(found, expected, at=""):
    """Assert that two results are equal; numbers up to rounding."""
    if isinstance(expected, dict):
        assert list(found) == list(expected), at
        for name, value in expected.items():
            same(found[name], value, f"{at}/{name}")
    elif isinstance(expected, list):
        assert len(found) == len(expected), at
        for place, value in enumerate(expected):
            same(found[place], value, f"{at}/{place}")
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-9), at
    else:
        assert found == expected, at


def test_its_results_are_the_expected_ones(folder):
    results.write(folder, results.collect(folder))
    same(made.results_of(folder), EXPECTED)


@pytest.mark.slow
def test_it_renders(folder):
    render(folder)
    same(made.results_of(folder), EXPECTED)
    page = made.Page((folder / "report.html").read_text())
    assert made.same_numbers(page, EXPECTED) > 80
    verdict = (
        "At equal time, against uniform over 2 seeds: too few seeds to tell for recommended"
        " (-10.83 points; at least 3 seeds are needed)."
    )
    assert EXPECTED["verdict"] == verdict
    assert verdict in page.text
    assert "None: every run is finished and undamaged." in page.text


def later_config():
    """TrainConfig of a later version: with one more option, which has a default."""
    return make_dataclass("TrainConfig", [("a_new_option", int, field(default=3))], bases=(TrainConfig,))


def test_after_a_new_option_it_is_still_finished_and_nothing_is_trained_again(folder, monkeypatch):
    later = later_config()
    for module in (arms, folders, runner):
        monkeypatch.setattr(module, "TrainConfig", later)
    monkeypatch.setattr(runner, "train_one", lambda _, at: pytest.fail(f"{at} is trained again"))
    monkeypatch.setattr(experiment, "calibrate", lambda *_: pytest.fail("it is calibrated again"))
    plan = read_plan(folder)
    listed, plan.runs = plan.runs, []
    plan.base = asdict(later()) | plan.base  # as a command would give it
    done = experiment.run_plan(plan, folder, store=folder / "trained")
    assert done.folder == folder, "it is not another plan"
    assert read_plan(folder).runs == listed
    assert results.collect(folder).problems == []
