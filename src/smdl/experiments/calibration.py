"""Calibration: measure what a step of each arm costs, once, before any run, the arms taking turns."""

import math
import os
import time
from collections.abc import Iterator, Mapping
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from smdl.common import clock
from smdl.common.progress import Display
from smdl.experiments.timed_side import STEPS, TimedSide
from smdl.experiments.typical_step import fill_cache
from smdl.loading.candidates.base import steps_per_epoch
from smdl.scoring.scorer import NotFiniteError
from smdl.training.build import reference_seconds
from smdl.training.config import TrainConfig
from smdl.training.datasets.load import Splits, load
from smdl.training.datasets.user_dataset import labels_of
from smdl.training.loop import DivergedError, TrainingRun, threads
from smdl.training.meters import Meters, balance

#: Number of rounds, fewer if they take too many seconds.
ROUNDS, FEWEST_ROUNDS, SECONDS = 15, 4, 180.0
#: No calibration and no preview trains as many steps of an arm.
LONGEST = 10_000
#: Part of a budget of time that the rounds may take. It goes before FEWEST_ROUNDS.
SHARE = 0.2
#: Random batches from which the class balance of random batches is estimated.
BATCHES = 200


def calibrate(configs: dict[str, TrainConfig], display: Display, budget: float | None = None) -> dict[str, Any]:
    """Return the seconds per step of each arm, by part. A budget, in seconds, is that of the whole experiment.

    `take_turns` says how.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    found = take_turns({name: ArmSide(config, display) for name, config in configs.items()}, display, budget)
    return {name: {**cost, "load": load} for name, cost in found.items()}


def at_speed_of(kept: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return the costs of arms that were measured later, as if the first of them had had the speed that it had before.
    `kept` is what the first one cost then."""
    if "seconds_per_step" not in kept:
        return found
    scale = kept["seconds_per_step"] / next(iter(found.values()))["seconds_per_step"]

    def scaled(cost: dict[str, Any]) -> dict[str, Any]:
        times = ("seconds_per_step", "evaluation_seconds", "setup_seconds", "refit_seconds")
        parts = {part: scale * seconds for part, seconds in cost["parts"].items()}
        changed = {name: scale * cost[name] for name in times if cost.get(name) is not None}
        return {**cost, **changed, "parts": parts, "wall_factor": kept.get("wall_factor", 1.0)}

    return {arm: scaled(cost) for arm, cost in found.items()}


def take_turns(
    sides: Mapping[str, TimedSide], display: Display, budget: float | None = None, most: int | None = None
) -> dict[str, Any]:
    """Return the seconds per step of each side, by part, and its facts.

    In every round each side has its turn. The result follows from the median, over rounds, of the ratio of the side's
    step time to the first side's: other work on the machine changes that least. The first round does not count, because
    caches fill and kernels compile in it. There are at most ROUNDS more, or `most`. `wall_factor` is the ratio of
    the wall-clock time of the rounds to their time by `smdl.common.clock`, which leaves out waiting for a core.
    """
    most = ROUNDS if most is None else most
    fewest, longest = (FEWEST_ROUNDS, SECONDS) if budget is None else (1, min(SECONDS, SHARE * budget))
    display.phase("calibrating")
    rounds: list[dict[str, dict[str, float]]] = []
    started = time.perf_counter()
    for number in range(most + 1):
        turns = {}
        for name, side in sides.items():
            try:
                turns[name] = side.turn()
            except (DivergedError, NotFiniteError) as error:
                raise DivergedError(f"{name} diverged while it was timed: {error}") from error
            display.step("calibrating", number, most, name)
        if number == 0:
            for side in sides.values():
                fill_cache(side.loader)
            started = time.perf_counter()
        elif all(_total(turn) > 0 for turn in turns.values()):  # on a busy machine the clock may stand still for a turn
            rounds.append(turns)
        if len(rounds) >= fewest and time.perf_counter() - started > longest:
            break
    if not rounds:
        raise ValueError(
            "the steps are too short to be timed on this busy machine: give more seconds, or a larger batch"
        )
    spent = sum(side.steps * _total(turns[name]) for turns in rounds for name, side in sides.items())
    factor = max(1.0, (time.perf_counter() - started) / spent)
    first = median(_total(turns[next(iter(sides))]) for turns in rounds)
    return {name: {**_summary(name, side, rounds, first), "wall_factor": factor} for name, side in sides.items()}


