"""An experiment: the arms of a plan, trained over several seeds at equal steps and at equal time."""

import math
import os
import time
from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from smdl.common.environment import command
from smdl.common.progress import ArmProgress, Display
from smdl.common.storage import locked, read_json, write_json
from smdl.experiments.arms import arm_config
from smdl.experiments.calibration import SECONDS, SHARE, at_speed_of, calibrate, lengths
from smdl.experiments.comparison_plan import ComparisonPlan, PlannedRun, read_plan, write_plan
from smdl.experiments.folders import open_folder
from smdl.experiments.results import collect
from smdl.experiments.runner import Job, finished, job_of, run_all, run_name
from smdl.experiments.runs import measured, read_run
from smdl.experiments.statistics import FEWEST_SEEDS
from smdl.experiments.tuning import RATE_FACTORS, best_rate, rate_configs

#: Numbers of seeds at which `--seeds auto` looks at the results and may stop.
LOOKS = [5, 10, 20]
#: Most seeds that `--minutes` trains.
MOST_SEEDS = 20
#: `--minutes` shortens a run to this part of its planned steps at most, and never below one epoch of the baseline.
SHORTEST = 1 / 5
#: Seconds of a budget for starting processes and drawing the report.
STARTING = 35.0
#: Speed-up of each further process, in processes: they share caches and memory.
JOB_GAIN = 0.5


class BudgetError(ValueError):
    """The minutes are too few for a comparison that means something."""


