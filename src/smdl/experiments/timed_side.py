"""One side of a measurement in turns: an arm that is trained a few steps at a time, only to time it."""

import math
from typing import Any

import torch

from smdl.common import clock
from smdl.experiments.typical_step import make_typical
from smdl.loading.candidates.full import Full
from smdl.loading.head_refit import refit_head
from smdl.loading.loader import DataLoader

#: Steps per turn.
STEPS = 10


class Stopwatch:
    """Measures a turn of a loader, from now on."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._before, self._forwards, self._started = dict(loader.seconds), loader.forwards, _now()

    def per_step(self, steps: int) -> dict[str, float]:
        """Return the seconds per step by part, and the forwards per step. What the loader did not spend is training."""
        total = _now() - self._started
        parts = {name: now - self._before[name] for name, now in self._loader.seconds.items()}
        parts["training"] = total - sum(parts.values())
        found = {name: spent / steps for name, spent in parts.items()}
        return {**found, "forwards": (self._loader.forwards - self._forwards) / steps}


def _now() -> float:
    """Return the time when the device has done all work that it was given."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
    return clock.now()


class TimedSide:
    """An arm that is trained a few steps at a time, only to time it."""

    reference_seconds: float | None = None  # of training a reference model, once per run
    refit: str | None = None  # how the head is fitted again, once per run

    def begin(self, loader: DataLoader, least: int = STEPS) -> None:
        """Use a loader as in the middle of a run. A turn has at least this many steps, and as many before each refresh
        of `smdl.Full`."""
        if loader.strategy.needs_reference and self.reference_seconds is None:
            started = clock.now()
            loader.reference_features()
            self.reference_seconds = clock.now() - started
        make_typical(loader)
        candidates, refreshed = loader.candidates, loader.strategy.needs_scores
        period = candidates.period(len(loader)) if isinstance(candidates, Full) and refreshed else 1
        self.loader, self.steps = loader, period * math.ceil(least / period)

    def step(self) -> None:
        """Train one step, for `turn`."""
        raise NotImplementedError

    def turn(self) -> dict[str, float]:
        """Train one turn; return the seconds per step by part, and the forwards per step."""
        watch = Stopwatch(self.loader)
        for _ in range(self.steps):
            self.step()
        return watch.per_step(self.steps)

    def facts(self) -> dict[str, Any]:
        """Return what else is known after the turns, such as the seconds of an evaluation."""
        return {"reference_seconds": self.reference_seconds, "refit_seconds": self.refit and self.refit_seconds()}

    def refit_seconds(self) -> float:
        """Return the seconds of fitting a copy of the head again. Of a few steps not every class is known, so all
        samples count alike."""
        started = clock.now()
        refit_head(self.loader.model, self.loader, "none", copy=True)
        return clock.now() - started