def lengths(configs: dict[str, TrainConfig], display: Display) -> dict[str, Any]:
    """Return the number of steps per epoch of each arm, and the facts of its data; nothing is timed."""
    display.phase("loading")
    splits: dict[str, Splits] = {}
    found = {}
    for name, config in configs.items():
        key = repr(config.data)
        if key not in splits:
            splits[key] = load(config.data)
        facts = _data_facts(splits[key], config)
        steps = steps_per_epoch(facts["samples"], config.batch_size, config.drop_last)
        found[name] = {"steps_per_epoch": steps, **facts}
    return found


def _data_facts(splits: Splits, config: TrainConfig) -> dict[str, Any]:
    """Return sizes, the share of the largest class of the test set, and the class balance that batches would have if
    they were drawn at random."""
    classes = len(splits.classes)
    train, test = (labels_of(part, config.data.name) for part in (splits.train, splits.test))
    rng, size = np.random.default_rng(0), min(config.batch_size, len(train))
    draws = (rng.choice(train, size, replace=False, shuffle=False) for _ in range(BATCHES))
    return {
        "samples": len(train),
        "test_samples": len(test),
        "classes": classes,
        "largest_class": float(np.bincount(test, minlength=classes).max() / len(test)),
        "random_balance": fmean(balance(np.bincount(batch, minlength=classes)) for batch in draws),
    }


class ConfigSide(TimedSide):
    """A run of smdl's own training loop."""

    def __init__(self, config: TrainConfig, display: Display, splits: Splits | None = None, least: int = STEPS) -> None:
        started = time.perf_counter()
        self.run = TrainingRun(config, display, splits)
        self.setup = time.perf_counter() - started
        self.refit = config.refit
        if self.run.loader.strategy.needs_reference:  # where it could not be cached, the set-up is an upper bound
            self.reference_seconds = reference_seconds(config, self.run.splits) or self.setup
        self.begin(self.run.loader, least)
        # A schedule must not end before the turns do: at a learning rate of 0 the weights would not change any more.
        self.run.epochs = max(self.run.epochs, math.ceil(LONGEST / len(self.loader)))
        self._losses = self._train()

    def _train(self) -> Iterator[float]:
        while True:
            yield from self.run.steps()
            self.run.epoch, self.run.meters = self.run.epoch + 1, Meters()

    def step(self) -> None:
        next(self._losses)

    def turn(self) -> dict[str, float]:
        with torch.random.fork_rng(), threads(self.run.config.threads):
            return super().turn()

    def refit_seconds(self) -> float:
        with threads(self.run.config.threads):
            started = clock.now()
            self.run.refit(copy=True)
            return clock.now() - started


class ArmSide(ConfigSide):
    """An arm of an experiment: its evaluation and its data count too."""

    def facts(self) -> dict[str, Any]:
        config, started = self.run.config, time.perf_counter()
        with threads(config.threads):
            self.run.evaluate()
        return {
            "evaluation_seconds": time.perf_counter() - started,
            "setup_seconds": self.setup,
            "steps_per_epoch": len(self.loader),
            **super().facts(),
            **_data_facts(self.run.splits, config),
            "threads": config.threads or torch.get_num_threads(),
        }


def _total(turn: dict[str, float]) -> float:
    return sum(seconds for name, seconds in turn.items() if name != "forwards")


def _summary(name: str, side: TimedSide, rounds: list[dict[str, dict[str, float]]], first: float) -> dict[str, Any]:
    ratios = [_total(turns[name]) / _total(next(iter(turns.values()))) for turns in rounds]
    seconds = first * median(ratios)
    parts = {part: median(turns[name][part] for turns in rounds) for part in rounds[0][name] if part != "forwards"}
    scale = seconds / sum(parts.values())
    return {
        "seconds_per_step": seconds,
        "ratio": median(ratios),
        "ratios": sorted(ratios),
        "parts": {part: scale * spent for part, spent in parts.items()},
        "forwards_per_step": median(turns[name]["forwards"] for turns in rounds),
        **side.facts(),
    }
