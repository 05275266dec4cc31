"""Submodular batches: the paper's strategy, with any objective."""

import numpy as np

from smdl.common.messages import choice
from smdl.common.names import ObjectiveName, OptimizerName
from smdl.engine.limits import check_search
from smdl.engine.objective import Objective, as_objective
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection, pick
from smdl.loading.strategies.strategy import Strategy


class Submodular(Strategy):
    """Maximises F(S) over batches S by the greedy. The options are those of `smdl.select`."""

    needs_scores = True

    def __init__(
        self,
        objective: Objective | ObjectiveName = "recommended",
        *,
        optimizer: OptimizerName = "auto",
        partitions: int = 1,
        epsilon: float = 0.01,
        threads: int | None = None,
    ) -> None:
        self.objective = as_objective(objective)
        if optimizer == "bidirectional":
            raise ValueError(choice("optimizer", optimizer, "one for batches of a fixed size, such as auto"))
        check_search(optimizer, partitions, epsilon, threads)
        self.optimizer, self.partitions, self.epsilon, self.threads = optimizer, partitions, epsilon, threads
        self.needs_reference = "feature_match" in self.objective.weights
        self.evidence = self.objective.needs
        self.repeats = optimizer != "stochastic"

    def describe(self) -> str:
        return f"{self.objective!r}, {self.optimizer}, {self.partitions} partitions, epsilon {self.epsilon}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        assert pool is not None
        chosen = pick(
            pool,
            self.objective,
            batch_size,
            optimizer=self.optimizer,
            partitions=self.partitions,
            epsilon=self.epsilon,
            seed=int(rng.integers(2**63)),
            among=None if len(remaining) == len(pool) else remaining,
            threads=self.threads,
            spread=self.spread,
        )
        return chosen.on_host()
