"""Loss-based batches: online batch selection of Loshchilov & Hutter (2015), the paper's second baseline."""

import math
from typing import Any

import numpy as np
import torch

from smdl.common.messages import number, true_or_false, whole_number
from smdl.common.saved_state import SavedState
from smdl.engine.pool import Pool, host
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class LossRank(Strategy):
    """Ranks samples by their latest known loss, highest first, and draws rank i of N with
    p_i ∝ 1 / exp(ln(s_e) / N)^i, independently and with replacement. An epoch is N draws, the first a plain pass.

    pressure        s_0: the ratio of the probability of the first rank to that of the last. 1 is uniform.
    final_pressure  s_E at the end of the run; s_e = pressure · (final_pressure / pressure)^(e / epochs)
    sort_every      samples drawn between two sortings
    recompute       take the losses of all samples at every refresh of Full (the method's r_ratio = 1), instead
                    of only from training
    """

    needs_losses = True
    needs_all = True

    def __init__(
        self, pressure: float = 100.0, final_pressure: float = 1.0, *, sort_every: int = 100, recompute: bool = False
    ) -> None:
        self.first = number("pressure", pressure, "a number ≥ 1 (1 is uniform)", low=1.0)
        self.last = number("final_pressure", final_pressure, "a number ≥ 1 (1 is uniform)", low=1.0)
        self.sort_every, self.needs_scores = (
            whole_number("sort_every", sort_every),
            true_or_false("recompute", recompute),
        )
        self.epochs: int | None = None
        self._drawn, self._since_sort = 0, self.sort_every  # the order of the plain pass is no ranking
        self._losses, self._order = np.zeros(0), np.zeros(0, np.int64)

    def prepare(self, samples: int, epochs: int | None) -> None:
        if epochs is None and self.first != self.last:
            raise ValueError(
                f"a pressure that decays from {self.first:g} to {self.last:g} needs epochs=, the length of the run."
                " For a constant pressure pass the same value as pressure and final_pressure"
            )
        self.epochs, self._losses = epochs, np.full(samples, np.inf)

    def describe(self) -> str:
        length = f" over {self.epochs} epochs" if self.first != self.last else ""
        return f"LossRank, pressure {self.first:g} to {self.last:g}{length}, recompute {self.needs_scores}"

    def pressure(self, epoch: int) -> float:
        """Return s_e, which is constant within an epoch."""
        if self.epochs is None:
            return self.first
        return self.first * (self.last / self.first) ** (min(epoch, self.epochs) / self.epochs)

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        n = len(self._losses)
        if len(self._order) == 0:
            self._order = rng.permutation(n)
        if pool is not None and pool.losses is not None:
            self._losses = host(pool.losses).astype(np.float64)
            self._since_sort = self.sort_every
        chosen = self._order[self._drawn : self._drawn + batch_size] if self._drawn < n else self._order[:0]
        if len(chosen) < batch_size:  # the first epoch is one plain pass
            chosen = np.concatenate([chosen, self._draw(batch_size - len(chosen), rng)])
        self._drawn += batch_size
        self._since_sort += batch_size
        return drawn(chosen)

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
        saved, n = SavedState("the state of LossRank", state, self.state_dict()), len(self._losses)
        losses, order = saved.numbers("losses", n), saved.rows("order", n, once=True)
        if len(order) not in (0, n):
            raise ValueError(f"order must hold each of 0..{n - 1}, got {len(order)} of them")
        drawn, since = saved.count("drawn"), saved.count("since_sort")
        self._losses, self._order, self._drawn, self._since_sort = losses, order, drawn, since


def ranks(uniform: np.ndarray, n: int, pressure: float) -> np.ndarray:
    """Map numbers in [0, 1) to ranks 0..n-1 with p_i ∝ pressure^(−i/n): the inverse of the geometric cumulative sum."""
    if pressure == 1:
        return np.minimum((uniform * n).astype(np.int64), n - 1)
    decay = math.log(pressure) / n
    below = -np.log1p(uniform * math.expm1(-decay * n)) / decay
    return np.minimum(below.astype(np.int64), n - 1)