class Experiment:
    """A plan in a folder: plan.yaml, calibration.json and the runs. An interrupted experiment is resumed by starting it
    again."""

    def __init__(
        self, folder: Path, plan: ComparisonPlan, store: Path | None = None, display: Display | None = None
    ) -> None:
        self.folder, self.plan = folder, plan
        self.store = store or folder / "runs"
        self.display = display or Display()
        self.calibration: dict[str, Any] = {}
        self._finals: dict[str, float] = {}  # folder of a finished run -> primary endpoint; nan if it has none

    def calibrate(self) -> dict[str, Any]:
        """Measure the seconds per step of every arm, once, before anything else runs. Arms that an earlier command has
        measured keep their time; new ones are measured beside the baseline."""
        path = self.folder / "calibration.json"
        kept, order = read_json(path), sorted(self.plan.arms, key=lambda arm: arm != self.plan.baseline)
        known = [arm for arm in order if self.plan.knows(kept, arm)]
        if path.exists() and self.plan.baseline not in known:
            self.display.note(f"{path} is damaged or incomplete: it is measured again")
        if len(known) < len(order):
            if self.plan.baseline in known:
                found = self._measure([self.plan.baseline, *(arm for arm in order if arm not in known)])
                kept = {**at_speed_of(kept[self.plan.baseline], found), **{arm: kept[arm] for arm in known}}
            else:
                kept = self._measure(order)
            write_json(path, kept, checksum=True)
        self.calibration = {arm: kept[arm] for arm in order}
        return self.calibration

    def _measure(self, arms: list[str]) -> dict[str, Any]:
        """Return the calibration of these arms."""
        configs = {arm: arm_config(self.plan, arm, steps=None) for arm in arms}
        if self.plan.timed:
            return calibrate(configs, self.display, self.plan.minutes and 60 * self.plan.minutes)
        return lengths(configs, self.display)

    def steps_of(self, arm: str, protocol: str) -> int:
        """Return the number of steps of an arm: as planned, or as many as the time of its baseline allows."""
        baseline = self.plan.own_baseline(arm)
        if protocol == "steps" or arm == baseline:
            return self._planned_steps(arm)
        cost, reference = self.calibration[arm], self.calibration[baseline]
        budget = self._planned_steps(baseline) * reference["seconds_per_step"] + once(reference)
        budget = budget * self.plan.shares.get(arm, 1.0) - once(cost)  # each run does that once
        return max(1, math.floor(budget / cost["seconds_per_step"]))

    def _planned_steps(self, arm: str) -> int:
        config = arm_config(self.plan, arm)
        return config.steps or config.epochs * self.calibration[arm]["steps_per_epoch"]

    def _job(self, arm: str, seed: int, steps: int) -> tuple[str, Job]:
        """Return the name of a run's folder, and what trains it."""
        config = arm_config(self.plan, arm, steps=steps, seed=seed)
        return run_name(config), job_of(config)

    def fit_into(self, seconds: float, jobs: int) -> None:
        """Choose as many seeds as fit into the remaining time; if they are too few, shorten the runs. Refuse a time in
        which too little would be learned."""
        plan, factor = self.plan, speed(jobs)
        budget, planned = max(0.0, seconds) * factor, self._planned_steps(plan.baseline)
        plan.decided, plan.planned_steps = True, None
        plan.seeds = min(MOST_SEEDS, int((budget - self._tuning_seconds()) / self._seconds_per_seed()))
        if plan.seeds >= FEWEST_SEEDS:
            return
        epoch = self.calibration[plan.baseline]["steps_per_epoch"]
        cost = partial(self.seconds_with, FEWEST_SEEDS)
        steps = bisect_right(range(1, planned + 1), budget, key=cost)
        least = planned if plan.keep_steps else min(planned, max(epoch, math.ceil(SHORTEST * planned)))
        if steps < least:
            rule = "as planned" if plan.keep_steps else f"one epoch, and a fifth of the planned {planned:,}"
            spent = 60 * (plan.minutes or 0.0) - seconds + cost(least) / factor
            enough = math.ceil(min(spent + SECONDS, spent / (1 - SHARE)) / 6) / 10  # a longer calibration has more time
            raise BudgetError(
                f"--minutes {plan.minutes or 0:g} is too short: it buys {FEWEST_SEEDS} seeds of {steps:,} steps,"
                f" and a comparison needs {FEWEST_SEEDS} seeds of {least:,} steps ({rule})."
                f" Use --minutes {enough:g}, or fewer --methods, --protocols or training samples"
            )
        plan.base, plan.seeds, plan.planned_steps = {**plan.base, "steps": steps}, FEWEST_SEEDS, planned

    def seconds_with(self, seeds: int, steps: int) -> float:
        """Return the computing time of this many seeds, with this many steps of the baseline."""
        self.plan.base = {**self.plan.base, "steps": steps}
        return seeds * self._seconds_per_seed() + self._tuning_seconds()

    def _seconds_per_seed(self) -> float:
        """Return the computing time of one seed of every arm under every protocol, evaluation included."""
        setup, total, counted = self._setup_seconds(), 0.0, set()
        for arm, found in self.calibration.items():
            total += once(found) * found.get("wall_factor", 1.0)  # cached for the other protocol
            for protocol in self.plan.protocols:
                steps = self.steps_of(arm, protocol)
                if (arm, steps) not in counted:
                    counted.add((arm, steps))
                    total += setup + self._run_seconds(arm, steps)
        return total

    def _setup_seconds(self) -> float:
        return min(found.get("setup_seconds", 0.0) for found in self.calibration.values())  # the first arm compiles

    def _tuning_seconds(self) -> float:
        """Return the computing time of tuning the learning rates."""
        if not self.plan.tune_learning_rate:
            return 0.0
        runs = (self._run_seconds(arm, self.steps_of(arm, self.plan.primary)) for arm in self.plan.arms)
        return len(RATE_FACTORS) * sum(self._setup_seconds() + seconds for seconds in runs)

    def _run_seconds(self, arm: str, steps: int) -> float:
        """Return the seconds of wall-clock time of a run: training and evaluation."""
        found = self.calibration[arm]
        evaluations = math.ceil(steps / found["steps_per_epoch"]) + 1
        training = steps * found["seconds_per_step"] * found.get("wall_factor", 1.0)
        return training + evaluations * found.get("evaluation_seconds", 0.0)

    def announce(self, jobs: int) -> None:
        """Say what is trained, and how long that takes."""
        plan = self.plan
        seeds = f"{', '.join(map(str, plan.looks[:-1]))} or {plan.looks[-1]}" if plan.looks else str(plan.seeds)
        text = f"{len(plan.arms)} arms × {seeds} seeds × {self._planned_steps(plan.baseline):,} steps"
        text += f", at equal {' and equal '.join(plan.protocols)}"
        if plan.planned_steps is not None:
            text += f", shortened from {plan.planned_steps:,} steps to fit {plan.minutes:g} minutes"
        if plan.tune_learning_rate:
            text += f", after {len(RATE_FACTORS)} learning rates per arm on a validation split"
        if plan.timed:
            seconds = plan.seeds * self._seconds_per_seed() + self._tuning_seconds()
            minutes = max(1, math.ceil(seconds / speed(jobs) / 60))
            text += f": about {minutes} minute{'' if minutes == 1 else 's'}"
            text += f" for {plan.seeds} seeds" if plan.looks else ""
        self.display.note(text)

    def tune(self, jobs: int = 1) -> None:
        """Choose the learning rate of each arm: one run per rate, as long as its runs at the primary endpoint."""
        plan = self.plan
        plan.learning_rates = {}
        configs = {arm: rate_configs(plan, arm, self.steps_of(arm, plan.primary)) for arm in plan.arms}
        self.display.phase("tuning learning rates")
        todo = {self.store / run_name(config): job_of(config) for rates in configs.values() for config in rates}
        run_all(todo, jobs, self.display)
        plan.learning_rates = {arm: best_rate(self.store, rates) for arm, rates in configs.items()}
        found = ", ".join(f"{arm} {tuned['rate']:g}" for arm, tuned in plan.learning_rates.items())
        self.display.note(f"learning rates: {found}")

    def run(self, jobs: int = 1) -> None:
        """List the runs in plan.yaml and train those that are not finished."""
        plan, runs, todo = self.plan, [], {}
        first = plan.first_seed
        for seed in range(first, first + plan.seeds):  # of every arm, so that an interruption leaves whole seeds
            for arm in plan.arms:
                for protocol in plan.protocols:  # the baseline's runs are the same in both, and are trained once
                    steps = self.steps_of(arm, protocol)
                    name, job = self._job(arm, seed, steps)
                    todo[self.store / name] = job
                    place = Path(os.path.relpath(self.store / name, self.folder)).as_posix()
                    runs.append(PlannedRun(arm, protocol, seed, steps, place))
        places = {arm: place for place, arm in enumerate(plan.arms)}
        plan.runs = sorted(runs, key=lambda run: (places[run.arm], plan.protocols.index(run.protocol)))
        write_plan(self.folder, plan)
        self.display.phase("training")
        show = self.display.arms
        run_all(todo, jobs, self.display, lambda: show([self._progress(arm, jobs) for arm in plan.arms]))

    def _progress(self, arm: str, jobs: int) -> ArmProgress:
        """Return how far an arm is."""
        plan = self.plan
        mine = [run for run in plan.runs if run.arm == arm]
        todo = {run.folder: run for run in mine if self._final(run) is None}
        found = [self._finals[run.folder] for run in mine if run.protocol == plan.primary and run.folder not in todo]
        known = [value for value in found if math.isfinite(value)]
        left = sum(self._run_seconds(arm, run.steps) for run in todo.values()) / speed(jobs) if plan.timed else None
        done = plan.seeds - len({run.seed for run in todo.values()})
        form = "{:.4g}" if plan.metric else "{:.2f} %"
        return ArmProgress(arm, done, plan.seeds, form.format(fmean(known)) if known else "-", left)

    def _final(self, run: PlannedRun) -> float | None:
        """Return the primary endpoint of a run; nan if it failed, None if it is not finished."""
        folder = self.folder / run.folder
        if run.folder not in self._finals and finished(folder):
            files = read_run(folder, run.steps)
            self._finals[run.folder] = (
                math.nan if files.problems else measured(files.epochs)[self.plan.endpoint_of(run.arm)]
            )
        return self._finals.get(run.folder)

    def run_until_settled(self, jobs: int = 1) -> None:
        """Train the seeds of each look until the verdict of every arm is clear."""
        for seeds in self.plan.looks:
            self.plan.seeds = seeds
            self.run(jobs)
            if self.settled():
                return

    def settled(self) -> bool:
        """Whether more seeds would change no verdict at the primary endpoint. An arm without a finished run is not
        waited for."""
        tests = collect(self.folder).tests
        return not any(test.verdict == "unclear" for test in tests if test.protocol == self.plan.primary)


