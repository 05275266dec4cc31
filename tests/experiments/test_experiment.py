"""A comparison is planned, calibrated, trained once, and after any interruption resumed to the same accuracies."""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import field, make_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import yaml

from smdl.cli.commands import main
from smdl.common.progress import ArmProgress, Display
from smdl.common.storage import BusyError, locked, read_json
from smdl.experiments import calibration, results, runner
from smdl.experiments import experiment as experiment_module
from smdl.experiments.arms import overrides_of, with_overrides
from smdl.experiments.comparison_plan import ComparisonPlan, FolderError, read_plan
from smdl.experiments.experiment import (
    JOB_GAIN,
    LOOKS,
    MOST_SEEDS,
    STARTING,
    BudgetError,
    Experiment,
    arm_config,
    run_plan,
)
from smdl.experiments.regimes import comparison
from smdl.experiments.runner import run_name
from smdl.paper import published
from smdl.paper.ablation import SWEEPS, ablate, best_weights, plan_of
from smdl.paper.reproduction import ITEMS, ablation_setting, reproduce
from smdl.paper.sweeps import ABOUT, PAPER_ITEMS
from smdl.report import paper_figures
from smdl.training.config import DataConfig, ScheduleConfig, to_dict
from smdl.training.loop import DivergedError, Interrupted
from tests.experiments.base import BASE
from tests.report import made
from tests.report.made import read_lines, write_json
from tests.training.datasets import made as datasets

NAMES = ("uniform", "loss", "recommended")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def quick(monkeypatch):
    """A calibration that takes no time: uniform 10 ms per step, loss 11, all else 20."""
    times = {"uniform": 0.010, "loss": 0.011}

    def calibrate(configs, *_):
        return {
            name: {
                "seconds_per_step": times.get(name, 0.020),
                "parts": {"data": 0.001, "scoring": 0.008, "selection": 0.001, "training": 0.010},
                "forwards_per_step": 60.0,
                "evaluation_seconds": 0.0,
                "setup_seconds": 0.0,
                "steps_per_epoch": 4,
                "samples": 80,
                "threads": 1,
            }
            for name in configs
        }

    monkeypatch.setattr(experiment_module, "calibrate", calibrate)


def plan(**changes):
    return ComparisonPlan(
        "digits", to_dict(BASE), {name: overrides_of(name) for name in NAMES}, **{"seeds": 2, **changes}
    )


def accuracies(found):
    return {(run.arm, run.protocol, run.seed): run.epochs[-1]["test_error"] for run in found.runs}


def folders_of(experiment, arm, protocol):
    """The folders of an arm's runs, as the plan in the folder lists them."""
    runs = read_plan(experiment.folder).runs
    return [experiment.folder / run.folder for run in runs if (run.arm, run.protocol) == (arm, protocol)]


@pytest.mark.usefixtures("quick")
def test_equal_time_is_equal_by_the_log(tmp_path):
    """steps × seconds per step agree to within one step, the log shows that many steps, and the schedule ends there."""
    base = replace(BASE, schedule=ScheduleConfig("linear"))
    experiment = run_plan(replace(plan(), base=to_dict(base)), tmp_path / "e")
    found = results.collect(experiment.folder)
    budget = 8 * 0.010
    steps = {"uniform": 8, "loss": 7, "recommended": 4}
    for row in found.rows:
        assert row.steps == {"steps": 8, "time": steps[row.arm]}[row.protocol]
        if row.protocol == "time":
            assert row.seconds_per_step is not None
            assert 0 <= budget - (row.seconds or 0) < row.seconds_per_step
    for run in found.runs:
        assert run.epochs[-1]["steps"] == run.steps
        assert run.epochs[-1]["lr"] * (run.steps or 0) == pytest.approx(BASE.optimizer.lr), "one step before zero"


@pytest.mark.usefixtures("quick")
def test_the_baseline_is_trained_once_for_both_protocols(tmp_path):
    experiment = run_plan(plan(), tmp_path / "e")
    assert len(list(experiment.store.iterdir())) == 2 * (1 + 2 + 2)


@pytest.mark.usefixtures("quick")
def test_finished_runs_are_kept_and_the_same_command_resumes(tmp_path, monkeypatch):
    whole = results.collect(run_plan(plan(), tmp_path / "whole").folder)
    trained = []
    real = runner.train_one

    def stops_after_three(values, folder):
        if len(trained) == 3:
            raise Interrupted(signal.SIGINT, "again")
        trained.append(folder)
        real(values, folder)

    monkeypatch.setattr(runner, "train_one", stops_after_three)
    with pytest.raises(Interrupted):
        run_plan(plan(), tmp_path / "parts")
    again = []
    monkeypatch.setattr(runner, "train_one", lambda values, folder: (again.append(folder), real(values, folder)))
    parts = results.collect(run_plan(plan(), tmp_path / "parts").folder)
    assert not set(trained) & set(again)
    assert accuracies(parts) == accuracies(whole)
    assert not (tmp_path / "parts-2").exists()


