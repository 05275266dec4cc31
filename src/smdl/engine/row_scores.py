"""What each row is worth: how typical it is, how far from its neighbours, how often copied, and when greedy takes it.

All of it comes from one graph of the nearest neighbours by cosine similarity.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from smdl.common.messages import callable_or_none, choice, names_checked, whole_number
from smdl.engine.geometry import no_report
from smdl.engine.jit import compiled
from smdl.engine.near_copies import TOLERANCE, matrix, threshold
from smdl.engine.objective import Objective
from smdl.engine.pool import Array, Pool


@dataclass(frozen=True, eq=False)
class RowScores:
    """Scores of n rows, each (n,).

    Attributes:
        density: mean cosine similarity with the k nearest others: high for typical rows, low for outliers
        distance: 1 − the cosine similarity with the nearest other: 0 for a copy, high for a row that is like no other
        copies: how many others have at least the given similarity; at most k, so k means "k or more"
        rank: place in the order in which greedy takes all rows, from 1
        gain: what the row adds to facility location when it is taken: its part of a value of at most 1
        recall: share of the nearest neighbours that the search has found, measured on random rows; 1 if it is exact

    Examples:
        >>> import numpy as np, smdl
        >>> scores = smdl.score(np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]]), neighbours=1)
        >>> len(scores), sorted(scores.rank.tolist()), scores.recall
        (3, [1, 2, 3], 1.0)
    """

    density: np.ndarray
    distance: np.ndarray
    copies: np.ndarray
    rank: np.ndarray
    gain: np.ndarray
    recall: float

    def __len__(self) -> int:
        return len(self.density)


@names_checked
def score(
    features: Array,
    *,
    neighbours: int = 16,
    similarity: float = 0.95,
    progress: Callable[[str, int, int], None] | None = None,
) -> RowScores:
    """Score every row by a graph of its nearest neighbours.

    Rank and gain are those of `smdl.select` with facility location by cosine over the same graph, for all rows: the
    first rows of the order represent the data best, and the last ones add nothing to them.

    Args:
        features: one row per sample, (n, D); none of them all zeros.
        neighbours: k, how many nearest others each row is compared with. Fewer if there are fewer rows.
        similarity: cosine similarity from which on another row counts as a near-copy, in (0, 1].
        progress: called as progress(what, done, total) during the search.

    Returns:
        A RowScores: arrays with one number per row.

    Raises:
        ValueError: rows that are not finite or all zeros, fewer than two rows, or a threshold outside (0, 1].

    Examples:
        >>> import numpy as np, smdl
        >>> found = smdl.score(np.array([[1.0, 0.0], [1.0, 0.01], [0.0, 1.0]]), neighbours=1)
        >>> found.copies.tolist(), int(found.distance.argmax())
        ([1, 1, 0], 2)
    """
    rows, limit = matrix("features", features), threshold(similarity)
    if len(rows) < 2:
        raise ValueError(choice("features", f"{len(rows)} row", "at least two rows: a row is compared with others"))
    k = min(whole_number("neighbours", neighbours), len(rows) - 1)
    callable_or_none("progress", progress)
    objective = Objective(facility_location=1.0, distance="cosine", neighbours=k + 1)
    geometry = objective.on(Pool(rows), "graph").geometry
    geometry.report = progress or no_report
    graph = geometry.graph
    geometry.report = no_report
    assert graph is not None
    cosines = 2.0 * graph.similarities[:, 1:].astype(np.float64) - 1.0
    order, gains = _greedy(graph.neighbours, graph.similarities)
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.arange(1, len(rows) + 1)
    gain = np.empty(len(rows))
    gain[order] = gains / len(rows)
    return RowScores(
        cosines.mean(axis=1),
        1.0 - cosines.max(axis=1),
        (cosines >= limit - TOLERANCE).sum(axis=1),
        rank,
        gain,
        1.0 if geometry.recall is None else geometry.recall,
    )


@compiled
def _greedy(neighbours, similarities):
    """Take all rows in the order of their gains, Σ_j max(0, s_aj − the best s_ij of the rows i before). Gains only
    fall, so a row whose gain is computed again and still the greatest is the next one. Ties: the lower row."""
    n, k = neighbours.shape
    coverage = np.zeros(n)
    heap = [(-np.inf, 0)]
    heap.clear()
    for a in range(n):
        total = 0.0
        for t in range(k):
            total += similarities[a, t]
        heap.append((-total, a))
    heapq.heapify(heap)
    order, gains = np.empty(n, np.int64), np.empty(n)
    for count in range(n):
        while True:
            _, a = heap[0]
            total = 0.0
            for t in range(k):
                total += max(0.0, similarities[a, t] - coverage[neighbours[a, t]])
            heapq.heapreplace(heap, (-total, a))
            if heap[0][1] == a:
                break
        heapq.heappop(heap)
        order[count], gains[count] = a, total
        for t in range(k):
            j = neighbours[a, t]
            coverage[j] = max(coverage[j], similarities[a, t])
    return order, gains
