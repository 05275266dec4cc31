"""Submodular batches: the paper's strategy, with any objective."""

from typing import Any

import numpy as np

from smdl.common.messages import choice
from smdl.common.names import ObjectiveName, OptimizerName
from smdl.engine.geometry import DENSE
from smdl.engine.limits import check_search
from smdl.engine.objective import Objective, as_objective
from smdl.engine.plan import Task, prepare, shape_of
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection, carry_out
from smdl.loading.strategies.strategy import Strategy


class Submodular(Strategy):
    """Maximises F(S) over batches S by the greedy. The options are those of `smdl.select`."""

    needs_scores = True
    draws_seldom = True

    def __init__(
        self,
        objective: Objective | ObjectiveName = "gradients",
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
        self._last: tuple[Any, Task] | None = None  # the task of the last step, and what it depends on

    def describe(self) -> str:
        return f"{self.objective!r}, {self.optimizer}, {self.partitions} partitions, epsilon {self.epsilon}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        assert pool is not None
        task = self._task(pool, remaining, batch_size)
        return carry_out(task, pool, lambda: int(rng.integers(2**63)), self.threads, self.spread)

    def _task(self, pool: Pool, remaining: np.ndarray, size: int) -> Task:
        """Return how to select: as at the last step if nothing has changed on which that depends."""
        whole, key = len(remaining) == len(pool), (pool.features.shape, pool.features.dtype, pool.device, size)
        key = (*key, self.objective, self.optimizer, self.partitions, self.epsilon, self.threads)
        repeats = whole and len(pool) <= DENSE and pool.is_plain
        if repeats and self._last is not None and self._last[0] == key:
            return self._last[1]
        task = prepare(
            shape_of(pool),
            self.objective,
            size,
            optimizer=self.optimizer,
            partitions=self.partitions,
            epsilon=self.epsilon,
            among=None if whole else remaining,
            threads=self.threads,
        )
        self._last = (key, task) if repeats else None
        return task
