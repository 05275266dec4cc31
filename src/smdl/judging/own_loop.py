"""A training function of the user as an experiment: the same plan, calibration, runs, tests and files."""

import dataclasses
import hashlib
import json
import math
import pickle
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from smdl.common import storage
from smdl.common.environment import environment
from smdl.common.progress import Display
from smdl.experiments.calibration import take_turns
from smdl.experiments.comparison_plan import ORACLE, ComparisonPlan
from smdl.experiments.experiment import BudgetError, Experiment, speed
from smdl.experiments.runner import Job, unless_finished
from smdl.experiments.runs import LARGEST
from smdl.experiments.statistics import FEWEST_SEEDS
from smdl.judging.function_side import FunctionSide
from smdl.judging.run_loader import LoaderFactory
from smdl.loading.candidates.base import steps_per_epoch
from smdl.loading.methods import METHODS, Method, as_method
from smdl.scoring.model_access import device_of
from smdl.scoring.reading import check_dataset
from smdl.scoring.scorer import NotFiniteError
from smdl.training.generators import seeded_generators
from smdl.training.loop import threads
from smdl.training.run_files import write_config, write_counts, write_summary

#: Most steps of a run that the minutes are spent on.
MOST_STEPS = 10**9

Train = Callable[[LoaderFactory, int], Mapping[str, float]]


@dataclass(frozen=True)
class OwnTraining:
    """What is trained: the user's function and data. It is sent to other processes."""

    train: Train
    dataset: Dataset | Callable[[], Dataset]
    metric: str
    batch_size: int
    threads: int | None = None
    groups: np.ndarray | None = None  # of the training samples, for the oracle

    def method(self, name: str, options: dict[str, Any] | None = None) -> Method:
        """Return a method by its name, with some options changed. The oracle draws every group equally often."""
        if name != ORACLE or self.groups is None:
            return as_method(name).changed(options=options)
        _, places, sizes = np.unique(self.groups, return_inverse=True, return_counts=True)
        weights = 1 / sizes[places]
        return dataclasses.replace(METHODS["weighted"].changed(options={"weights": weights}), name=ORACLE)

    def load(self) -> Dataset:
        """Return the dataset; call the function that makes it, if it is one."""
        made: Any = self.dataset if hasattr(self.dataset, "__getitem__") else self.dataset()  # type: ignore[operator]
        check_dataset(made)
        return made

    def checked(self, found: Any) -> dict[str, float]:
        """Return the metrics that the function returned as plain numbers, or refuse them."""
        name = getattr(self.train, "__name__", "train")
        if not isinstance(found, Mapping):
            raise TypeError(f"{name} must return a dict of metrics such as {{{self.metric!r}: 0.93}}, got {found!r}")
        if self.metric not in found:
            raise ValueError(
                f"{name} must return the metric {self.metric!r}, got {', '.join(map(str, found)) or 'none'}"
            )
        for key, value in found.items():
            if not isinstance(value, Real) and not (isinstance(value, torch.Tensor) and value.ndim == 0):
                raise TypeError(f"{name} must return numbers, got {key!r}: {value!r}")
        return {str(key): float(value) for key, value in found.items()}


