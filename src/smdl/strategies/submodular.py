"""Submodular batches: the paper's method, with any objective."""

import numpy as np

from smdl.objective import Objective, preset
from smdl.pool import Pool
from smdl.selection import Selection, select
from smdl.strategies.strategy import Size, Strategy


class Submodular(Strategy):
    """argmax F(S) over batches S, by the greedy. Options are those of `smdl.select`."""

    scores = True

    def __init__(
        self,
        objective: Objective | str = "recommended",
        *,
        optimizer: str = "auto",
        partitions: int = 1,
        epsilon: float = 0.01,
        size_penalty: float | None = None,
        threads: int | None = None,
    ) -> None:
        self.objective = preset(objective) if isinstance(objective, str) else objective
        self.optimizer, self.partitions, self.epsilon = optimizer, partitions, epsilon
        self.size_penalty, self.threads = size_penalty, threads
        self.reference = "feature_match" in self.objective.weights

    @classmethod
    def paper(cls, objective: Objective | str = "paper") -> "Submodular":
        """Algorithm 1: ten random partitions, lazier-than-lazy greedy in each, merge, again."""
        return cls(objective, optimizer="stochastic", partitions=10, epsilon=0.01)

    def describe(self) -> str:
        return f"{self.objective!r}, {self.optimizer}, {self.partitions} partitions, epsilon {self.epsilon}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: Size, rng: np.random.Generator) -> Selection:
        assert pool is not None
        return select(
            pool,
            self.objective,
            batch_size,
            optimizer=self.optimizer,
            partitions=self.partitions,
            epsilon=self.epsilon,
            seed=int(rng.integers(2**63)),
            among=None if len(remaining) == len(pool) else remaining,
            size_penalty=None if isinstance(batch_size, int) else self.size_penalty,
            threads=self.threads,
        )
