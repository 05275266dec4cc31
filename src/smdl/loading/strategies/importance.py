"""Importance sampling by a bound of the gradient norm (Katharopoulos & Fleuret 2018)."""

from typing import Any

import numpy as np
import torch

from smdl.common.messages import number
from smdl.common.saved_state import SavedState
from smdl.engine.pool import Pool, host
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class Importance(Strategy):
    """Draws b of the B samples of a pool, with replacement, with p_i ∝ ‖p − onehot(y)‖, and gives them the weights
    1 / (B p_i). It does so only while τ, the smoothed gain in variance, is above a threshold; otherwise it forwards no
    pool and draws at random.

    threshold   τ above which it samples by importance. (B + 3b) / 3b pays for B forwards if a backward costs two
                forwards: 2 for a pool of three batches
    momentum    of the smoothing: τ ← momentum · τ + (1 − momentum) · τ of the step
    """

    needs_scores = True
    evidence = frozenset({"errors"})
    needs_losses = True
    needs_errors = True
    gathers = True

    def __init__(self, threshold: float = 2.0, momentum: float = 0.9) -> None:
        self.threshold = number("threshold", threshold, "a number ≥ 0 (0 always samples by importance)", low=0.0)
        self.momentum = number("momentum", momentum, "a number in [0, 1)", low=0.0, high=1.0 - 2.0**-53)
        self.tau = 0.0
        self._sampled, self._observed = False, np.zeros(0)  # norms of the batch that was drawn at random

    def describe(self) -> str:
        return f"Importance, threshold {self.threshold:g}, momentum {self.momentum:g}"

    def scores_now(self) -> bool:
        self._take_observed()
        return self.tau > self.threshold

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        self._take_observed()
        self._sampled = pool is not None and self.tau > self.threshold
        if pool is None or not self._sampled:
            return drawn(rng.choice(remaining, batch_size, replace=False))
        norms = host(pool.errors.norm(dim=1)).astype(np.float64)[remaining]
        p = probabilities(norms)
        self._smooth(self.gather(norms))
        places = rng.choice(len(remaining), batch_size, p=p)
        return drawn(remaining[places], 1.0 / (len(remaining) * p[places]))

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:  # noqa: ARG002
        if not self._sampled:
            self._observed = np.concatenate([self._observed, losses])

    def _take_observed(self) -> None:
        """Smooth τ by a batch that was drawn at random, once all of it was observed."""
        if len(self._observed):
            self._smooth(self._observed)
            self._observed = np.zeros(0)

    def _smooth(self, norms: np.ndarray) -> None:
        self.tau = self.momentum * self.tau + (1 - self.momentum) * variance_gain(norms)

    def state_dict(self) -> dict[str, Any]:
        observed = torch.from_numpy(self._observed.copy())
        return {"tau": self.tau, "sampled": self._sampled, "observed": observed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = SavedState("the state of Importance", state, self.state_dict())
        observed, sampled, tau = saved.numbers("observed", low=0), saved.flag("sampled"), saved.number("tau", 0.0)
        self.tau, self._sampled, self._observed = tau, sampled, observed


def probabilities(norms: np.ndarray) -> np.ndarray:
    """Return p_i ∝ norm_i, and equal ones if every norm is 0."""
    total = norms.sum()
    return norms / total if total > 0 else np.full(len(norms), 1.0 / len(norms))


def variance_gain(norms: np.ndarray) -> float:
    """Return τ of one step, 1/τ² = 1 − ‖p − u‖² / ‖p‖² with u = 1/B: how many times larger a batch of equally likely
    samples would have to be for the same variance."""
    p = probabilities(norms)
    return float(np.sqrt(len(p) * np.square(p).sum()))