def once(cost: dict[str, Any]) -> float:
    """Return the seconds of what a run does once: training the reference model, refitting the head."""
    return (cost.get("reference_seconds") or 0.0) + (cost.get("refit_seconds") or 0.0)


def speed(jobs: int) -> float:
    """Return how much faster this many parallel runs are than one after the other."""
    return 1 + JOB_GAIN * (jobs - 1)


def run_plan(
    plan: ComparisonPlan,
    out: Path,
    *,
    store: Path | None = None,
    auto: bool = False,
    jobs: int = 1,
    display: Display | None = None,
    kind: Callable[[Path, ComparisonPlan, Path | None, Display | None], Experiment] = Experiment,
) -> Experiment:
    """Calibrate and train a plan in its folder, or resume it. `results.collect` reads the results from there.

    auto     add seeds until the differences are precise, instead of the plan's number
    jobs     number of runs at a time, each on one thread
    kind     makes the experiment
    """
    started = time.perf_counter()
    if jobs > 1 and plan.base["threads"] is None:
        plan.base = {**plan.base, "threads": 1}  # runs side by side must not compete for cores
    plan.command = command()
    if auto:
        plan.looks, plan.seeds = list(LOOKS), LOOKS[0]
    experiment = kind(open_folder(out, plan), plan, store, display)
    try:
        with locked(experiment.folder):
            kept = read_plan(experiment.folder)
            experiment.calibrate()
            if plan.minutes is not None and kept.decided:
                plan.seeds, plan.base, plan.planned_steps = kept.seeds, kept.base, kept.planned_steps
                plan.decided = True
            elif plan.minutes is not None:
                experiment.fit_into(60 * plan.minutes - STARTING - (time.perf_counter() - started), jobs)
            plan.earlier_seeds = kept.earlier_seeds
            if kept.runs and kept.seeds != plan.seeds and not (auto and kept.looks):
                plan.earlier_seeds = [*kept.earlier_seeds, kept.seeds]
            experiment.announce(jobs)
            if plan.tune_learning_rate:
                experiment.tune(jobs)
            if auto:
                experiment.run_until_settled(jobs)
            else:
                experiment.run(jobs)
    except BudgetError:
        _remove_plan(experiment.folder)
        raise
    return experiment


def _remove_plan(folder: Path) -> None:
    """Remove the files of an experiment that was refused, so that the next command can have its name."""
    for name in ("plan.yaml", "calibration.json", ".lock"):
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()
