"""An experiment: the arms of a plan, trained over several seeds at equal steps and at equal time."""

import math
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from smdl.experiments.arms import with_overrides
from smdl.experiments.calibration import calibrate, lengths
from smdl.experiments.plan import FolderError, Plan, PlannedRun, read_plan, write_plan
from smdl.experiments.runner import changes, run_all, run_name
from smdl.experiments.runs import MEASURES, read_run
from smdl.experiments.statistics import difference
from smdl.training.config import TrainConfig, from_dict
from smdl.training.environment import command
from smdl.training.files import disk_errors, locked, read_json, unused, write_json
from smdl.training.progress import Display, Silent

#: `--seeds auto` stops when every half-width is at most this many points, or at this many seeds.
PRECISION, MOST_SEEDS = 0.5, 20
#: `--minutes` cuts the number of steps before it goes below this many seeds.
FEWEST_SEEDS = 3
#: Seconds of a budget for starting processes and drawing the report.
STARTING = 35.0
#: Speed-up of each further process, in processes: they share caches and memory.
JOB_GAIN = 0.5
#: Fields of a plan that may differ between two commands that resume the same experiment.
NOT_COMPARED = ("base", "seeds", "caption", "title", "paper", "decided", "command", "runs")


class Experiment:
    """A plan in a folder: plan.yaml, calibration.json and the runs. An interrupted experiment is resumed by starting it
    again."""

    def __init__(self, folder: Path, plan: Plan, store: Path | None = None, display: Display | None = None) -> None:
        self.folder, self.plan = folder, plan
        self.store = store or folder / "runs"
        self.display = display or Silent()
        self.calibration: dict[str, Any] | None = None

    def calibrate(self) -> dict[str, Any]:
        """Measure the seconds per step of every arm, once, before anything else runs."""
        path = self.folder / "calibration.json"
        kept = read_json(path)
        if not self.plan.fits(kept):
            measure = calibrate if self.plan.timed else lengths
            order = sorted(self.plan.arms, key=lambda arm: arm != self.plan.baseline)  # the baseline first
            kept = measure({arm: arm_config(self.plan, arm, steps=None) for arm in order}, self.display)
            write_json(path, kept)
        self.calibration = kept
        return kept

    def steps_of(self, arm: str, protocol: str) -> int:
        """Return the number of steps of an arm: as planned, or as many as the baseline's time allows."""
        assert self.calibration is not None
        steps = {name: self._planned_steps(name) for name in (arm, self.plan.baseline)}
        if protocol == "steps" or arm == self.plan.baseline:
            return steps[arm]
        seconds = {name: self.calibration[name]["seconds_per_step"] for name in steps}
        return max(1, math.floor(steps[self.plan.baseline] * seconds[self.plan.baseline] / seconds[arm]))

    def _planned_steps(self, arm: str) -> int:
        assert self.calibration is not None
        config = arm_config(self.plan, arm)
        return config.steps or config.epochs * self.calibration[arm]["steps_per_epoch"]

    def configs(self, arm: str, protocol: str) -> list[TrainConfig]:
        """Return one config per seed. The baseline's are the same under both protocols, and are trained once."""
        steps = self.steps_of(arm, protocol)
        return [arm_config(self.plan, arm, steps=steps, seed=seed) for seed in range(self.plan.seeds)]

    def fit_into(self, seconds: float, jobs: int) -> None:
        """Choose as many seeds and steps as fit into the remaining time."""
        cost = self._seconds_per_seed()
        budget = max(0.0, seconds) * (1 + JOB_GAIN * (jobs - 1))
        self.plan.decided = True
        self.plan.seeds = min(MOST_SEEDS, int(budget / cost))
        if self.plan.seeds < FEWEST_SEEDS:
            share = min(1.0, budget / (FEWEST_SEEDS * cost))
            steps = max(1, math.floor(self._planned_steps(self.plan.baseline) * share))
            self.plan.base = {**self.plan.base, "steps": steps}
            self.plan.seeds = FEWEST_SEEDS

    def _seconds_per_seed(self) -> float:
        """Return the computing time of one seed of every arm under every protocol, evaluation included."""
        assert self.calibration is not None
        setup = min(found["setup_seconds"] for found in self.calibration.values())  # the first arm also compiles
        total, counted = 0.0, set()
        for arm, found in self.calibration.items():
            for protocol in self.plan.protocols:
                steps = self.steps_of(arm, protocol)
                if (arm, steps) not in counted:
                    counted.add((arm, steps))
                    evaluations = math.ceil(steps / found["steps_per_epoch"])
                    total += setup + steps * found["seconds_per_step"] + (evaluations + 1) * found["evaluation_seconds"]
        return total

    def run(self, jobs: int = 1) -> None:
        """List the runs in plan.yaml and train those that are not finished."""
        runs, todo = [], {}
        for arm in self.plan.arms:
            for protocol in self.plan.protocols:
                for config in self.configs(arm, protocol):
                    at = self.store / run_name(config)
                    steps, place = config.steps or 0, Path(os.path.relpath(at, self.folder)).as_posix()
                    runs.append(PlannedRun(arm, protocol, config.seed, steps, place))
                    todo[at] = config
        self.plan.runs = runs
        write_plan(self.folder, self.plan)
        # One seed of every arm after the other: an interrupted experiment then has complete seeds.
        run_all(dict(sorted(todo.items(), key=lambda item: item[1].seed)), jobs, self.display)

    def run_until_precise(self, jobs: int = 1) -> None:
        """Add seeds until every difference to the baseline is precise enough, or there are twenty."""
        self.plan.seeds = min(MOST_SEEDS, max(FEWEST_SEEDS, jobs))
        while True:
            self.run(jobs)
            if self.precise() or self.plan.seeds >= MOST_SEEDS:
                return
            self.plan.seeds = min(MOST_SEEDS, self.plan.seeds + max(2, jobs))

    def precise(self) -> bool:
        """Whether the interval of every difference at the primary endpoint is narrow enough. An arm without a finished
        run is not waited for."""
        finals = {arm: self._final_accuracies(arm) for arm in self.plan.arms}
        pairs = [(finals[arm], finals[rival]) for arm, rival in self.plan.rivals.items() if finals[arm]]
        halves = [difference(*pair).half for pair in pairs]
        return all(half is not None and half <= PRECISION for half in halves)

    def _final_accuracies(self, arm: str) -> list[float]:
        mine = [run for run in self.plan.runs if run.arm == arm and run.protocol == self.plan.primary]
        found = [read_run(self.folder / run.folder, run.steps) for run in mine]
        return [MEASURES["final_accuracy"](files.epochs) for files in found if not files.problems]