def test_a_comparison_may_leave_out_the_seeds_of_a_pilot(tmp_path):
    folder = run_plan(plan(seeds=2, first_seed=3, protocols=["steps"], timed=False), tmp_path / "e").folder
    assert {run.seed for run in results.collect(folder).runs} == {3, 4}
    with pytest.raises(ValueError, match="first_seed must be a whole number ≥ 0, got -1"):
        plan(first_seed=-1)


@pytest.mark.usefixtures("quick")
def test_another_plan_gets_a_folder_of_its_own(tmp_path):
    first = run_plan(plan(seeds=1, protocols=["steps"]), tmp_path / "e").folder
    other = replace(plan(seeds=1, protocols=["steps"]), base=to_dict(replace(BASE, batch_size=10)))
    second = run_plan(other, tmp_path / "e").folder
    assert (first.name, second.name) == ("e", "e-2")


@pytest.mark.usefixtures("quick")
def test_more_arms_extend_the_folder_and_keep_its_runs(tmp_path, monkeypatch):
    few = replace(plan(), arms={name: overrides_of(name) for name in NAMES[:2]})
    first = run_plan(few, tmp_path / "e")
    before = set(first.store.iterdir())
    slower = {"uniform": 0.020, "recommended": 0.060}  # a machine of half the speed
    monkeypatch.setattr(
        experiment_module,
        "calibrate",
        lambda configs, *_: {
            name: {**first.calibration["loss"], "seconds_per_step": slower.get(name, 0.022)} for name in configs
        },
    )
    trained = []
    real = runner.train_one
    monkeypatch.setattr(runner, "train_one", lambda values, folder: (trained.append(folder), real(values, folder)))
    second = run_plan(plan(), tmp_path / "e")
    assert second.folder == first.folder
    assert {arm: cost["seconds_per_step"] for arm, cost in second.calibration.items()} == pytest.approx(
        {"uniform": 0.010, "loss": 0.011, "recommended": 0.030}
    )
    assert {folder.name for folder in map(Path, trained)} == {
        folder.name for folder in set(second.store.iterdir()) - before
    }
    assert {row.arm for row in results.collect(second.folder).rows} == set(NAMES)
    assert run_plan(few, tmp_path / "e").folder.name == "e-2", "fewer arms are another comparison"
    assert run_plan(few, tmp_path / "e").folder.name == "e-2"
    assert run_plan(plan(), tmp_path / "e").folder.name == "e", "the same arms come before a part of them"


@pytest.mark.usefixtures("quick")
def test_minutes_become_seeds_and_if_need_be_fewer_steps(tmp_path):
    experiment = Experiment(tmp_path, plan())
    experiment.calibrate()
    seed = experiment._seconds_per_seed()
    assert seed == pytest.approx(8 * 0.010 + (8 + 7) * 0.011 + (8 + 4) * 0.020)
    experiment.fit_into(7.5 * seed, jobs=1)
    assert (experiment.plan.seeds, experiment.plan.base["steps"]) == (7, None)
    experiment.fit_into(4 * seed, jobs=2)
    assert experiment.plan.seeds == 4 * (1 + JOB_GAIN)
    experiment.fit_into(100 * seed, jobs=1)
    assert experiment.plan.seeds == MOST_SEEDS
    assert experiment.plan.planned_steps is None
    experiment.fit_into(1.9 * seed, jobs=1)
    assert (experiment.plan.seeds, experiment.plan.base["steps"], experiment.plan.planned_steps) == (3, 5, 8)


@pytest.mark.usefixtures("quick")
def test_minutes_that_buy_too_little_are_refused_with_the_minutes_that_would_do(tmp_path, monkeypatch):
    """40 epochs of 4 steps: a fifth, 32 steps, is the least. At less, every arm would be at chance."""
    monkeypatch.setattr(experiment_module, "run_all", lambda *_: None)
    long = to_dict(replace(BASE, epochs=40))
    with pytest.raises(BudgetError, match="one epoch, and a fifth of the planned 160") as refusal:
        run_plan(replace(plan(minutes=0.1), base=long), tmp_path / "e")
    assert "--minutes 0.1 is too short: it buys 3 seeds of 0 steps, and a comparison needs 3 seeds of 32 steps" in str(
        refusal.value
    )
    assert not (tmp_path / "e").exists(), "nothing is left behind"
    enough = float(str(refusal.value).partition("Use --minutes ")[2].partition(",")[0])
    assert enough * 60 > STARTING
    kept = run_plan(replace(plan(minutes=enough), base=long), tmp_path / "e").plan
    assert kept.base["steps"] >= 32
    assert kept.planned_steps == 160
    assert run_plan(replace(plan(minutes=enough), base=long), tmp_path / "e").plan.planned_steps == 160, "resumed"


