"""Calibration: measure what a step of each arm costs, once, before any run, the arms taking turns."""

import math
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from smdl.candidates.source import steps_per_epoch
from smdl.scoring import NotFiniteError
from smdl.training.config import TrainConfig
from smdl.training.datasets.load import load
from smdl.training.loop import DivergedError, Run, threads
from smdl.training.meters import Meters
from smdl.training.progress import Display

#: Steps per turn (rounded up to whole periods of the source); number of rounds, fewer if they take too many seconds.
STEPS, ROUNDS, FEWEST_ROUNDS, SECONDS = 10, 15, 4, 90.0


def calibrate(configs: dict[str, TrainConfig], display: Display) -> dict[str, Any]:
    """Return the seconds per step of each arm, by part.

    In every round each arm has its turn. The result follows from the median, over rounds, of the ratio of the arm's
    step time to the first arm's: other work on the machine changes that least. The first round does not count, because
    caches fill and kernels compile in it.
    """
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    sides = {name: _Side(config) for name, config in configs.items()}
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
        if number >= FEWEST_ROUNDS and time.perf_counter() - started > SECONDS:
            break
    first = median(_total(turns[next(iter(sides))]) for turns in rounds)
    return {name: {**_summary(name, side, rounds, first), "load": load} for name, side in sides.items()}


def lengths(configs: dict[str, TrainConfig], display: Display) -> dict[str, Any]:  # noqa: ARG001
    """Return the number of steps per epoch of each arm; nothing is timed."""
    samples: dict[str, int] = {}
    found = {}
    for name, config in configs.items():
        key = repr(config.data)
        if key not in samples:
            samples[key] = len(load(config.data).train)  # type: ignore[arg-type]
        steps = steps_per_epoch(samples[key], config.batch_size, config.drop_last)
        found[name] = {"steps_per_epoch": steps, "samples": samples[key]}
    return found


class _Side:
    """A run that is trained a few steps at a time, only to time it."""

    def __init__(self, config: TrainConfig) -> None:
        started = time.perf_counter()
        self.run = Run(config)
        self.setup = time.perf_counter() - started
        loader = self.run.loader
        loader.strategy.skip_warm_up()
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


def _total(turn: dict[str, float]) -> float:
    return sum(seconds for name, seconds in turn.items() if name != "forwards")


def _summary(name: str, side: _Side, rounds: list[dict[str, dict[str, float]]], first: float) -> dict[str, Any]:
    ratios = [_total(turns[name]) / _total(next(iter(turns.values()))) for turns in rounds]
    seconds = first * median(ratios)
    parts = {part: median(turns[name][part] for turns in rounds) for part in rounds[0][name] if part != "forwards"}
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
        "samples": len(side.run.counts),
        "threads": side.run.config.threads or torch.get_num_threads(),
    }