class OwnExperiment(Experiment):
    """An experiment whose arms train with the user's function."""

    def __init__(
        self,
        folder: Path,
        plan: ComparisonPlan,
        store: Path | None,
        display: Display | None,
        work: OwnTraining,
        in_processes: bool,
    ) -> None:
        super().__init__(folder, plan, store, display)
        self.work = dataclasses.replace(work, threads=plan.base["threads"])
        self._sent: OwnTraining | bytes = pickle.dumps(self.work) if in_processes else self.work

    def _measure(self, arms: list[str]) -> dict[str, Any]:
        self.display.phase("loading")
        dataset = self.work.load()
        samples = len(dataset)  # type: ignore[arg-type]
        facts = {"steps_per_epoch": steps_per_epoch(samples, self.work.batch_size, False), "samples": samples}
        if not self.plan.timed:
            return dict.fromkeys(arms, facts)
        with seeded_generators(0), threads(self.work.threads):
            sides = {arm: FunctionSide(self.work, dataset, arm, self.plan.arms[arm]) for arm in arms}
            try:
                found = take_turns(sides, self.display, self.plan.minutes and 60 * self.plan.minutes)
                sides[arms[0]].finish()
            finally:
                for side in sides.values():
                    side.close()
        spent = sides[arms[0]].evaluation_seconds
        return {arm: {**cost, **facts, "evaluation_seconds": spent} for arm, cost in found.items()}

    def _planned_steps(self, arm: str) -> int:
        base = self.plan.base
        return base["steps"] or (base["epochs"] or 1) * self.calibration[arm]["steps_per_epoch"]

    def _run_seconds(self, arm: str, steps: int) -> float:
        found = self.calibration[arm]  # the function evaluates when it wants to: once, at the end, is assumed
        return steps * found["seconds_per_step"] * found.get("wall_factor", 1.0) + found["evaluation_seconds"]

    def _job(self, arm: str, seed: int, steps: int) -> tuple[str, Job]:
        method = self.plan.arms[arm]["method"]
        base = {name: value for name, value in self.plan.base.items() if name not in ("steps", "epochs")}
        described = {**base, **self.plan.arms[arm], "steps": steps, "seed": seed}
        key = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:10]
        return f"{Path(method.replace(':', '.')).name}-{seed}-{key}", partial(run_function, self._sent, arm, described)

    def fit_into(self, seconds: float, jobs: int) -> None:
        """Choose the number of steps with which all seeds fit into the remaining time."""
        plan, budget = self.plan, max(0.0, seconds) * speed(jobs)
        epoch = self.calibration[plan.baseline]["steps_per_epoch"]
        cost = partial(self.seconds_with, plan.seeds)
        steps = bisect_right(range(1, MOST_STEPS), budget, key=cost)
        if steps < epoch:
            spent = 60 * (plan.minutes or 0.0) - seconds
            enough = math.ceil((spent + cost(epoch) / speed(jobs)) / 6) / 10
            raise BudgetError(
                f"minutes={plan.minutes:g} is too short: it buys {plan.seeds} seeds of {steps:,} steps, and one epoch"
                f" has {epoch:,}. Use minutes={enough:g}, fewer methods, or fewer seeds (at least {FEWEST_SEEDS})"
            )
        plan.base, plan.decided = {**plan.base, "steps": steps}, True


@lru_cache(1)  # a process trains many runs of the same work
def _unpacked(sent: bytes) -> OwnTraining:
    return pickle.loads(sent)


def run_function(sent: "OwnTraining | bytes", arm: str, described: dict[str, Any], folder: Path) -> None:
    """Call the user's function once, and write the files of a run."""

    def train() -> None:
        _train(_unpacked(sent) if isinstance(sent, bytes) else sent, arm, described, folder)

    unless_finished(folder, train, NotFiniteError, FloatingPointError)


def _train(work: OwnTraining, arm: str, described: dict[str, Any], folder: Path) -> None:
    write_config(folder, described)
    seed, steps = described["seed"], described["steps"]
    method = work.method(described["method"], described.get("options"))
    make_loader = LoaderFactory(work.load(), method, work.batch_size, seed, steps, refit=described.get("refit"))
    with seeded_generators(seed), threads(work.threads):
        try:
            metrics = work.checked(work.train(make_loader, seed))
        except Exception as error:
            error.add_note(f"method {arm}, seed {seed}. Finished runs are kept")
            raise
    loader = make_loader.loader
    if loader is None or loader.step != steps:
        used = 0 if loader is None else loader.step
        raise ValueError(
            f"the training function used {used:,} of {steps:,} batches (method {arm}, seed {seed}): iterate over"
            " make_loader(model) until it ends"
        )
    if not (loader.refitted and loader.called_later):
        raise ValueError(
            f"method {arm} fits the last layer again after the last batch, and no module was called after that: iterate"
            " over make_loader(model) with a for loop until it ends, and evaluate by calling the model after it"
        )
    if loader.weighted and not loader.selection_was_read:
        raise ValueError(
            f"method {arm} weights the losses and the training function ignores that: compute the loss by"
            " smdl.weighted_mean(losses, loader.selection), which is the plain mean for other methods"
        )
    if not abs(metrics[work.metric]) <= LARGEST:
        raise NotFiniteError(f"{work.metric} is {metrics[work.metric]}: there is no mean or interval of such values")
    parts = dict(loader.seconds)
    record = {
        "epoch": 0,
        "steps": steps,
        "metrics": {name: value for name, value in metrics.items() if abs(value) <= LARGEST},
        "forwards": loader.forwards,
        "seconds": {**parts, "training": loader.seconds_of_run - sum(parts.values())},
    }
    storage.write_lines(folder / "metrics.jsonl", [record])
    write_counts(folder, loader.counts)
    summary = {"final": record["metrics"], "steps": steps, "seconds": record["seconds"]}
    write_summary(folder, {**summary, "environment": environment(device_of(loader.loader.model))})