@pytest.mark.usefixtures("quick")
def test_one_epoch_of_the_baseline_is_the_least(tmp_path):
    experiment = Experiment(tmp_path, plan(minutes=1.0))
    experiment.calibrate()
    seed = experiment._seconds_per_seed()
    with pytest.raises(BudgetError, match="3 seeds of 4 steps"):
        experiment.fit_into(1.2 * seed, jobs=1)


@pytest.mark.usefixtures("quick")
def test_explicit_steps_are_kept_and_only_the_seeds_become_fewer(tmp_path):
    experiment = Experiment(tmp_path, plan(minutes=1.0, keep_steps=True))
    experiment.calibrate()
    seed = experiment._seconds_per_seed()
    experiment.fit_into(4.5 * seed, jobs=1)
    assert (experiment.plan.seeds, experiment.plan.base["steps"], experiment.plan.planned_steps) == (4, None, None)
    with pytest.raises(BudgetError, match=r"3 seeds of 8 steps \(as planned\)"):
        experiment.fit_into(2.9 * seed, jobs=1)


@pytest.mark.parametrize(("given", "keeps"), [("", False), ("--epochs 3", True), ("--steps=9", True)])
def test_epochs_and_steps_of_the_command_line_are_obeyed(tmp_path, monkeypatch, given, keeps):
    asked = []

    def stop(plan, *_, **__):
        asked.append(plan)
        raise ValueError("enough")

    monkeypatch.setattr(experiment_module, "run_plan", stop)
    command = f"compare --config digits --minutes 3 {given} --quiet --out {tmp_path / 'e'}"
    assert main(command.split()) == 2
    assert asked[0].keep_steps is keeps


def test_a_calibration_takes_a_fifth_of_a_budget(monkeypatch):
    monkeypatch.setattr("smdl.experiments.calibration.ArmSide", SlowSide)
    monkeypatch.setattr("smdl.experiments.calibration.time", SlowSide)
    configs = {"uniform": BASE, "loss": BASE}
    for budget, rounds in ((None, 15), (1.0, 1), (100.0, 11), (10_000.0, 15)):
        SlowSide.now = 0.0
        found = calibration.calibrate(configs, Display(), budget)
        assert len(found["uniform"]["ratios"]) == rounds, budget
        assert found["uniform"]["wall_factor"] == pytest.approx(2.0)


def test_arms_that_are_timed_later_get_the_speed_of_the_first_calibration():
    """Then a step took 2 s, and 4 s of wall-clock time; now it takes 1 s on a machine without other work."""
    kept = {"seconds_per_step": 2.0, "wall_factor": 2.0}
    cost = {"parts": {"training": 1.0}, "evaluation_seconds": 3.0, "wall_factor": 1.0}
    found = {"uniform": {**cost, "seconds_per_step": 1.0}, "loss": {**cost, "seconds_per_step": 1.5}}
    assert calibration.at_speed_of(kept, found)["loss"] == {
        "seconds_per_step": 3.0,
        "parts": {"training": 2.0},
        "evaluation_seconds": 6.0,
        "wall_factor": 2.0,
    }


class SlowSide:
    """A side whose turns take a second, and the clock that it moves. A step waits as long as it works."""

    now, steps, loader = 0.0, 1, SimpleNamespace(candidates=None)

    def __init__(self, *_):
        pass

    def epoch_seconds(self):
        return 0.0

    def facts(self):
        return {}

    def turn(self):
        SlowSide.now += 1.0
        return {"training": 0.5, "selection": 0.0, "forwards": 0.0}

    @staticmethod
    def perf_counter():
        return SlowSide.now


class Notes(Display):
    """Keeps what is said."""

    def __init__(self):
        self.lines = []

    def note(self, text):
        self.lines.append(text)


@pytest.mark.usefixtures("quick")
def test_what_fits_is_said_before_the_runs(tmp_path, monkeypatch):
    notes, shortened = Notes(), Notes()
    monkeypatch.setattr(experiment_module, "run_all", lambda *_: notes.note("runs"))
    run_plan(plan(seeds=4), tmp_path / "e", display=notes)
    assert notes.lines == ["3 arms × 4 seeds × 8 steps, at equal steps and equal time: about 1 minute", "runs"]
    monkeypatch.setattr(experiment_module, "STARTING", 0.0)
    run_plan(replace(plan(minutes=0.3), base=to_dict(replace(BASE, epochs=60))), tmp_path / "f", display=shortened)
    assert "shortened from 240 steps to fit 0.3 minutes" in shortened.lines[0]


