"""Strategy: what the loader asks for a batch."""

from typing import Any

import numpy as np

from smdl.pool import Pool
from smdl.selection import Selection

#: A batch size: a number, or (fewest, most) for strategies that decide themselves.
Size = int | tuple[int, int]


class Strategy:
    """Chooses each batch. A strategy of your own overrides `select`, and says here what it needs.

    scores       select looks at a pool: the model's features, probabilities and losses of the candidates
    reference    ... and at the features of the reference model
    learns       observe is told the loss of every sample trained on
    replacement  draws from all of V by its own rule; what the epoch has left is not its concern
    """

    scores: bool = False
    reference: bool = False
    learns: bool = False
    replacement: bool = False

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: Size, rng: np.random.Generator) -> Selection:
        """A batch out of `remaining`, which are rows of the pool.

        pool    None unless `scores`; a strategy that also learns sees it at a refresh only
        rng     belongs to this step: the same (seed, epoch, step) gives the same draws
        """
        raise NotImplementedError

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:
        """The losses of the batch just trained on, by number in the dataset."""

    def describe(self) -> str:
        """What a saved state must agree on with the strategy that loads it."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """What `load_state_dict` needs to go on; tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up a state that `state_dict` gave."""


def drawn(indices: np.ndarray) -> Selection:
    """A selection that maximised nothing."""
    return Selection(indices.astype(np.int64), np.zeros(len(indices)), 0.0)
