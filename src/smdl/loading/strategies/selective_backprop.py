"""Selective Backprop (Jiang et al. 2019), as Composer implements it."""

import numpy as np

from smdl.common.messages import number, whole_number
from smdl.engine.pool import Pool, host
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class SelectiveBackprop(Strategy):
    """Draws b of the B samples of a pool without replacement, sample r of the order by loss (lowest first) with
    p_r ∝ ((r + ½) / B)^(B/b − 1). It does so from the part `start` to the part `end` of the run, and there at all steps
    but every `interrupt`-th; the other batches are drawn at random and forward nothing.

    interrupt   0 leaves out no step
    """

    needs_scores = True
    evidence = frozenset({"losses"})
    needs_length = True

    def __init__(self, start: float = 0.5, end: float = 0.9, interrupt: int = 2) -> None:
        self.start = number("start", start, "a part of the run, in [0, 1]", low=0.0, high=1.0)
        self.end = number("end", end, "a part of the run, in [start, 1]", low=self.start, high=1.0)
        self.interrupt = whole_number("interrupt", interrupt, 0)
        self.epochs = 0

    def prepare(self, samples: int, epochs: int | None) -> None:  # noqa: ARG002
        if epochs is None:
            raise ValueError("selective_backprop needs epochs=, the length of the run")
        self.epochs = epochs

    def describe(self) -> str:
        when = f"from {self.start:g} to {self.end:g} of {self.epochs} epochs"
        return f"SelectiveBackprop, {when}, interrupt {self.interrupt}"

    def selects_at(self, epoch: int, step: int, steps: int) -> bool:
        done = (epoch + step / steps) / self.epochs
        interrupted = self.interrupt > 0 and (step + 1) % self.interrupt == 0
        return self.start <= done < self.end and not interrupted

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        assert pool is not None
        assert pool.losses is not None
        by_loss = np.argsort(host(pool.losses)[remaining], kind="stable")
        places = rng.choice(len(remaining), batch_size, replace=False, p=probabilities(len(remaining), batch_size))
        return drawn(remaining[by_loss[places]])


def probabilities(samples: int, kept: int) -> np.ndarray:
    """Return the probability of each rank, the lowest loss first, (samples,)."""
    powers = ((np.arange(samples) + 0.5) / samples) ** (samples / kept - 1.0)
    return powers / powers.sum()
