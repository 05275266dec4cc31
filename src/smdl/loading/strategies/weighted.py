"""Weighted batches: every sample as often as a weight says."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from smdl.common.messages import choice
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.strategies.deck import Deck
from smdl.loading.strategies.strategy import Strategy, drawn
from smdl.scoring.batches import checksum


class Weighted(Strategy):
    """Draws sample i with p_i = w_i / Σ w. In an epoch, N draws, it comes floor(N · p_i) times or once more, in random
    order. Equal weights are plain passes over the data. With what only the maker of a data set knows as weights, it is
    the `oracle` of comparisons.

    weights   one number ≥ 0 per sample; None: all alike
    """

    needs_all = True

    def __init__(self, weights: Sequence[float] | np.ndarray | None = None) -> None:
        allowed = "one number ≥ 0 per sample, not all of them 0"
        try:
            self._given = given = None if weights is None else np.asarray(weights, np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(choice("weights", weights, allowed)) from error
        if given is not None and (
            given.ndim != 1 or not np.isfinite(given).all() or (given < 0).any() or not given.any()
        ):
            raise ValueError(f"weights must be {allowed}, got shape {given.shape}")
        self._shares, self._deck = np.zeros(0), Deck()

    def prepare(self, samples: int, epochs: int | None) -> None:  # noqa: ARG002
        given = np.ones(samples) if self._given is None else self._given
        if len(given) != samples:
            raise ValueError(f"weights must be one number per sample of the dataset, {samples}, got {len(given)}")
        self._shares = given / given.sum()

    def describe(self) -> str:
        return "Weighted" if self._given is None else f"Weighted by weights {checksum(self._given):08x}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        chosen = self._deck.draw(batch_size)
        while len(chosen) < batch_size:
            self._deck.shuffle(self._shares, rng)
            chosen = np.concatenate([chosen, self._deck.draw(batch_size - len(chosen))])
        return drawn(chosen)

    def state_dict(self) -> dict[str, Any]:
        return self._deck.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._deck.load_state_dict(state, len(self._shares))
