"""FacilityLocation: a similar sample in the batch for every sample of the pool."""

import math
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine import similarity_sums
from smdl.engine.block_loops import rise
from smdl.engine.blocks import COLUMNS, ROWS, tiles, weighted_sum
from smdl.engine.geometry import Geometry
from smdl.engine.jit import inlined
from smdl.engine.pool import host, widest
from smdl.engine.terms.term import Loops, SetTerm


class DenseFacilityLocation(NamedTuple):
    """Facility location over a dense matrix."""

    similarities: np.ndarray  # (N, N) float32
    weights: np.ndarray | None  # (N,) float64 of the samples to be represented
    coverage: np.ndarray  # (N,) float32, see `empty_coverage`
    coefficient: float


class SparseFacilityLocation(NamedTuple):
    """Facility location over a graph of neighbours."""

    neighbours: np.ndarray  # (N, k) int32
    similarities: np.ndarray  # (N, k) float32
    weights: np.ndarray | None
    coverage: np.ndarray
    coefficient: float


class ListedFacilityLocation(NamedTuple):
    """Facility location over lists: for each candidate the samples that it covers better than the batch does."""

    starts: np.ndarray  # (C + 1,) int64: the list of a candidate begins here, and ends where the next one begins
    samples: np.ndarray  # int32
    similarities: np.ndarray  # float32
    weights: np.ndarray | None  # (m,)
    coverage: np.ndarray  # (m,) float32, by the batch for which the lists were made
    coefficient: float


@inlined
def _one_rise(similarity, weights, best, j):
    """Return w_j max(0, s − best_j), as `rise` rounds it."""
    found = max(np.float64(similarity) - np.float64(best[j]), 0.0)
    if weights is None:
        return found
    return np.rint(weights[j] * found)


def _covered_so_far(term):
    return term.coverage.copy()


