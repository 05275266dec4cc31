"""Controls: each arm gets its own learning rate with the same effort, and every schedule decays within its budget."""

import json

import pytest

from smdl.experiments import experiment as experiment_module
from smdl.experiments.arms import arm_config
from smdl.experiments.comparison_plan import read_plan
from smdl.experiments.experiment import Experiment, run_plan
from smdl.experiments.regimes import comparison
from smdl.experiments.results import collect
from smdl.experiments.runner import run_name
from smdl.experiments.tuning import TUNING_SEED, best_rate, rate_configs
from smdl.report.text_tables import tuned_rates
from smdl.training.config import to_dict
from tests.experiments.base import BASE
from tests.experiments.test_regimes import calibrated


def plan(methods=("uniform", "balanced"), **changes):
    return comparison("digits", to_dict(BASE), methods, [], **{"seeds": 2, "protocols": ["time"], **changes})


def finish(store, config, error):
    """Write the files of a run with this validation error; None: it diverged."""
    folder = store / run_name(config)
    folder.mkdir(parents=True)
    if error is None:
        (folder / "failed.json").write_text('{"error": "the loss is nan"}')
        return
    common = {"test_error": 0.5, "test_loss": 1.0, "train_error": 0.5, "train_loss": 1.0, "class_balance": 1.0}
    record = {"epoch": 0, "steps": config.steps, **common, "validation_error": error, "validation_loss": 1.0}
    (folder / "metrics.jsonl").write_text(json.dumps(record) + "\n")
    (folder / "summary.json").write_text('{"environment": {}}')


def test_every_arm_tries_the_same_rates_on_a_held_out_split_with_a_seed_of_its_own():
    made = {arm: rate_configs(plan(), arm, 7) for arm in ("uniform", "balanced")}
    for arm, configs in made.items():
        assert sorted(config.optimizer.lr for config in configs) == [0.05, 0.1, 0.2]
        assert {(config.method, config.steps, config.seed, config.data.validation) for config in configs} == {
            (arm, 7, TUNING_SEED, 0.1)
        }
    own = comparison("d", {**to_dict(BASE), "data": {**to_dict(BASE.data), "validation": 0.3}}, ["uniform", "loss"], [])
    assert rate_configs(own, "uniform", 7)[0].data.validation == 0.3


@pytest.mark.parametrize(
    ("errors", "best"),
    [
        ((0.3, 0.2, 0.1), 0.2),
        ((0.3, 0.1, 0.2), 0.05),
        ((0.2, 0.2, 0.2), 0.1),
        ((0.4, None, None), 0.1),
        ((None, 0.9, None), 0.05),
        ((None, None, None), 0.1),
    ],
)
def test_the_highest_validation_accuracy_wins_and_a_tie_goes_to_the_usual_rate(tmp_path, errors, best):
    configs = rate_configs(plan(), "uniform", 7)  # 0.1, 0.05, 0.2
    for config, error in zip(configs, errors, strict=True):
        finish(tmp_path, config, error)
    found = best_rate(tmp_path, configs)
    assert found["rate"] == best
    assert [rate for rate, _ in found["validation_accuracy"]] == [0.05, 0.1, 0.2]
    assert found["validation_accuracy"][1][1] == (None if errors[0] is None else pytest.approx(100 * (1 - errors[0])))


def test_the_runs_of_an_arm_have_its_rate_and_a_resumed_experiment_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_module, "calibrate", calibrated)
    trained = []

    def train(jobs, *_):
        for folder, job in jobs.items():
            config = job.args[0]
            trained.append((config["method"], config["seed"], config["optimizer"]["lr"], config["data"]["validation"]))
            if config["seed"] == TUNING_SEED and not folder.exists():
                wanted = {"uniform": 0.2, "balanced": 0.05}[config["method"]]
                finish(folder.parent, _config(config), 0.1 if config["optimizer"]["lr"] == wanted else 0.4)

    monkeypatch.setattr(experiment_module, "run_all", train)
    for _ in range(2):
        run_plan(plan(tune_learning_rate=True), tmp_path / "e")
    assert not (tmp_path / "e-2").exists()
    kept = read_plan(tmp_path / "e")
    assert {arm: tuned["rate"] for arm, tuned in kept.learning_rates.items()} == {"uniform": 0.2, "balanced": 0.05}
    main = [run for run in trained if run[1] != TUNING_SEED]
    assert set(main) == {("uniform", s, 0.2, 0.0) for s in (0, 1)} | {("balanced", s, 0.05, 0.0) for s in (0, 1)}
    assert len([run for run in trained if run[1] == TUNING_SEED]) == 2 * 6
    assert "uniform 0.2, balanced 0.05." in tuned_rates(collect(tmp_path / "e"))
    assert run_plan(plan(), tmp_path / "e").folder == tmp_path / "e-2", "without tuning it is another experiment"


def _config(values):
    from smdl.training.config import TrainConfig, from_dict

    return from_dict(TrainConfig, values)


def test_the_minutes_pay_for_tuning_too(tmp_path):
    seeds = {}
    for tuned in (False, True):
        experiment = Experiment(tmp_path, plan(tune_learning_rate=tuned, minutes=1.0))
        experiment.calibration = calibrated({arm: arm_config(experiment.plan, arm) for arm in experiment.plan.arms})
        experiment.fit_into(10 * experiment._seconds_per_seed() + 1e-6, jobs=1)
        seeds[tuned] = experiment.plan.seeds
    assert seeds == {False: 10, True: 7}, "three rates cost as much as three seeds"


def test_every_schedule_decays_within_the_steps_of_its_own_budget(tmp_path, monkeypatch):
    """The baseline's too: a run of 8 steps ends at 1/8 of the rate, one of 4 steps at 1/4."""
    monkeypatch.setattr(experiment_module, "calibrate", calibrated)
    base = {**to_dict(BASE), "schedule": {**to_dict(BASE.schedule), "name": "linear"}}
    methods = ["uniform", "balanced", "uniform@0.5"]
    folder = run_plan(comparison("digits", base, methods, [], seeds=1, protocols=["time"]), tmp_path / "e").folder
    found = {run.arm: run for run in collect(folder).runs}
    assert {arm: run.steps for arm, run in found.items()} == {"uniform": 8, "balanced": 8, "uniform@0.5": 4}
    for run in found.values():
        assert run.steps is not None
        assert run.epochs[-1]["lr"] == pytest.approx(0.1 / run.steps)
