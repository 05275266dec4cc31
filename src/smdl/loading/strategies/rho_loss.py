"""RHO-LOSS (Mindermann et al. 2022): the highest losses that a model without this sample could reduce."""

import numpy as np

from smdl.common.messages import whole_number
from smdl.engine.pool import Pool, host
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class RhoLoss(Strategy):
    """Takes the b samples of a pool with the largest reducible loss: the loss by the model in training minus the
    irreducible loss, which is that by a model that was trained on other data.

    holdout_epochs   for how many epochs the two holdout models train, each on one half of the data
    """

    needs_scores = True
    evidence = frozenset({"losses"})
    needs_reference = True
    repeats = True

    def __init__(self, holdout_epochs: int = 5) -> None:
        self.needs_holdout = whole_number("holdout_epochs", holdout_epochs)

    def describe(self) -> str:
        return f"RhoLoss, {self.needs_holdout} holdout epochs"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        assert pool is not None
        assert pool.losses is not None
        assert pool.reference is not None
        reducible = (host(pool.losses).astype(np.float64) - host(pool.reference)[:, 0])[remaining]
        return drawn(remaining[np.argsort(-reducible, kind="stable")[:batch_size]])
