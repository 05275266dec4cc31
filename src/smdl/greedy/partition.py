"""GetMiniBatch (Algorithm 1): partition, maximise each part, merge, maximise again."""

from collections.abc import Sequence

import numpy as np

from smdl.greedy.maximise import Picks, Rule, maximise
from smdl.objective import Problem
from smdl.randomness import sample_compiled, stream


def split(candidates: np.ndarray, partitions: int, key: int) -> list[np.ndarray]:
    """Split the candidates at random into parts of (almost) equal size. Each part is ascending."""
    shuffled = candidates.copy()
    sample_compiled(shuffled, len(shuffled), len(shuffled), np.uint64(key))
    parts = np.array_split(shuffled, partitions)
    for part in parts:
        part.sort()
    return parts


def get_mini_batch(
    problem: Problem, candidates: np.ndarray, rule: Rule, partitions: int, seed: int | Sequence[int], threads: int
) -> Picks:
    """Select a batch over `partitions` random parts, or fewer parts if a part would be smaller than a batch.

    With one part there is no second pass: it would maximise over the batch that the first pass found.
    """
    partitions = max(1, min(partitions, len(candidates) // rule.high))
    if partitions > 1:
        parts = split(candidates, partitions, stream(seed, 0))
        keys = [stream(seed, 1, part) for part in range(partitions)]
        picks = maximise(problem, parts, rule.whole(), keys, threads)
        candidates = np.sort(np.concatenate([pick.indices for pick in picks]))
    return maximise(problem, [candidates], rule, [stream(seed, 2)], threads)[0]
