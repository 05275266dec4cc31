"""Progressive balancing: from uniform batches to class-balanced ones over the run."""

from typing import Any

import numpy as np

from smdl.common.saved_state import SavedState
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.strategies.deck import Deck
from smdl.loading.strategies.strategy import Strategy, drawn


class Progressive(Strategy):
    """Draws sample i of class c(i) in epoch e of E with p(i) = (1 − t) / N + t / (number of classes · size of c(i)),
    t = e / (E − 1): the first epoch is a plain pass, the last one is class-balanced. So a run of one epoch is a plain
    pass."""

    needs_all = True
    needs_labels = True

    def __init__(self) -> None:
        self._even, self._deck = np.zeros(0), Deck()
        self._epochs, self._epoch = 1, 0

    def prepare(self, samples: int, epochs: int | None) -> None:  # noqa: ARG002
        if epochs is None:
            raise ValueError("progressive needs epochs=, the length of the run, to go from uniform to balanced over it")
        self._epochs = epochs

    def set_labels(self, labels: np.ndarray) -> None:
        _, members, sizes = np.unique(labels, return_inverse=True, return_counts=True)
        self._even = 1 / (len(sizes) * sizes[members])

    def describe(self) -> str:
        return f"Progressive over {self._epochs} epochs"

    def begin_epoch(self, epoch: int) -> None:
        self._epoch, self._deck = epoch, Deck()

    def shares(self, epoch: int) -> np.ndarray:
        """Return p of an epoch, (N,)."""
        t = min(1.0, epoch / max(1, self._epochs - 1))
        return (1 - t) / len(self._even) + t * self._even

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        chosen = self._deck.draw(batch_size)
        while len(chosen) < batch_size:
            self._deck.shuffle(self.shares(self._epoch), rng)
            chosen = np.concatenate([chosen, self._deck.draw(batch_size - len(chosen))])
        return drawn(chosen)

    def state_dict(self) -> dict[str, Any]:
        return {"deck": self._deck.state_dict(), "epoch": self._epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = SavedState("the state of Progressive", state, self.state_dict())
        epoch = saved.count("epoch")
        self._deck.load_state_dict(saved["deck"], len(self._even))
        self._epoch = epoch
