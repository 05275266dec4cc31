"""Evolved Sampling (Cheng, Li & Bian 2025): samples by their running loss and its difference to the latest loss."""

import math
from typing import Any

import numpy as np
import torch

from smdl.errors import check_keys, number, whole_number
from smdl.pool import Pool, host
from smdl.selection import Selection
from smdl.strategies.strategy import Strategy, drawn


class EvolvedSampling(Strategy):
    """Draws a random meta-batch and b samples of it, without replacement, with p_i ∝ w_i. A loss l of sample i changes

        w_i ← β1 s_i + (1 − β1) l        then        s_i ← β2 s_i + (1 − β2) l

    so that w = s + (β2 − β1) (l − s before): the running loss plus a part of its difference to the latest loss. The
    losses are those of the training forward. The first epoch is one plain pass; batches of the last part `anneal` of
    the run are drawn at random.

    factor          size of the meta-batch, in batches
    beta1, beta2    β1 and β2
    """

    needs_losses = True
    needs_all = True

    def __init__(self, factor: float = 4.0, beta1: float = 0.2, beta2: float = 0.9, anneal: float = 0.05) -> None:
        self.factor = number("factor", factor, "a number ≥ 1", low=1.0)
        self.beta1 = number("beta1", beta1, "a number in [0, 1]", low=0.0, high=1.0)
        self.beta2 = number("beta2", beta2, "a number in [0, 1]", low=0.0, high=1.0)
        self.anneal = number("anneal", anneal, "a part of the run, in [0, 1]", low=0.0, high=1.0)
        self.epochs: int | None = None
        self._drawn, self._order = 0, np.zeros(0, np.int64)
        self._running = self._weights = np.zeros(0)

    def prepare(self, samples: int, epochs: int | None) -> None:
        if epochs is None and self.anneal > 0:
            raise ValueError(
                "evolved_sampling needs epochs=, the length of the run, to draw the batches of its last part at random."
                " Without it pass anneal=0"
            )
        self.epochs = epochs
        self._running, self._weights = np.full(samples, 1.0 / samples), np.full(samples, 1.0 / samples)

    def describe(self) -> str:
        length = f" of {self.epochs} epochs" if self.anneal else ""
        betas = f"beta1 {self.beta1:g}, beta2 {self.beta2:g}"
        return f"EvolvedSampling, factor {self.factor:g}, {betas}, anneal {self.anneal:g}{length}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        n = len(self._running)
        if len(self._order) == 0:
            self._order = rng.permutation(n)
        chosen = self._order[self._drawn : self._drawn + batch_size]  # empty after the first pass
        if len(chosen) < batch_size:
            chosen = np.concatenate([chosen, self._draw(batch_size - len(chosen), rng)])
        self._drawn += batch_size
        return drawn(chosen)

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:
        before = self._running[indices]
        self._weights[indices] = self.beta1 * before + (1 - self.beta1) * losses
        self._running[indices] = self.beta2 * before + (1 - self.beta2) * losses

    def skip_warm_up(self) -> None:
        """Draw by the weights from now on: the plain pass of the first epoch is cheaper."""
        self._order, self._drawn = np.arange(len(self._running)), len(self._running)

    def _draw(self, size: int, rng: np.random.Generator) -> np.ndarray:
        n = len(self._running)
        if self.epochs is not None and self._drawn >= (1 - self.anneal) * self.epochs * n:
            return rng.choice(n, size, replace=False)
        among = rng.choice(n, min(n, math.ceil(self.factor * size)), replace=False)
        weights = np.maximum(self._weights[among], np.finfo(np.float32).tiny)  # a loss of 0 can be drawn as well
        return rng.choice(among, size, replace=False, p=weights / weights.sum())

    def state_dict(self) -> dict[str, Any]:
        return {
            "drawn": self._drawn,
            "order": torch.from_numpy(self._order.copy()),
            "running": torch.from_numpy(self._running.copy()),
            "weights": torch.from_numpy(self._weights.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_keys("the state of EvolvedSampling", state, self.state_dict())
        n, order = len(self._running), host(state["order"]).copy()
        if len(order) and not np.array_equal(np.sort(order), np.arange(n)):
            raise ValueError(f"order must hold each of 0..{n - 1} once")
        running, weights = (host(state[name]).copy() for name in ("running", "weights"))
        for name, values in (("running", running), ("weights", weights)):
            if values.shape != (n,) or not np.isfinite(values).all():
                raise ValueError(f"{name} must be {n} finite numbers, got {values}")
        self._drawn = whole_number("drawn", state["drawn"], 0)
        self._order, self._running, self._weights = order, running, weights
