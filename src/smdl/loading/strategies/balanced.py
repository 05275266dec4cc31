"""Class-balanced batches: the usual remedy for classes of different sizes."""

import numpy as np

from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class Balanced(Strategy):
    """Draws each sample of a batch independently and with replacement: a class, each equally likely, then a sample of
    this class, each equally likely. So p(i) = 1 / (number of classes · size of the class of i). An epoch is N draws."""

    needs_all = True
    needs_labels = True

    def __init__(self) -> None:
        self._by_class = self._starts = self._sizes = np.zeros(0, np.int64)

    def set_labels(self, labels: np.ndarray) -> None:
        self._by_class = np.argsort(labels, kind="stable")
        _, self._starts, self._sizes = np.unique(labels[self._by_class], return_index=True, return_counts=True)

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        classes = rng.integers(len(self._sizes), size=batch_size)
        return drawn(self._by_class[self._starts[classes] + rng.integers(self._sizes[classes])])