def test_a_damaged_calibration_is_named_and_measured_again(tmp_path):
    untimed, notes = replace(plan(), timed=False, protocols=["steps"]), Notes()
    measured = Experiment(tmp_path, untimed, display=notes).calibrate()
    path = tmp_path / "calibration.json"
    path.write_text(path.read_text().replace('"samples": 80', '"samples": 90'))
    assert Experiment(tmp_path, untimed, display=notes).calibrate() == measured
    assert notes.lines == [f"{path} is damaged or incomplete: it is measured again"]
    assert read_json(path) == measured


def test_the_reference_model_is_paid_from_the_time_of_its_method(tmp_path):
    experiment = Experiment(tmp_path, plan())
    cost = {"steps_per_epoch": 4, "evaluation_seconds": 0.0}
    experiment.calibration = {
        "uniform": {**cost, "seconds_per_step": 1.0},
        "loss": {**cost, "seconds_per_step": 1.0, "reference_seconds": None},
        "recommended": {**cost, "seconds_per_step": 1.0, "reference_seconds": 3.5},
    }
    assert [experiment.steps_of(arm, "time") for arm in NAMES] == [8, 8, 4]
    assert experiment.steps_of("recommended", "steps") == 8
    assert experiment._seconds_per_seed() == 8 + 8 + 8 + 4 + 3.5
    for found in experiment.calibration.values():  # half of the wall-clock time goes to other processes
        found["wall_factor"] = 2.0
    assert [experiment.steps_of(arm, "time") for arm in NAMES] == [8, 8, 4]
    assert experiment._seconds_per_seed() == 2 * (8 + 8 + 8 + 4 + 3.5)


@pytest.mark.slow
def test_a_calibration_knows_what_the_reference_model_cost_although_it_is_cached(tmp_path, monkeypatch):
    monkeypatch.setattr("smdl.experiments.calibration.ROUNDS", 1)
    arms = {name: overrides_of(name) for name in ("uniform", "paper")}
    plans = ComparisonPlan("digits", to_dict(BASE), arms, seeds=1)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, again = (Experiment(tmp_path / name, plans).calibrate() for name in "ab")
    assert first["uniform"]["reference_seconds"] is None
    assert first["paper"]["reference_seconds"] > 0
    assert again["paper"]["reference_seconds"] == first["paper"]["reference_seconds"]


def test_a_calibration_holds_the_facts_of_the_data():
    found = calibration.lengths({"uniform": BASE, "large": replace(BASE, batch_size=80)}, Display())
    assert found["uniform"]["samples"] == 80
    assert found["uniform"]["test_samples"] == 60
    assert found["uniform"]["classes"] == 10
    assert found["uniform"]["largest_class"] == pytest.approx(0.1, abs=0.02)
    assert 0.7 < found["uniform"]["random_balance"] < found["large"]["random_balance"] <= 1


@pytest.mark.usefixtures("quick")
def test_a_comparison_shows_how_far_each_arm_is(tmp_path):
    class Shown(Display):
        tables: ClassVar[list[list[ArmProgress]]] = []
        phases: ClassVar[list[str]] = []

        def arms(self, arms):
            self.tables.append(arms)

        def phase(self, what):
            self.phases.append(what)

    arms = {**{name: overrides_of(name) for name in ("uniform", "loss")}}
    arms["wild"] = {**arms["uniform"], "optimizer": {"lr": 1e38}}
    run_plan(ComparisonPlan("digits", to_dict(BASE), arms, seeds=2), tmp_path / "e", display=Shown())
    tables = Shown.tables
    assert Shown.phases == ["training"]
    assert [(each.done, each.seeds, each.score) for each in tables[0]] == [(0, 2, "-")] * 3
    assert tables[0][1].seconds_left == pytest.approx(2 * (8 + 7) * 0.011)
    assert [each.done for each in tables[-1]] == [2, 2, 2]
    assert {each.seconds_left for each in tables[-1]} == {0}
    rows = {row.arm: row for row in results.collect(tmp_path / "e").rows if row.protocol == "time"}
    assert tables[-1][1].score == f"{rows['loss'].final_accuracy.mean:.2f} %"
    assert tables[-1][2].score == "-", "it diverged"


def test_a_calibration_names_its_phases(monkeypatch):
    class Shown(Display):
        phases: ClassVar[list[str]] = []

        def phase(self, what):
            self.phases.append(what)

    monkeypatch.setattr("smdl.experiments.calibration.ROUNDS", 1)
    calibration.calibrate({"uniform": BASE}, Shown())
    assert Shown.phases == ["loading", "compiling kernels", "calibrating"]


@pytest.mark.usefixtures("quick")
def test_seeds_are_added_look_by_look_until_every_verdict_is_clear(tmp_path, monkeypatch):
    asked, listed = [], []

    def train_nothing(jobs, *_):
        asked.append(max(job.args[0]["seed"] for job in jobs.values()) + 1)
        listed.append(len({run.seed for run in read_plan(tmp_path / "e").runs}))

    monkeypatch.setattr(experiment_module, "run_all", train_nothing)
    monkeypatch.setattr(Experiment, "settled", lambda self: self.plan.seeds >= 10)
    experiment = run_plan(plan(), tmp_path / "e", auto=True)
    assert asked == [5, 10]
    assert listed == asked, "plan.yaml lists the runs before they are trained"
    assert read_plan(tmp_path / "e").looks == LOOKS
    monkeypatch.setattr(Experiment, "settled", lambda _: False)
    experiment.run_until_settled()
    assert asked[-1] == LOOKS[-1]


