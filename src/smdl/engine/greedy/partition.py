"""GetMiniBatch (Algorithm 1): partition, maximise each part, merge, maximise again."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np

from smdl.engine.greedy.maximise import Picks, Rule, maximise
from smdl.engine.objective import Problem
from smdl.engine.randomness import sample_compiled, stream

#: (number of parts, function from some of the parts to what each of them picks) -> what every part picks
Spread = Callable[[int, Callable[[Sequence[int]], list[np.ndarray]]], list[np.ndarray]]


def split(candidates: np.ndarray, partitions: int, key: int) -> list[np.ndarray]:
    """Split the candidates at random into parts of (almost) equal size. Each part is ascending."""
    shuffled = candidates.copy()
    sample_compiled(shuffled, len(shuffled), len(shuffled), np.uint64(key))
    parts = np.array_split(shuffled, partitions)
    for part in parts:
        part.sort()
    return parts


def get_mini_batch(
    problem: Problem,
    candidates: np.ndarray,
    rule: Rule,
    partitions: int,
    seed: int | Sequence[int] | Callable[[], int],
    threads: int,
    spread: Spread | None = None,
) -> Picks:
    """Select a batch over `partitions` random parts, or fewer parts if a part would be smaller than a batch. A `seed`
    that is a function is called if a random number is needed. `spread` shares the parts with other processes that make
    the same call.

    With one part there is no second pass: it would maximise over the batch that the first pass found.
    """
    partitions = max(1, min(partitions, len(candidates) // rule.high))
    if partitions > 1:
        seed = seed() if callable(seed) else seed
        parts = split(candidates, partitions, stream(seed, 0))
        keys = [partial(stream, seed, 1, part) for part in range(partitions)]

        def picks_of(some: Sequence[int]) -> list[np.ndarray]:
            chosen, streams = [parts[part] for part in some], [keys[part] for part in some]
            return [picks.indices for picks in maximise(problem, chosen, rule.whole(), streams, threads)]

        found = picks_of(range(partitions)) if spread is None else spread(partitions, picks_of)
        candidates = np.sort(np.concatenate(found))
    last = cache(lambda: stream(seed() if callable(seed) else seed, 2))  # drawn once, also if it is asked for twice
    return maximise(problem, [candidates], rule, [last], threads)[0]
