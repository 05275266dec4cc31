"""Calibration: what a step of each arm costs, measured once, before any run, the arms taking turns."""

import math
import os
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from smdl.candidates import Full
from smdl.scoring import NotFiniteError
from smdl.strategies.loss_rank import LossRank
from smdl.training.config import TrainConfig
from smdl.training.datasets.load import load
from smdl.training.loop import DivergedError, Run, threads
from smdl.training.meters import Meters
from smdl.training.progress import Display

#: Steps an arm takes in its turn (rounded up to whole refresh windows); rounds, fewer if they take too many seconds.
STEPS, ROUNDS, FEWEST_ROUNDS, SECONDS = 10, 15, 4, 90.0


def calibrate(configs: dict[str, TrainConfig], display: Display) -> dict[str, Any]:
    """Seconds a step of each arm, by part. In every round each arm has its turn; what counts is the median over the
    rounds of an arm's seconds over the first arm's, which what else the machine does changes least. A first round does
    not count: caches fill, memory is taken, kernels compile."""
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
    """How many steps make an epoch of each arm; nothing is timed."""
    samples: dict[str, int] = {}
    found = {}
    for name, config in configs.items():
        key = repr(config.data)
        if key not in samples:
            samples[key] = len(load(config.data).train)  # type: ignore[arg-type]
        if not isinstance(config.batch_size, int):
            raise ValueError("an adaptive batch size cannot be compared: its epochs have no fixed number of steps")
        n, b = samples[key], config.batch_size
        found[name] = {"steps_per_epoch": n // b if config.drop_last else math.ceil(n / b), "samples": n}
    return found


class _Side:
    """A run that is trained for a few steps at a time, and thrown away."""

    def __init__(self, config: TrainConfig) -> None:
        started = time.perf_counter()
        self.run = Run(config)
        self.setup = time.perf_counter() - started
        if isinstance(self.run.loader.batch_size, tuple):
            raise ValueError("an adaptive batch size cannot be calibrated: its epochs have no fixed number of steps")
        if isinstance(self.run.loader.strategy, LossRank):
            self.run.loader.strategy.skip_first_pass(len(self.run.counts))  # which is cheaper than what follows
        refresh = self.run.loader.refresh
        every = refresh.every if isinstance(refresh, Full) and self.run.loader.strategy.scores else 1
        self.steps = every * math.ceil(STEPS / every)
        self._endless = self._train()

    def _train(self) -> Iterator[float]:
        while True:
            yield from self.run.steps()
            self.run.epoch += 1

    def turn(self) -> dict[str, float]:
        """Seconds a step of one turn, by part; and the forwards a step."""
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