@pytest.mark.usefixtures("quick")
def test_another_number_of_seeds_leaves_a_trace(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_module, "run_all", lambda *_: None)
    monkeypatch.setattr(Experiment, "settled", lambda _: True)
    traces = []
    for seeds in (2, 5, 5, "auto", "auto", 4):
        auto = seeds == "auto"
        run_plan(plan(seeds=1 if auto else seeds), tmp_path / "e", auto=auto)
        traces.append(read_plan(tmp_path / "e").earlier_seeds)
    assert traces == [[], [2], [2], [2], [2], [2, 5]]
    assert not (tmp_path / "e-2").exists()


@pytest.mark.slow
def test_a_real_calibration_times_every_part_and_orders_the_arms(tmp_path):
    arms = {name: overrides_of(name) for name in ("uniform", "loss", "paper", "observed", "fresh")}
    experiment = Experiment(tmp_path, ComparisonPlan("digits", to_dict(BASE), arms, seeds=1))
    found = experiment.calibrate()
    assert found["uniform"]["parts"]["scoring"] == 0
    assert found["uniform"]["forwards_per_step"] == 0
    assert found["fresh"]["forwards_per_step"] == 60, "three times the batch"
    assert found["observed"]["forwards_per_step"] == 0
    assert found["paper"]["forwards_per_step"] > 0
    assert found["observed"]["parts"]["scoring"] > 0
    assert found["uniform"]["ratio"] == 1
    assert found["paper"]["ratios"] == sorted(found["paper"]["ratios"]), "whose ends the report draws"
    for arm in found.values():
        assert sum(arm["parts"].values()) == pytest.approx(arm["seconds_per_step"])
        assert arm["seconds_per_step"] == pytest.approx(arm["ratio"] * found["uniform"]["seconds_per_step"])
    assert experiment.calibrate() == found, "it is kept"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_parallel_runs_give_the_same_accuracies(tmp_path):
    one = results.collect(run_plan(plan(seeds=1, protocols=["steps"]), tmp_path / "one").folder)
    two = results.collect(run_plan(plan(seeds=1, protocols=["steps"]), tmp_path / "two", jobs=2).folder)
    assert accuracies(one) == accuracies(two)


SCRIPT = """
import sys
from pathlib import Path
from smdl.experiments import runner
from smdl.experiments.arms import overrides_of
from smdl.experiments.experiment import run_plan
from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.training.config import DataConfig, ModelConfig, OptimizerConfig, TrainConfig, to_dict

class Pool(runner.ProcessPoolExecutor):
    def submit(self, *arguments):
        future = super().submit(*arguments)
        Path("submitted").touch()
        return future

data, optimizer = DataConfig(train_size=400), OptimizerConfig(lr=0.01)
base = TrainConfig(data=data, model=ModelConfig("mlp"), optimizer=optimizer, batch_size=4, epochs=3, threads=1)
arms = {name: overrides_of(name) for name in ("uniform", "recommended")}
plan = ComparisonPlan("digits", to_dict(base), arms, seeds=2, protocols=["steps"], timed=False)

if __name__ == "__main__":
    runner.ProcessPoolExecutor = Pool
    try:
        run_plan(plan, Path(sys.argv[1]), jobs=2)
    except KeyboardInterrupt as stop:
        sys.exit(str(stop))
"""


def begun(folder):
    """A run has finished an epoch."""
    return bool(list(folder.glob("e/runs/*/metrics.jsonl")))


def starting(folder):
    """A worker process was started, and is still importing torch."""
    return (folder / "submitted").exists()


@pytest.mark.slow
@pytest.mark.parametrize("when", [begun, starting])
def test_a_comparison_stopped_by_ctrl_c_is_resumed(tmp_path, when):
    """As a user would: the command, SIGINT to its group, the command again."""
    (tmp_path / "main.py").write_text(SCRIPT)
    command = [sys.executable, "main.py"]
    options: Any = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "text": True}
    process = subprocess.Popen([*command, "e"], stderr=subprocess.PIPE, start_new_session=True, **options)
    deadline = time.monotonic() + 120
    while not when(tmp_path):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 1, error
    assert "Traceback" not in error
    assert "the same command again" in error
    assert len(results.collect(tmp_path / "e").problems) > 0
    same_plan = runpy.run_path(str(tmp_path / "main.py"))["plan"]
    if when is begun:
        subprocess.run([*command, "e"], timeout=240, check=True, **options)
    else:  # in this process: each of a command imports torch again
        run_plan(same_plan, tmp_path / "e")
    found = results.collect(tmp_path / "e")
    assert found.problems == []
    assert not (tmp_path / "e-2").exists()
    if when is begun:
        assert accuracies(found) == accuracies(results.collect(run_plan(same_plan, tmp_path / "whole").folder))


