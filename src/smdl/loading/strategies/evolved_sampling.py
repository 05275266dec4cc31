"""Evolved Sampling (Cheng, Li & Bian 2025): samples by their loss and their running loss."""

from typing import Any

import numpy as np
import torch

from smdl.common.messages import number
from smdl.common.saved_state import SavedState
from smdl.engine.pool import Pool, host
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class EvolvedSampling(Strategy):
    """Draws b of the B samples of a pool, without replacement, with p_i ∝ w_i. The losses l of all B samples by the
    current model change

        w_i = β1 s_i + (1 − β1) l_i        then        s_i ← β2 s_i + (1 − β2) l_i

    so that w = s + (β2 − β1) (l − s before): the running loss plus a part of its difference to the current loss. The
    first and the last part `anneal` of the run are plain: batches are drawn at random, and nothing is forwarded.

    beta1, beta2    β1 and β2
    """

    needs_scores = True
    evidence = frozenset({"losses"})
    needs_length = True
    gathers = True

    def __init__(self, beta1: float = 0.2, beta2: float = 0.8, anneal: float = 0.05) -> None:
        self.beta1 = number("beta1", beta1, "a number in [0, 1]", low=0.0, high=1.0)
        self.beta2 = number("beta2", beta2, "a number in [0, 1]", low=0.0, high=1.0)
        self.anneal = number("anneal", anneal, "a part of the run, in [0, 0.5]", low=0.0, high=0.5)
        self.epochs: int | None = None
        self._running = np.zeros(0)

    def prepare(self, samples: int, epochs: int | None) -> None:
        if epochs is None and self.anneal > 0:
            raise ValueError(
                "evolved_sampling needs epochs=, the length of the run, to draw the batches of its first and last part"
                " at random. Without it pass anneal=0"
            )
        self.epochs, self._running = epochs, np.full(samples, 1.0 / samples)

    def describe(self) -> str:
        length = f" of {self.epochs} epochs" if self.anneal else ""
        return f"EvolvedSampling, beta1 {self.beta1:g}, beta2 {self.beta2:g}, anneal {self.anneal:g}{length}"

    def selects_at(self, epoch: int, step: int, steps: int) -> bool:
        if self.epochs is None or self.anneal == 0:
            return True
        return self.anneal <= (epoch + step / steps) / self.epochs < 1 - self.anneal

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        assert pool is not None
        assert pool.losses is not None
        if pool.rows is None:
            raise ValueError(
                "evolved_sampling keeps a number per sample and must know which samples it is shown: the"
                " candidates must be scored by epoch.score_rows, with their rows of the dataset"
            )
        losses = host(pool.losses).astype(np.float64)
        weights = self.beta1 * self._running[pool.rows] + (1 - self.beta1) * losses
        self._update(self.gather(np.stack([pool.rows, losses], axis=1)))
        p = np.maximum(weights[remaining], np.finfo(np.float32).tiny)  # a loss of 0 can be drawn as well
        return drawn(rng.choice(remaining, batch_size, replace=False, p=p / p.sum()))

    def _update(self, found: np.ndarray) -> None:
        """Take the row and the loss of every candidate of all ranks, (B, 2)."""
        rows = found[:, 0].astype(np.int64)
        self._running[rows] = self.beta2 * self._running[rows] + (1 - self.beta2) * found[:, 1]

    def state_dict(self) -> dict[str, Any]:
        return {"running": torch.from_numpy(self._running.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = SavedState("the state of EvolvedSampling", state, self.state_dict())
        self._running = saved.numbers("running", len(self._running), finite=True)
