"""InfoBatch (Qin et al. 2024): leave out half of the samples with a loss below the mean, weight the rest of them."""

from typing import Any

import numpy as np
import torch

from smdl.common.messages import number
from smdl.common.saved_state import SavedState
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class InfoBatch(Strategy):
    """Draws shuffled passes over the samples. Before each pass, the part `prune` of the samples whose latest loss is
    below the mean is left out at random, and the others of them get the weight 1 / (1 − prune). Passes that begin after
    the part `delta` of the run have all samples. A pass may end within an epoch of the loader, which is always N draws.

    prune   part of the samples below the mean that a pass leaves out
    delta   part of the run after which nothing is left out
    """

    needs_losses = True
    needs_all = True

    def __init__(self, prune: float = 0.5, delta: float = 0.875) -> None:
        self.prune = number("prune", prune, "a number in [0, 0.9]", low=0.0, high=0.9)
        self.delta = number("delta", delta, "a part of the run, in [0, 1]", low=0.0, high=1.0)
        self.epochs: int | None = None
        self._drawn = self._place = 0
        self._losses, self._order, self._weights = np.zeros(0), np.zeros(0, np.int64), np.zeros(0)

    def prepare(self, samples: int, epochs: int | None) -> None:
        if epochs is None and self.delta < 1:
            raise ValueError(
                f"InfoBatch needs epochs=, the length of the run, to use all samples after {self.delta:g} of it."
                " Without it pass delta=1"
            )
        self.epochs, self._losses = epochs, np.full(samples, np.nan)  # NaN: not known yet

    def describe(self) -> str:
        length = f" of {self.epochs} epochs" if self.delta < 1 else ""
        return f"InfoBatch, prune {self.prune:g}, delta {self.delta:g}{length}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        indices, weights, missing = [], [], batch_size
        while missing:
            if self._place == len(self._order):
                self._begin_pass(rng, np.concatenate(indices) if indices else self._order[:0])
            part = slice(self._place, self._place + missing)
            indices.append(self._order[part])
            weights.append(self._weights[part])
            self._place += len(indices[-1])
            missing -= len(indices[-1])
        self._drawn += batch_size
        factors = np.concatenate(weights)
        return drawn(np.concatenate(indices), None if (factors == 1).all() else factors)

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:
        self._losses[indices] = losses

    def _begin_pass(self, rng: np.random.Generator, taken: np.ndarray) -> None:
        """Shuffle the samples of a pass. Those that the current batch has `taken` come last, so that it has none twice
        if the pass has enough others."""
        n, factors = len(self._losses), np.ones(len(self._losses))
        known = ~np.isnan(self._losses)
        below = np.zeros(n, bool)
        if known.any() and (self.epochs is None or self._drawn < self.delta * self.epochs * n):
            below[known] = self._losses[known] < self._losses[known].mean()
        easy, keep = np.flatnonzero(below), 1.0 - self.prune
        kept = rng.choice(easy, int(keep * len(easy)), replace=False)
        factors[kept] = 1.0 / keep
        order = rng.permutation(np.concatenate([np.flatnonzero(~below), kept]))
        again = np.isin(order, taken)
        self._order = np.concatenate([order[~again], order[again]])
        self._weights, self._place = factors[self._order], 0

    def state_dict(self) -> dict[str, Any]:
        return {
            "drawn": self._drawn,
            "place": self._place,
            "losses": torch.from_numpy(self._losses.copy()),
            "order": torch.from_numpy(self._order.copy()),
            "weights": torch.from_numpy(self._weights.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved, n = SavedState("the state of InfoBatch", state, self.state_dict()), len(self._losses)
        losses, order = saved.numbers("losses", n, unknown=True), saved.rows("order", n, once=True)
        weights, drawn, place = saved.numbers("weights", len(order), low=1), saved.count("drawn"), saved.count("place")
        if place > len(order):
            raise ValueError(f"place must be in the pass of {len(order)} samples, got {place}")
        self._losses, self._order, self._weights, self._drawn, self._place = losses, order, weights, drawn, place
