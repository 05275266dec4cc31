"""Calibration: measure what a step of each arm costs, once, before any run, the arms taking turns."""

import math
import os
import time
from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

import numpy as np
import torch

from smdl.candidates.source import steps_per_epoch
from smdl.scoring import NotFiniteError
from smdl.training.build import reference_seconds
from smdl.training.config import TrainConfig
from smdl.training.datasets.load import Splits, load
from smdl.training.datasets.user_dataset import labels_of
from smdl.training.loop import DivergedError, Run, threads
from smdl.training.meters import Meters, balance
from smdl.training.progress import Display

#: Steps per turn (rounded up to whole periods of the source); number of rounds, fewer if they take too many seconds.
STEPS, ROUNDS, FEWEST_ROUNDS, SECONDS = 10, 15, 4, 90.0
#: Part of a budget of time that the rounds may take. It goes before FEWEST_ROUNDS.
SHARE = 0.2
#: Random batches from which the class balance of random batches is estimated.
BATCHES = 200


def calibrate(configs: dict[str, TrainConfig], display: Display, budget: float | None = None) -> dict[str, Any]:
    """Return the seconds per step of each arm, by part. A budget, in seconds, is that of the whole experiment.

    In every round each arm has its turn. The result follows from the median, over rounds, of the ratio of the arm's
    step time to the first arm's: other work on the machine changes that least. The first round does not count, because
    caches fill and kernels compile in it.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    fewest, longest = (FEWEST_ROUNDS, SECONDS) if budget is None else (1, min(SECONDS, SHARE * budget))
    sides = {name: _Side(config, display) for name, config in configs.items()}
    display.phase("calibrating")
    rounds: list[dict[str, dict[str, float]]] = []
    started = time.perf_counter()
    for number in range(ROUNDS + 1):
        turns = {}
        for name, side in sides.items():
            try:
                turns[name] = side.turn()
            except (DivergedError, NotFiniteError) as error:
                raise DivergedError(f"{name} diverged while it was timed: {error}") from error
            display.step("calibrating", number, ROUNDS, name)
        if number == 0:
            started = time.perf_counter()
        else:
            rounds.append(turns)
        if number >= fewest and time.perf_counter() - started > longest:
            break
    first = median(_total(turns[next(iter(sides))]) for turns in rounds)
    return {name: {**_summary(name, side, rounds, first), "load": load} for name, side in sides.items()}


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


class _Side:
    """A run that is trained a few steps at a time, only to time it."""

    def __init__(self, config: TrainConfig, display: Display) -> None:
        started = time.perf_counter()
        self.run = Run(config, display)
        self.setup = time.perf_counter() - started
        loader = self.run.loader
        self.reference_seconds: float | None = None
        if loader.strategy.needs_reference:  # where it could not be cached, the set-up is an upper bound
            self.reference_seconds = reference_seconds(config, self.run.splits) or self.setup
        loader.strategy.skip_warm_up()
        loader.candidates.skip_warm_up()
        period = loader.candidates.period(len(loader)) if loader.strategy.needs_scores else 1
        self.steps = period * math.ceil(STEPS / period)
        self._endless = self._train()

    def _train(self) -> Iterator[float]:
        while True:
            yield from self.run.steps()
            self.run.epoch += 1

    def turn(self) -> dict[str, float]:
        """Train one turn; return the seconds per step by part, and the forwards per step."""
        self.run.meters = Meters()
        with torch.random.fork_rng(), threads(self.run.config.threads):
            for _ in range(self.steps):
                next(self._endless)
        meters = self.run.meters
        spent = {name: seconds / self.steps for name, seconds in meters.seconds.items() if name != "evaluation"}
        return {**spent, "forwards": meters.forwards / self.steps}

    def epoch_seconds(self) -> float:
        """Return the seconds per step that the start of an epoch adds to those of the turns, which rarely see one."""
        loader = self.run.loader
        if self.steps >= len(loader):  # every turn sees one
            return 0.0
        with threads(self.run.config.threads):
            noisy = self.run.config.data.label_noise > 0  # the samples that fill the cache do not show it
            return median(loader.epoch_start_seconds(noisy) for _ in range(3)) / len(loader)


def _total(turn: dict[str, float]) -> float:
    return sum(seconds for name, seconds in turn.items() if name != "forwards")


def _summary(name: str, side: _Side, rounds: list[dict[str, dict[str, float]]], first: float) -> dict[str, Any]:
    extra = side.epoch_seconds()
    ratios = [(_total(turns[name]) + extra) / _total(next(iter(turns.values()))) for turns in rounds]
    seconds = first * median(ratios)
    parts = {part: median(turns[name][part] for turns in rounds) for part in rounds[0][name] if part != "forwards"}
    parts["selection"] += extra
    scale = seconds / sum(parts.values())
    started = time.perf_counter()
    with threads(side.run.config.threads):
        side.run.evaluate()
    return {
        "seconds_per_step": seconds,
        "ratio": median(ratios),
        "ratios": sorted(ratios),
        "parts": {part: scale * spent for part, spent in parts.items()},
        "forwards_per_step": median(turns[name]["forwards"] for turns in rounds),
        "evaluation_seconds": time.perf_counter() - started,
        "setup_seconds": side.setup,
        "steps_per_epoch": len(side.run.loader),
        "reference_seconds": side.reference_seconds,
        **_data_facts(side.run.splits, side.run.config),
        "threads": side.run.config.threads or torch.get_num_threads(),
    }
