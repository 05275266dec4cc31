"""Uniform batches: plain SGD."""

import numpy as np

from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class Uniform(Strategy):
    """Draws every batch with the same probability."""

    draws_seldom = True

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        if batch_size == len(remaining):  # a random pool is shuffled already
            return drawn(remaining)
        return drawn(rng.choice(remaining, batch_size, replace=False))