@pytest.mark.usefixtures("quick")
def test_a_run_that_diverges_is_reported_and_the_rest_stands(tmp_path):
    wild = {**overrides_of("recommended"), "optimizer": {"lr": 1e38}}
    arms = {"uniform": overrides_of("uniform"), "wild": wild}
    folder = run_plan(ComparisonPlan("digits", to_dict(BASE), arms, seeds=2), tmp_path / "e").folder
    found = results.collect(folder)
    assert any("wild" in problem and "diverged" in problem for problem in found.problems)
    assert found.rows[0].final_accuracy.count == 2
    assert "wild has no finished run" in found.verdict


@pytest.mark.usefixtures("quick")
def test_damaged_and_missing_runs_are_named_and_the_rest_is_collected(tmp_path):
    experiment = run_plan(plan(protocols=["steps"]), tmp_path / "e")
    folders = {arm: folders_of(experiment, arm, "steps")[0] for arm in NAMES}
    (folders["loss"] / "metrics.jsonl").write_text('{"epoch": 0}\n')
    (folders["recommended"] / "summary.json").unlink()
    twice = folders["uniform"] / "metrics.jsonl"
    whole = twice.read_text()
    twice.write_text("".join(line + line for line in whole.splitlines(keepends=True)))
    assert any("uniform, seed 0" in problem for problem in results.collect(experiment.folder).problems)
    twice.write_text(whole)
    found = results.collect(experiment.folder)
    assert any("loss, seed 0" in problem and "damaged" in problem for problem in found.problems)
    assert any("recommended, seed 0" in problem and "not finished" in problem for problem in found.problems)
    assert [row.seeds for row in found.rows] == [2, 1, 1]
    (experiment.folder / "plan.yaml").write_text("arms: [")
    with pytest.raises(FolderError, match=r"plan\.yaml is damaged"):
        results.collect(experiment.folder)
    with pytest.raises(FolderError, match="holds no experiment"):
        results.collect(tmp_path)


@pytest.mark.usefixtures("quick")
def test_results_are_what_the_logs_say(tmp_path):
    experiment = run_plan(plan(seeds=3), tmp_path / "e")
    found = results.collect(experiment.folder)
    results.write(experiment.folder, found)
    assert json.loads((experiment.folder / "results.json").read_text())["verdict"] == found.verdict
    logs = [read_lines(folder / "metrics.jsonl") for folder in folders_of(experiment, "loss", "steps")]
    finals = [100 * (1 - log[-1]["test_error"]) for log in logs]
    row = next(row for row in found.rows if (row.arm, row.protocol) == ("loss", "steps"))
    assert row.final_accuracy.mean == pytest.approx(sum(finals) / 3)
    assert len((experiment.folder / "results.csv").read_text().splitlines()) == 1 + 3 * 6


def test_an_arm_that_always_fails_does_not_hold_up_the_others(tmp_path):
    files = made.experiment(tmp_path, arms={name: made.ARMS[name] for name in ("uniform", "recommended")}, seeds=2)
    experiment = Experiment(tmp_path, read_plan(tmp_path))
    assert not experiment.settled()
    for seed in range(2):
        write_json(files.run("recommended", "time", seed) / "failed.json", {"error": "the loss is nan"})
    assert experiment.settled()


def test_names_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="did you mean 'recommended'"):
        overrides_of("recomended")
    with pytest.raises(ValueError, match="unknown baseline 'sgd'"):
        plan(baseline="sgd")
    with pytest.raises(ValueError, match="did you mean 'steps'"):
        plan(protocols=["step"])
    with pytest.raises(ValueError, match="did you mean 'distance'"):
        plan_of("distanc", BASE, 3)
    with pytest.raises(ValueError, match="did you mean 'table-1'"):
        reproduce("table1", "smoke", None)


def test_configs_that_differ_in_nothing_that_matters_share_a_run():
    here, there = (replace(BASE, data=replace(BASE.data, root=root)) for root in ("here", "there"))
    assert run_name(here) == run_name(there)
    assert run_name(here) != run_name(replace(here, seed=1))
    assert with_overrides(BASE, {"data": {"train_size": 9}}).data.test_size == 60, "overrides go one by one"


@pytest.mark.parametrize("sweep", ABOUT)
def test_every_sweep_makes_configs_that_can_be_trained(sweep):
    assert set(ABOUT) == set(SWEEPS)
    made = plan_of(sweep, BASE, 1)
    assert len(made.arms) >= 3
    for arm in made.arms:
        arm_config(made, arm)