def arm_config(plan: Plan, arm: str, **more: Any) -> TrainConfig:
    """Return the config of an arm: the plan's base, changed by the arm and then by `more`."""
    return with_overrides(from_dict(TrainConfig, plan.base), plan.arms[arm], **more)


def open_folder(out: Path, plan: Plan) -> Path:
    """Return the folder of this plan. If `out` already holds it, resume it; if it holds anything else, use the next
    free name."""
    number = 1
    while True:
        candidate = out if number == 1 else out.with_name(f"{out.name}-{number}")
        if unused(candidate):
            with disk_errors(candidate):
                candidate.mkdir(parents=True, exist_ok=True)
            write_plan(candidate, plan)
            return candidate
        if _holds(candidate, plan):
            return candidate
        number += 1


def _holds(folder: Path, plan: Plan) -> bool:
    """Whether the plan in a folder trains the same runs. A damaged plan is another plan."""
    try:
        kept = read_plan(folder)
        bases = [from_dict(TrainConfig, {**values.base}) for values in (kept, plan)]
    except (FolderError, ValueError, TypeError):
        return False
    if plan.minutes is not None:  # the steps follow from the minutes
        for base in bases:
            base.steps = None
    plans = [{name: value for name, value in asdict(each).items() if name not in NOT_COMPARED} for each in (kept, plan)]
    return plans[0] == plans[1] and changes(bases[0]) == changes(bases[1])


def run_plan(
    plan: Plan,
    out: Path,
    *,
    store: Path | None = None,
    auto: bool = False,
    jobs: int = 1,
    display: Display | None = None,
) -> Experiment:
    """Calibrate and train a plan in its folder, or resume it. `results.collect` reads the results from there.

    auto     add seeds until the differences are precise, instead of the plan's number
    jobs     number of runs at a time, each on one thread
    """
    started = time.perf_counter()
    if jobs > 1 and plan.base["threads"] is None:
        plan.base = {**plan.base, "threads": 1}  # runs side by side must not compete for cores
    plan.command = command()
    experiment = Experiment(open_folder(out, plan), plan, store, display)
    with locked(experiment.folder):
        kept = read_plan(experiment.folder)
        experiment.calibrate()
        if plan.minutes is not None and kept.decided:
            plan.seeds, plan.base, plan.decided = kept.seeds, kept.base, True
        elif plan.minutes is not None:
            experiment.fit_into(60 * plan.minutes - STARTING - (time.perf_counter() - started), jobs)
        if auto:
            experiment.run_until_precise(jobs)
        else:
            experiment.run(jobs)
    return experiment
