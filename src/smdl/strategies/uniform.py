"""Uniform batches: plain SGD."""

import numpy as np

from smdl.pool import Pool
from smdl.selection import Selection
from smdl.strategies.strategy import Size, Strategy, drawn


class Uniform(Strategy):
    """Every batch is equally likely; each sample comes once an epoch."""

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: Size, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        size = batch_size if isinstance(batch_size, int) else batch_size[1]
        if size == len(remaining):  # the loader's deck is shuffled
            return drawn(remaining)
        return drawn(rng.choice(remaining, size, replace=False))