@pytest.mark.slow
def test_the_sweep_of_weights_has_two_stages(tmp_path):
    base = replace(BASE, epochs=1)
    folder = ablate("weights", base, tmp_path / "w", seeds=1, values=[0, 1.0])
    found = results.collect(folder)
    first = read_json(tmp_path / "w" / "calibration.json")
    assert "seconds_per_step" not in first["uniform"], "an ablation is not timed"
    best = best_weights(found)
    varied = [arm for arm in found.arms if arm.startswith("λ2")]
    assert varied == ["λ2 = 0", "λ2 = 1.0"][0 if any(best.values()) else 1 :], "all weights 0 is no objective"
    changed = yaml.safe_load((folder / "plan.yaml").read_text())["arms"]["λ2 = 1.0"]["objective"]
    assert {name: changed[name] for name in best} == best


def test_every_item_of_the_paper_can_be_had():
    assert set(ITEMS) == set(PAPER_ITEMS)
    assert set(paper_figures.SHOWN) == {item for item in ITEMS if item.startswith("figure")}


def test_each_number_of_the_paper_is_compared_with_one_of_ours():
    main = {name for row in published.main("svhn")["rows"] for name in (cell["arm"] for cell in row["cells"])}
    assert main == {"loss", "uniform", "paper"}
    weights = published.ablation("weights")["rows"]
    first = set(plan_of("weights", BASE, 1).arms)
    second = {f"λ2 = {value}" for value in SWEEPS["weights"][0]}
    assert {cell["arm"] for row in weights for cell in row["cells"]} == (first | second) - {"uniform"}
    assert {cell["measure"] for row in weights for cell in row["cells"]} <= set(results.MEASURES)


def test_sgd_of_the_same_setting_is_what_smdl_is_tested_against():
    made = plan_of("learning-rate", BASE, 1)
    assert made.against == {f"paper, lr {lr}": f"uniform, lr {lr}" for lr in (0.1, 0.01, 0.001)}
    assert made.baseline == "uniform, lr 0.1"
    assert plan_of("distance", BASE, 1).against == {}
    made = plan_of("batchnorm", BASE, 1)
    assert made.rivals["observed, without BatchNorm"] == "uniform, without BatchNorm"
    assert len(made.rivals) == 4


@pytest.mark.usefixtures("quick")
def test_two_commands_do_not_work_in_one_folder(tmp_path):
    run_plan(plan(seeds=1, protocols=["steps"]), tmp_path / "e")
    with locked(tmp_path / "e"), pytest.raises(BusyError, match="another process is at work"):
        run_plan(plan(seeds=2, protocols=["steps"]), tmp_path / "e")


@pytest.mark.usefixtures("quick")
def test_the_time_of_equal_time_is_checked_against_the_log(tmp_path):
    experiment = run_plan(plan(), tmp_path / "e")
    row = next(row for row in results.collect(tmp_path / "e").rows if (row.arm, row.protocol) == ("loss", "time"))
    logged = {}
    for arm in ("uniform", "loss"):
        spent = [
            record["seconds"]
            for folder in folders_of(experiment, arm, "time")
            for record in read_lines(folder / "metrics.jsonl")
        ]
        logged[arm] = sum(sum(parts.values()) - parts["evaluation"] for parts in spent)
    assert row.by_the_log == pytest.approx(logged["loss"] / logged["uniform"])


