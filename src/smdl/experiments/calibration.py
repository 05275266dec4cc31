"""Calibration: what a step of each arm costs, measured once, alone on the machine, the arms taking turns."""

import math
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

import torch

from smdl.candidates import Full
from smdl.strategies.loss_rank import LossRank
from smdl.training.config import TrainConfig
from smdl.training.loop import Run, threads
from smdl.training.meters import Meters
from smdl.training.progress import Display

#: Steps an arm takes in its turn (rounded up to whole refresh windows), and turns.
STEPS, ROUNDS = 10, 5


def calibrate(configs: dict[str, TrainConfig], display: Display, rounds: int = ROUNDS) -> dict[str, Any]:
    """Seconds a step of each arm, by part; medians over rounds in which every arm has its turn. A first turn does not
    count: caches fill, memory is taken, kernels compile."""
    sides = {name: _Side(config) for name, config in configs.items()}
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in sides}
    for number in range(rounds + 1):
        for index, (name, side) in enumerate(sides.items()):
            spent = side.turn()
            if number:
                turns[name].append(spent)
            display.step("calibrating", number * len(sides) + index + 1, (rounds + 1) * len(sides), name)
    return {name: _summary(side, turns[name]) for name, side in sides.items()}


class _Side:
    """A run that is trained for a few steps at a time, and thrown away."""

    def __init__(self, config: TrainConfig) -> None:
        self.run = Run(config)
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


def _summary(side: _Side, turns: list[dict[str, float]]) -> dict[str, Any]:
    parts = {name: median(turn[name] for turn in turns) for name in turns[0] if name != "forwards"}
    totals = [sum(turn[name] for name in parts) for turn in turns]
    started = time.perf_counter()
    with threads(side.run.config.threads):
        side.run.evaluate()
    return {
        "seconds_per_step": median(totals),
        "spread": [min(totals), max(totals)],
        "parts": parts,
        "forwards_per_step": median(turn["forwards"] for turn in turns),
        "evaluation_seconds": time.perf_counter() - started,
        "steps_per_epoch": len(side.run.loader),
        "samples": len(side.run.counts),
        "threads": side.run.config.threads or torch.get_num_threads(),
    }
