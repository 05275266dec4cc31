"""Methods in several regimes: each is timed, tested and answered for against the baseline of its own regime."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smdl.experiments import experiment as experiment_module
from smdl.experiments.comparison_plan import read_plan, write_plan
from smdl.experiments.experiment import Experiment, arm_config, run_plan
from smdl.experiments.regimes import REGIMES, arm_name, comparison, data_options, method_and_share, method_options
from smdl.experiments.results import collect
from smdl.experiments.runner import run_name
from smdl.experiments.statistics import holm
from smdl.report.rendering import render
from smdl.report.summaries import mark, matrix
from smdl.report.text_tables import markdown
from smdl.training.config import TrainConfig, to_dict
from smdl.training.datasets.load import load
from tests.experiments.base import BASE

METHODS, CHOSEN = ["uniform", "balanced", "balanced@0.5"], ["clean", "hidden-tail"]
#: Seconds per step of each arm: the second regime is slower.
SECONDS = {"uniform, clean": 0.01, "uniform, hidden-tail": 0.02, "balanced, clean": 0.02}


def plan(**changes):
    return comparison("digits", to_dict(BASE), METHODS, CHOSEN, **{"seeds": 3, **changes})


def calibrated(configs, *_):
    found = {}
    for name, config in configs.items():
        splits = load(config.data)
        found[name] = {
            "seconds_per_step": SECONDS.get(name, 0.02),
            "parts": {"data": 0.001, "scoring": 0.0, "selection": 0.001, "training": 0.008},
            "forwards_per_step": 0.0,
            "steps_per_epoch": 4,
            "samples": len(splits.train),  # type: ignore[arg-type]
            "test_samples": len(splits.test),  # type: ignore[arg-type]
            "classes": len(splits.classes),
            "largest_class": 1 / len(splits.classes),
        }
    return found


def test_every_regime_can_be_loaded():
    for regime in (name for name in REGIMES if name != "human"):  # labels of CIFAR-10 only
        only = comparison("digits", to_dict(replace(BASE, data=TrainConfig().data)), METHODS[:2], [regime])
        assert len(load(arm_config(only, arm_name("uniform", regime)).data).train) > 0  # type: ignore[arg-type]


def test_each_arm_is_tested_against_the_baseline_of_its_regime():
    found = plan()
    assert list(found.arms)[:3] == ["uniform, clean", "balanced, clean", "balanced@0.5, clean"]
    assert found.rivals["balanced, hidden-tail"] == found.rivals["balanced@0.5, hidden-tail"] == "uniform, hidden-tail"
    assert found.arms["balanced@0.5, hidden-tail"] == {"method": "balanced", "data": data_options("hidden-tail")}
    assert found.shares == {"balanced@0.5, clean": 0.5, "balanced@0.5, hidden-tail": 0.5}


def test_a_regime_takes_another_strength():
    found = comparison("digits", to_dict(BASE), METHODS[:2], ["long-tail=50", "tiny=200"])
    assert found.arms["uniform, long-tail=50"]["data"] == {**data_options("clean"), "imbalance": 50.0}
    assert found.arms["uniform, tiny=200"]["data"]["train_size"] == 200
    for wrong, message in (
        ("long-tail=strong", "must be a number: the data.imbalance"),
        ("tiny=0.5", "must be a whole number: the data.train_size"),
        ("clean=2", "clean has no strength"),
        ("longtail=50", "did you mean 'long-tail'"),
    ):
        with pytest.raises(ValueError, match=message):
            data_options(wrong)


def test_without_regimes_an_arm_is_a_method():
    found = comparison("digits", to_dict(BASE), ["balanced", "uniform@0.5"], [])
    assert found.arms == {"balanced": {"method": "balanced"}, "uniform@0.5": {"method": "uniform"}}
    assert found.baseline == "balanced"
    assert found.rivals == {"uniform@0.5": "balanced"}
    assert not found.against


def test_equal_time_is_the_time_of_the_own_baseline_times_the_share(tmp_path):
    experiment = Experiment(tmp_path, plan())
    experiment.calibration = calibrated({arm: arm_config(experiment.plan, arm) for arm in experiment.plan.arms})
    steps = {arm: experiment.steps_of(arm, "time") for arm in experiment.plan.arms}
    assert steps == {
        "uniform, clean": 8,
        "balanced, clean": 4,
        "balanced@0.5, clean": 2,
        "uniform, hidden-tail": 8,
        "balanced, hidden-tail": 8,
        "balanced@0.5, hidden-tail": 4,
    }


@pytest.mark.parametrize("method", ["uniform@", "uniform@0", "uniform@1.5", "uniform@x", "uniform@-1", "uniform@nan"])
def test_a_share_that_is_none_is_refused(method):
    with pytest.raises(ValueError, match=r"the part after @ in .* must be a share of the baseline's time in \(0, 1\]"):
        method_and_share(method)


def test_a_method_takes_options_in_brackets():
    name, share = method_and_share("loss[pressure=1e+3; mode=fast;recompute=true]+refit@0.7")
    options = {"pressure": 1000.0, "mode": "fast", "recompute": True}
    assert method_options(name) == {"method": "loss", "options": options, "refit": "classes"}
    assert share == 0.7
    made = comparison("digits", to_dict(BASE), ["uniform", "recommended[test_set=balanced]"], ["clean"])
    config = arm_config(made, "recommended[test_set=balanced], clean")
    assert (config.method, config.options) == ("recommended", {"test_set": "balanced"})
    assert run_name(config) == run_name(replace(config, options={"test_set": "balanced"}, method=None))


ENDS = ("[", "[a=4", "[]", "[a]", "[=4]", "+refit[a=1]")


@pytest.mark.parametrize("method", ["", "]", *(f"loss{end}" for end in ENDS)])
def test_options_that_are_none_are_refused(method):
    with pytest.raises(ValueError, match="option=value"):
        method_options(method)


def test_a_baseline_with_a_share_or_a_single_method_is_refused():
    with pytest.raises(ValueError, match=r"the baseline balanced@0.5 has all of its own time"):
        comparison("digits", to_dict(BASE), ["balanced@0.5", "loss"], [])
    with pytest.raises(ValueError, match="a comparison needs two methods or more, got uniform"):
        comparison("digits", to_dict(BASE), ["uniform"], ["clean"])


def test_clean_is_clean_whatever_the_base_does_to_the_data():
    base = replace(BASE, data=replace(BASE.data, imbalance=5.0, label_noise=0.1))
    config = arm_config(comparison("digits", to_dict(base), METHODS, ["clean"]), "uniform, clean")
    assert (config.data.imbalance, config.data.label_noise) == (1.0, 0.0)


@pytest.mark.parametrize(
    "regime", ["long-tail=1", "hidden-tail=1.0", "duplicates=0", "zipf=0", "noisy=0", "dominoes=0", "noisy+long-tail=1"]
)
def test_a_strength_that_changes_nothing_is_refused(regime):
    with pytest.raises(ValueError, match=r"hides nothing: use clean, or another strength, such as [a-z-]+$"):
        comparison("digits", to_dict(BASE), METHODS, [regime])


def test_an_unknown_regime_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown regime 'long_tail'; did you mean 'long-tail'"):
        comparison("digits", to_dict(BASE), METHODS, ["clean", "long_tail"])


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("regimes") / "e"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment_module, "calibrate", calibrated)
        return run_plan(plan(protocols=["time"]), folder).folder


def test_the_answer_has_a_line_per_regime(trained):
    found = collect(trained)
    assert [line.partition(":")[0] for line in found.answer.splitlines()] == ["Clean", "Hidden-tail"]
    assert "uniform, " not in found.answer


def test_one_correction_covers_the_whole_matrix(trained):
    tests = collect(trained).tests
    assert len(tests) == 4
    corrected = [test.p_holm for test in tests]
    assert None not in corrected
    assert corrected == holm([test.p for test in tests])
    alone = [p for pair in (tests[:2], tests[2:]) for p in holm([test.p for test in pair])]
    assert corrected != alone, "not a correction per regime"


def test_the_rare_groups_of_a_tail_are_tested_with_a_correction_of_their_own(trained):
    found = collect(trained)
    names = {arm: [test.measure for test in found.secondary if test.arm == arm] for arm in found.arms}
    assert names["balanced, hidden-tail"] == ["rare_accuracy", "worst_accuracy"], "the primary endpoint is balanced"
    assert names["balanced, clean"] == ["balanced_accuracy", "worst_accuracy"], "no group is rare"
    assert [test.p_holm for test in found.secondary] == holm([test.p for test in found.secondary])
    finals = {
        arm: [100 * (1 - run.epochs[-1]["test_rare_error"]) for run in found.finished(arm, "time")]
        for arm in ("balanced, hidden-tail", "uniform, hidden-tail")
    }
    (test,) = [
        test for test in found.secondary if (test.arm, test.measure) == ("balanced, hidden-tail", "rare_accuracy")
    ]
    assert test.difference == pytest.approx(
        np.mean(np.subtract(finals["balanced, hidden-tail"], finals["uniform, hidden-tail"]))
    )
    assert "rare groups, %" in markdown(found)
    assert "difference of the rare groups" in markdown(found)


def test_the_matrix_shows_accuracy_of_the_baseline_and_differences_of_the_others(trained):
    found = collect(trained)
    headings, rows = matrix(found, "time")
    assert headings == ["equal time", *CHOSEN]
    assert [row[0] for row in rows] == METHODS
    finals = {row.arm: row.final_accuracy.mean for row in found.rows}
    gaps = {test.arm: test for test in found.tests}
    for row in rows:
        for regime, cell in zip(CHOSEN, row[1:], strict=True):
            arm = arm_name(row[0], regime)
            if row[0] == "uniform":
                assert cell.startswith(f"{finals[arm]:.1f} ")
            else:
                assert cell.startswith(f"{gaps[arm].difference:+.1f}".replace("-", "−"))
                assert cell.endswith(mark(gaps[arm]))
    assert f"| {' | '.join(rows[1])} |" in markdown(found)


def test_chance_level_is_that_of_the_regime(trained):
    """Five merged classes have a chance level of 20 %, ten of 10 %."""
    problems = " ".join(collect(trained).problems)
    for line in collect(trained).problems:
        assert ("(20.00 %)" in line) == ("hidden-tail" in line)
    assert problems == "" or "chance level" in problems


@pytest.mark.slow
def test_the_page_shows_the_matrix(trained):
    page = render(trained).read_text()
    assert page.count('class="said"') == 2
    for method in METHODS:
        assert f"<td>{method}</td>" in page
    assert "<summary>Accuracy by groups</summary>" in page


def test_a_plan_of_regimes_is_read_back_as_it_was_written(tmp_path):
    write_plan(tmp_path, plan())
    assert read_plan(tmp_path) == plan()


def test_the_seconds_of_a_refit_count():
    found = comparison("digits", to_dict(BASE), ["uniform", "balanced+refit"], [], seeds=3)
    assert found.arms["balanced+refit"] == {"method": "balanced", "refit": "classes"}
    experiment = Experiment(Path("nowhere"), found)
    experiment.calibration = {
        "uniform": {"seconds_per_step": 0.01, "steps_per_epoch": 4},
        "balanced+refit": {"seconds_per_step": 0.01, "steps_per_epoch": 4, "refit_seconds": 0.035},
    }
    assert experiment.steps_of("uniform", "time") == 8
    assert experiment.steps_of("balanced+refit", "time") == 4, "four steps and the refit take as long"
    assert experiment.steps_of("balanced+refit", "steps") == 8
    with pytest.raises(ValueError, match="must be refit"):
        method_options("uniform+again")