def _dense_gain(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    return base + term.coefficient * rise(term.similarities, term.weights, state, a), count


def _add_dense(term, state, a):
    for j in range(len(state)):
        state[j] = max(state[j], term.similarities[a, j])


def _sparse_gain(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    total = 0.0
    for t in range(term.neighbours.shape[1]):
        total += _one_rise(term.similarities[a, t], term.weights, state, term.neighbours[a, t])
    return base + term.coefficient * total, count


def _add_sparse(term, state, a):
    for t in range(term.neighbours.shape[1]):
        j = term.neighbours[a, t]
        state[j] = max(state[j], term.similarities[a, t])


def _listed_gain(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    total = 0.0
    for t in range(term.starts[a], term.starts[a + 1]):
        total += _one_rise(term.similarities[t], term.weights, state, term.samples[t])
    return base + term.coefficient * total, count


def _add_listed(term, state, a):
    for t in range(term.starts[a], term.starts[a + 1]):
        j = term.samples[t]
        state[j] = max(state[j], term.similarities[t])


class FacilityLocation(SetTerm):
    """F(S) = Σ_{j ∈ W} w_j max_{i ∈ S} (D − φ(i, j)): every sample of W has a similar sample in the batch.

    W is the whole pool, or with `sample=m` m random samples of it with w_j > 0. The weights w are 1, or the importance
    of the samples; F is divided by their sum. Weighted rises are rounded to multiples of 1/grid, which leaves F 52
    binary digits: sums are exact, in any order. Similarities are held in units of D as 1 − φ/D in
    float32: multiples of 2⁻²⁴, whose float64 sums are exact. With `neighbours=k` a sample represents only itself and
    the k − 1 samples nearest to it.

    With a query Q and away_from P, F(S) = Σ_{j ∈ W} w_j max(0, min(max_{i ∈ S} s_ij, max_{q ∈ Q} s_qj)
    − max_{p ∈ P} s_pj). The query alone is the mutual information of S and Q: a sample counts only as far as it is
    similar to the query. P alone is the conditional gain F(S ∪ P) − F(P): a sample counts as far as the batch is
    nearer to it than P is. Both are the conditional mutual information.
    """

    covers = beside = True
    loops: ClassVar = {
        DenseFacilityLocation: Loops(_covered_so_far, _dense_gain, _add_dense),
        SparseFacilityLocation: Loops(_covered_so_far, _sparse_gain, _add_sparse),
        ListedFacilityLocation: Loops(_covered_so_far, _listed_gain, _add_listed),
    }

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        covered = geometry.covered
        self.count = len(self.pool) if covered is None else len(covered)
        self.weights, self.grid, total = self._row_weights(covered)  # the weights are multiplied by the grid
        given = self.pool.similarities is not None
        self.unit = total if given or self.geometry.metric.bound > 0 else 0.0

    def _row_weights(self, covered: Tensor | None) -> tuple[np.ndarray | None, float, float]:
        given = self.pool.importance is not None or self.geometry.objective.importance is not None
        weights = self.geometry.importance if given else None
        if weights is None:
            return None, 1.0, float(self.count)
        weights = weights if covered is None else weights[host(covered)]
        total = math.fsum(weights)
        grid = 2.0 ** (52 - math.frexp(total)[1])
        return weights * grid, grid, total

    def start(self, parts: Tensor) -> None:
        self._coverage = self.empty_coverage().expand(len(parts), -1).clone()
        self._weights = None if self.weights is None else widest(self.weights, self.pool.device)

    def empty_coverage(self) -> Tensor:
        """Return how well every sample is represented by the empty batch, (count,): by `away_from`, or not at all."""
        floors = None if self.pool.away_from is None or self.unit == 0 else self.geometry.floors
        return torch.zeros(self.count, device=self.pool.device) if floors is None else floors.clone()

    def gains(self, candidates: Tensor) -> Tensor:
        out = self.tensor(*candidates.shape)
        if self._by_blocks:
            for p, rows in enumerate(candidates):
                self._add_rises(rows, self._coverage[p], out[p])
            return out / self.grid
        step = max(1, (1 << 24) // (self.count * len(candidates)))
        for k in range(0, candidates.shape[1], step):
            part = candidates[:, k : k + step]
            better = self.similarities(part) - self._coverage[:, None, :]
            out[:, k : k + step] = weighted_sum(better.clamp_(min=0), self._weights, out.dtype)
        return out / self.grid

    def _add_rises(self, rows: Tensor, coverage: Tensor, out: Tensor) -> None:
        blocks, caps = self.geometry.blocks, self.geometry.caps
        for part in tiles(len(rows), ROWS):
            side = blocks.side(rows[part])
            for columns, covered in self.geometry.covered_blocks():
                limits, weights = (None if x is None else x[columns] for x in (caps, self._weights))
                blocks.add_rises(side, covered, coverage[columns], limits, weights, out[part])

    def add(self, picks: Tensor) -> None:
        self._coverage = torch.maximum(self._coverage, self.similarities(picks))

    def mean_coverage(self, chosen: Tensor, covered: Tensor) -> float:
        """Return the weighted mean, over `covered`, of how well `chosen` represents a sample."""
        blocks, total, importance = self.geometry.blocks, 0.0, self.geometry.importance
        weights = np.ones(len(covered)) if importance is None else importance[host(covered)]
        for part in tiles(len(covered), ROWS):
            side = blocks.side(covered[part])
            parts = (blocks.similarities(side, blocks.side(chosen[k])) for k in tiles(len(chosen), COLUMNS))
            best = torch.stack([part.amax(1) for part in parts]).amax(0)
            if self.pool.query is not None:
                best = torch.minimum(best, self.geometry.nearest_other("query", side))
            if self.pool.away_from is not None:
                best = (best - self.geometry.nearest_other("away_from", side)).clamp_(min=0)
            total += float(host(best).astype(np.float64) @ weights[part])
        return total / weights.sum()

    @property
    def costly(self) -> bool:
        return self._by_blocks

    @property
    def _by_blocks(self) -> bool:
        return self.unit > 0 and self.geometry.engine in ("blocks", "sample")

    def similarities(self, rows: Tensor) -> Tensor:
        """Return 1 − φ/D of the given samples to every sample that is to be covered, (..., N) float32."""
        return similarity_sums.to_covered(self.geometry, rows)

    @classmethod
    def compiles(cls, engine: str, n: int, size: int) -> bool:  # noqa: ARG003
        return engine in ("dense", "graph")

    def compiled(self, coefficient: float, size: int) -> DenseFacilityLocation | SparseFacilityLocation:  # noqa: ARG002
        graph, coefficient = self.geometry.graph, coefficient / self.grid
        represented = self.pool.away_from is not None  # only then the empty batch covers anything
        coverage = host(self.empty_coverage()) if represented else np.zeros(self.count, np.float32)
        if graph is not None:
            return SparseFacilityLocation(*graph, self.weights, coverage, coefficient)
        matrix = self.geometry.similarities
        assert matrix is not None
        return DenseFacilityLocation(matrix.numpy(), self.weights, coverage, coefficient)

    def shares(self, chosen: Tensor) -> np.ndarray:
        """Count for each pick the samples to which it is the most similar pick; ties go to the earlier pick. Samples
        that `away_from` represents as well count for none. Counts on a sample of the pool are scaled to the pool."""
        best = self.empty_coverage()
        owner = torch.full((self.count,), -1, device=self.pool.device)
        for k, index in enumerate(chosen):
            similarities = self.similarities(index)
            owner[similarities > best] = k
            best = torch.maximum(best, similarities)
        counts = torch.bincount(owner[owner >= 0], minlength=len(chosen))
        return counts.cpu().numpy() * (len(self.pool) / self.count)
