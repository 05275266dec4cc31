"""Decks: every sample about as often as its share says, in random order."""

from typing import Any

import numpy as np
import torch

from smdl.common.saved_state import SavedState


class Deck:
    """Samples 0..n-1 in the order in which they are drawn, n draws at a time. In a deck, sample i comes floor(n · p_i)
    times or once more: equal shares give plain passes without repetition."""

    def __init__(self) -> None:
        self._order, self._place = np.zeros(0, np.int64), 0

    @property
    def empty(self) -> bool:
        """Whether the next draw needs a new deck."""
        return self._place >= len(self._order)

    def shuffle(self, shares: np.ndarray, rng: np.random.Generator) -> None:
        """Make the next deck, of shares that sum to 1, (n,)."""
        n, order = len(shares), rng.permutation(len(shares))
        # Systematic sampling: a comb with n teeth over the cumulative shares, in random order.
        reached = np.floor(n * np.cumsum(shares[order]) + rng.random())
        reached[-1] = n if reached[-1] < n else reached[-1]
        counts = np.diff(reached, prepend=0.0).astype(np.int64)
        self._order = rng.permutation(np.repeat(order, counts)[:n])
        self._place = 0

    def draw(self, size: int) -> np.ndarray:
        """Take up to `size` samples from the deck."""
        found = self._order[self._place : self._place + size]
        self._place += len(found)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the deck."""
        return {"order": torch.from_numpy(self._order.copy()), "place": self._place}

    def load_state_dict(self, state: dict[str, Any], samples: int) -> None:
        """Restore a state that `state_dict` returned."""
        saved = SavedState("the state of a deck", state, self.state_dict())
        self._order, self._place = saved.rows("order", samples), saved.count("place")
