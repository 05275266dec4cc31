"""Batches as the code that the paper's authors published chooses them."""

import numpy as np

from smdl.common.messages import whole_number
from smdl.engine import arithmetic
from smdl.engine.arithmetic import ENTROPY
from smdl.engine.pool import Pool, host
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy, drawn


class Released(Strategy):
    """What VamshiTeja/SMDL computes instead of the paper's equations: a fast form of
    `tests.specification.Released`.

    partitions    random parts that are maximised one by one before their picks are joined
    log_epsilon   ln(1/ε) as the code has it: R has |part| · log_epsilon / b members
    """

    needs_scores = True
    evidence = frozenset({"probabilities"})

    def __init__(self, partitions: int = 10, log_epsilon: int = 5) -> None:
        self.partitions = whole_number("partitions", partitions)
        self.log_epsilon = whole_number("log_epsilon", log_epsilon)

    def describe(self) -> str:
        return f"Released, {self.partitions} partitions, log_epsilon {self.log_epsilon}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        assert pool is not None
        scores, union = _Scores(pool), remaining
        if len(remaining) >= self.partitions * batch_size:
            length, shuffled = len(remaining) // self.partitions, rng.permutation(remaining)
            parts = [shuffled[start : start + length] for start in range(0, len(remaining), length)]
            size = length * self.log_epsilon // batch_size
            union = np.concatenate([scores.maximise(part, batch_size, size, rng) for part in parts])
        return drawn(scores.maximise(union, batch_size, len(union) // batch_size * self.log_epsilon, rng))


class _Scores:
    """The scores of a pool that do not depend on the batch."""

    def __init__(self, pool: Pool) -> None:
        assert pool.probabilities is not None
        self.features = host(pool.features).astype(np.float64)
        self.entropies = arithmetic.concave_sum(host(pool.probabilities).astype(np.float64), ENTROPY)
        self.from_mean = np.linalg.norm(self.features - self.features.mean(0), axis=1)

    def maximise(self, members: np.ndarray, size: int, random: int, rng: np.random.Generator) -> np.ndarray:
        """Pick `size` of `random` random members one by one; the original yields fewer where random < size."""
        random = max(random, size)
        rows = rng.choice(members, random, replace=False) if random < len(members) else members
        x, fixed = self.features[rows], np.stack([self.entropies[rows], self.from_mean[rows]])
        powers = np.exp(np.maximum(x, 0.0))
        masses = powers / powers.sum(axis=1, keepdims=True)
        nearest, mass, left, picks = np.full(len(rows), np.inf), np.zeros(x.shape[1]), np.arange(len(rows)), [0]
        while True:  # the first pick is the first row: the shares of redundancy are 0 / 0
            pick = picks[-1]
            left = left[left != pick]
            if len(picks) == min(size, len(rows)):
                return rows[picks]
            nearest = np.minimum(nearest, np.linalg.norm(x - x[pick], axis=1))
            mass = mass + masses[pick]
            coverage = np.sqrt(mass + masses[left]).sum(axis=1)
            columns = np.stack([*fixed[:, left], nearest[left], coverage])
            with np.errstate(invalid="ignore"):
                shares = (columns / columns.sum(axis=1, keepdims=True)).sum(axis=0)
            picks.append(int(left[shares.argmax()]))  # NaN counts as the highest, as in the original
