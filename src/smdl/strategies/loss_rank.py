"""Loss-based batches: online batch selection of Loshchilov & Hutter (2015), the paper's second baseline."""

import math
from typing import Any

import numpy as np
import torch

from smdl.errors import choice
from smdl.pool import Pool, host
from smdl.selection import Selection
from smdl.strategies.strategy import Size, Strategy, drawn


class LossRank(Strategy):
    """Samples are ranked by their latest known loss, highest first; rank i of N is drawn with
    p_i ∝ 1 / exp(ln(s_e) / N)^i, independently and with replacement. An epoch is N draws, the first a plain pass.

    pressure     s_e, how many times likelier the first rank is than the last; (first, last) decays it from epoch to
                 epoch as first · (last / first)^(e / epochs). 1 is uniform.
    epochs       of the run; needed for a decay
    sort_every   samples drawn between two sortings
    recompute    take the losses of all of V at every refresh of the loader (the method's r_ratio = 1), instead of
                 only from training
    """

    learns = True
    replacement = True

    def __init__(
        self,
        pressure: float | tuple[float, float] = 100.0,
        *,
        epochs: int | None = None,
        sort_every: int = 100,
        recompute: bool = False,
    ) -> None:
        self.first, self.last = pressure if isinstance(pressure, tuple) else (pressure, pressure)
        for value in (self.first, self.last):
            if not (math.isfinite(value) and value >= 1):
                raise ValueError(choice("pressure", value, "a number ≥ 1 (1 is uniform)"))
        if self.first != self.last and epochs is None:
            raise ValueError("a pressure that decays needs epochs=, the length of the run")
        if sort_every < 1:
            raise ValueError(choice("sort_every", sort_every, "a whole number ≥ 1"))
        self.epochs, self.sort_every, self.scores = epochs, sort_every, recompute
        self._drawn, self._since_sort = 0, sort_every  # the order of the plain pass is no ranking
        self._losses = self._order = np.zeros(0)

    def describe(self) -> str:
        return f"LossRank, pressure {self.first:g} to {self.last:g} over {self.epochs} epochs, recompute {self.scores}"

    def pressure(self, epoch: int) -> float:
        """s_e; constant within an epoch."""
        if self.epochs is None:
            return self.first
        return self.first * (self.last / self.first) ** (min(epoch, self.epochs) / self.epochs)

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: Size, rng: np.random.Generator) -> Selection:
        n, size = len(remaining), batch_size if isinstance(batch_size, int) else batch_size[1]
        if len(self._order) == 0:
            self._losses, self._order = np.full(n, np.inf), rng.permutation(n)
        if pool is not None and pool.losses is not None:
            self._losses = host(pool.losses).astype(np.float64)
            self._since_sort = self.sort_every
        if self._drawn < n:  # the first epoch is one plain pass
            chosen = self._order[self._drawn : self._drawn + size]
            if len(chosen) < size:
                chosen = np.concatenate([chosen, self._draw(size - len(chosen), rng)])
        else:
            chosen = self._draw(size, rng)
        self._drawn += size
        self._since_sort += size
        return drawn(chosen)

    def skip_first_pass(self, n: int) -> None:
        """Draw by rank from the first batch on, as if the plain pass over the n samples lay behind."""
        self._losses, self._order, self._drawn = np.full(n, np.inf), np.arange(n), n
        self._since_sort = self.sort_every

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:
        self._losses[indices] = losses

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        n = len(self._order)
        if self._since_sort >= self.sort_every:
            self._order = np.argsort(-self._losses, kind="stable")  # unknown losses are infinite: first
            self._since_sort = 0
        return self._order[ranks(rng.random(size), n, self.pressure(self._drawn // n))]

    def state_dict(self) -> dict[str, Any]:
        return {
            "drawn": self._drawn,
            "since_sort": self._since_sort,
            "losses": torch.from_numpy(self._losses.copy()),
            "order": torch.from_numpy(self._order.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drawn, self._since_sort = int(state["drawn"]), int(state["since_sort"])
        self._losses, self._order = host(state["losses"]).copy(), host(state["order"]).copy()


def ranks(uniform: np.ndarray, n: int, pressure: float) -> np.ndarray:
    """Numbers in [0, 1) -> ranks 0..n-1 with p_i ∝ pressure^(−i/n): the inverse of the geometric cumulative sum."""
    if pressure == 1:
        return np.minimum((uniform * n).astype(np.int64), n - 1)
    decay = math.log(pressure) / n
    below = -np.log1p(uniform * math.expm1(-decay * n)) / decay
    return np.minimum(below.astype(np.int64), n - 1)