def test_missing_data_is_reported_before_anything_is_trained(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_DATA", str(tmp_path))
    monkeypatch.setattr("smdl.training.datasets.catalogue.SYSTEM", tmp_path)
    with pytest.raises(ValueError, match="needs cifar10, cifar100, svhn: smdl data get cifar10"):
        reproduce("table-1", "paper", tmp_path / "out")


@pytest.mark.usefixtures("quick")
def test_small_ablations_are_made_on_svhn_if_its_files_are_there(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_DATA", str(tmp_path / "none"))
    assert ablation_setting("small", root=str(tmp_path)).overrides["data"]["name"] == "cifar10"
    datasets.svhn(tmp_path / "svhn")
    setting = ablation_setting("small", root=str(tmp_path))
    assert setting.overrides["data"]["name"] == "svhn"
    assert "Stand-in" not in setting.caption


def test_a_budget_of_minutes_is_decided_once(tmp_path, monkeypatch):
    monkeypatch.setattr(experiment_module, "run_all", lambda *_: None)
    first = run_plan(plan(minutes=5.0), tmp_path / "e").plan
    monkeypatch.setattr(experiment_module, "STARTING", 299.0)  # now it would be too short
    again = run_plan(plan(minutes=5.0), tmp_path / "e").plan
    assert (first.seeds, first.base["steps"]) == (again.seeds, again.base["steps"])
    assert run_plan(plan(minutes=9.0), tmp_path / "e").folder.name == "e-2"


@pytest.mark.usefixtures("quick")
def test_the_baselines_steps_do_not_depend_on_rounding(tmp_path):
    experiment = Experiment(tmp_path, replace(plan(), base=to_dict(replace(BASE, steps=49))))
    costs = experiment.calibrate()
    for seconds in (0.010, 0.0123, 0.1 + 0.2, 1 / 49):
        costs["uniform"]["seconds_per_step"] = seconds
        assert experiment.steps_of("uniform", "time") == 49


def test_a_calibration_is_longer_than_a_short_run_and_names_the_arm_that_diverges(tmp_path, monkeypatch):
    monkeypatch.setattr("smdl.experiments.calibration.ROUNDS", 1)
    arms = {name: overrides_of(name) for name in ("uniform", "recommended")}
    short = ComparisonPlan("digits", to_dict(replace(BASE, steps=3)), arms, seeds=1)
    assert Experiment(tmp_path, short).calibrate()["uniform"]["seconds_per_step"] > 0
    wild = {**arms, "recommended": {**arms["recommended"], "optimizer": {"lr": 1e38}}}
    with pytest.raises(DivergedError, match="recommended diverged while it was timed"):
        Experiment(tmp_path / "x", ComparisonPlan("digits", to_dict(BASE), wild, seeds=1)).calibrate()


@pytest.mark.filterwarnings("error")
def test_a_calibration_of_several_regimes_warns_of_nothing(monkeypatch):
    """A run of two epochs has 8 steps, the turns have 20: a learning rate that reached 0 would look like a copy of the
    model."""
    monkeypatch.setattr("smdl.experiments.calibration.ROUNDS", 1)
    base = to_dict(replace(BASE, schedule=ScheduleConfig("cosine")))
    several = comparison("digits", base, ["uniform", "recommended"], ["clean", "long-tail"])
    calibration.calibrate({arm: arm_config(several, arm) for arm in several.arms}, Display())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocols": []}, "needs a protocol"),
        ({"minutes": -5.0}, "minutes must be a positive number"),
        ({"protocols": ["time"], "timed": False}, "has to be timed"),
        ({"baseline": "sgd"}, "unknown baseline 'sgd'"),
    ],
)
def test_plans_that_make_no_sense_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        plan(**changes)


@pytest.mark.parametrize(
    ("sweep", "values", "said"),
    [
        ("terms", ["x"], "unknown value for terms 'x'"),
        ("replacement", ["maybe"], "Choose one of false, true"),
        ("batchnorm", ["maybe"], "Choose one of false, true"),
        ("weights", ["x"], "must be numbers such as 1.0, got x"),
        ("batch-size", ["5.5"], "must be numbers"),
    ],
)
def test_values_that_a_sweep_does_not_know_are_refused(sweep, values, said):
    with pytest.raises(ValueError, match=said):
        plan_of(sweep, BASE, 1, values)


def test_weights_of_zero_are_one_configuration():
    made = plan_of("weights", BASE, 1)
    assert len({run_name(arm_config(made, arm)) for arm in made.arms if arm.endswith("= 0")}) == 1


def test_what_decides_a_run_is_in_its_run_name():
    workers = [run_name(replace(BASE, num_workers=number)) for number in (0, 1, 2)]
    assert workers[0] != workers[1] == workers[2]
    folders = [run_name(replace(BASE, data=DataConfig("folder", root=root))) for root in ("a", "b")]
    assert folders[0] != folders[1]


def test_a_new_option_with_a_default_renames_no_run():
    later = make_dataclass("Later", [("new_option", int, field(default=3))], bases=(type(BASE),))
    values = {name: getattr(BASE, name) for name in type(BASE).__dataclass_fields__}
    assert run_name(later(**values)) == run_name(BASE)
    assert run_name(later(**values, new_option=4)) != run_name(BASE)


@pytest.mark.usefixtures("quick")
def test_plan_yaml_lists_the_runs_relative_to_its_folder(tmp_path):
    experiment = run_plan(plan(seeds=1), tmp_path / "a" / "e", store=tmp_path / "shared")
    listed = yaml.safe_load((experiment.folder / "plan.yaml").read_text())["runs"]
    assert len(listed) == 2 * len(NAMES)
    for run in listed:
        assert run["folder"].startswith("../../shared/digits-0-")
        assert read_lines(experiment.folder / run["folder"] / "metrics.jsonl")[-1]["steps"] == run["steps"]
    (tmp_path / "a").rename(tmp_path / "b")
    assert results.collect(tmp_path / "b" / "e").problems == []


@pytest.mark.usefixtures("quick")
def test_a_damaged_plan_is_another_plan(tmp_path):
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "plan.yaml").write_text("arms: [")
    assert run_plan(plan(seeds=1, protocols=["steps"]), tmp_path / "e").folder.name == "e-2"
