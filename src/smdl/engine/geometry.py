"""Geometry: the points of a pool and their distances, as an objective measures them."""

import warnings
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from smdl.common import memory
from smdl.engine import arithmetic, neighbours
from smdl.engine.blocks import COLUMNS, ROWS, Blocks, BlockSide, tiles
from smdl.engine.distances import FeatureSpace, Metric, in_safe_range
from smdl.engine.gradients import GradientSpace
from smdl.engine.pool import Pool, host, real
from smdl.engine.randomness import sample_compiled, stream
from smdl.engine.similarity import Graph, Points, points_of, similarity_matrix

if TYPE_CHECKING:
    from smdl.engine.objective import Objective

#: Up to this many samples the compiled loops over all pairs are faster than blocks.
SMALL = 1024

#: Up to this many samples facility location always holds its matrix, (N, N) float32: at most 256 MB.
DENSE = 8192

#: Up to this many samples facility location is measured on every sample of the pool; above, on a random sample.
EXACT = 1 << 16

#: Up to this many bytes, samples are kept as float32 rows, ready for blocks.
KEPT = 1 << 29


def holds_matrix(n: int, device: torch.device) -> bool:
    """Whether the matrix takes at most a quarter of the memory that is left: other processes may need some too."""
    return n <= DENSE or (n <= EXACT and 4 * n * n <= memory.available(device) // 4)


def engine_of(objective: "Objective", n: int, device: torch.device, pool: Pool | None = None) -> str:
    """Return how facility location gets the similarities of a pool of n samples: a key of `plan.ENGINES`."""
    if not objective.covering:
        return "rows"
    if pool is not None and pool.similarities is not None:
        return "graph" if isinstance(pool.similarities, tuple) else "dense"
    if objective.neighbours is not None and objective.neighbours < n:
        return "graph"
    if pool is not None and pool.represented is not None:
        return "sample"
    if objective.sample is not None and objective.sample < n:
        return "sample"
    if objective.covering == ("graph_cut",):  # it needs sums, and no matrix
        return "blocks"
    kept = pool is not None and _kept_as(objective, "matrix") in pool.kept
    return "dense" if kept or holds_matrix(n, device) else "blocks"


def _kept_as(objective: "Objective", *what: Any) -> tuple[Any, ...]:
    """Return the key of similarities in `Pool.kept`."""
    return (*what, objective.space, objective.distance, objective.sigma)


def keeps(count: int, width: int) -> bool:
    """Whether so many samples are kept as float32 rows; else they are read again for every block."""
    return 4 * count * width <= KEPT


def no_report(what: str, done: int, total: int) -> None: ...


class Geometry:
    """What the terms of an objective share, each part computed when a term first needs it."""

    def __init__(self, objective: "Objective", pool: Pool, engine: str) -> None:
        self.objective, self.pool, self.engine = objective, pool, engine
        self.report: Callable[[str, int, int], None] = no_report  # called during long work: what, done, total
        self.search: str | None = None  # how the neighbours were found, and the share of them that was found
        self.recall: float | None = None
        self._moved: dict[str, Tensor] = {}
        self._sides: list[tuple[slice, BlockSide]] | None = None

    @cached_property
    def scaled_features(self) -> tuple[Tensor, float]:
        """Features whose squares neither overflow nor vanish, and the power of two they were multiplied by."""
        gradients = self.objective.space == "gradients" and self.pool.bias
        return in_safe_range(self.pool.features, self.pool.largest, least=1.0 if gradients else 0.0)

    @cached_property
    def space(self) -> FeatureSpace | GradientSpace:
        features, scale = self.scaled_features
        in_gradients = self.objective.space == "gradients"
        return GradientSpace(self.pool, features, scale) if in_gradients else FeatureSpace(features)

    @property
    def sigma(self) -> float | None:
        """The bandwidth in units of the space."""
        sigma = self.objective.sigma
        return None if sigma is None else sigma * self.scaled_features[1]

    @cached_property
    def metric(self) -> Metric:
        space = self.space
        if self.objective.distance == "correlation" and isinstance(space, FeatureSpace):
            space = FeatureSpace(torch.from_numpy(arithmetic.centred(space.host)).to(self.pool.device))
        return Metric(self.pool, space, self.objective.distance, self.sigma)

    @cached_property
    def points(self) -> Points:
        return points_of(self.metric)

    @cached_property
    def blocks(self) -> Blocks:
        return Blocks(self.metric)

    @cached_property
    def graph(self) -> Graph | None:
        """The neighbours facility location is restricted to."""
        given, k = self.pool.similarities, self.objective.neighbours
        if self.engine != "graph":
            return None
        if given is not None:
            return Graph(*given)
        assert k is not None
        if self.metric.bound == 0.0:
            return Graph(
                np.tile(np.arange(k, dtype=np.int32), (len(self.pool), 1)), np.zeros((len(self.pool), k), np.float32)
            )
        graph, self.search, self.recall = self._kept(lambda: self._find(k), "graph", k)
        return graph

    def _find(self, k: int) -> neighbours.Found:
        search = neighbours.search_of(len(self.pool), self.objective.space, self.pool.device)
        found = neighbours.find(self.metric, self.blocks, k, search, partial(self.report, "neighbours"))
        if self.caps is not None:
            graph = found.graph
            np.minimum(graph.similarities, host(self.caps)[graph.neighbours], out=graph.similarities)
        return found

    def _kept(self, compute: Callable[[], Any], *what: Any) -> Any:
        """Compute similarities of the features once for this pool and for those that `Pool.changed` makes of it."""
        if self.objective.space == "gradients":
            return compute()
        key = _kept_as(self.objective, *what)
        if key not in self.pool.kept:
            self.pool.kept[key] = compute()
        return self.pool.kept[key]

    @cached_property
    def covered(self) -> Tensor | None:
        """The samples that facility location is measured on: given, or random; None for every sample."""
        if self.engine == "sample" and self.pool.represented is not None:
            return torch.from_numpy(self.pool.represented.astype(np.int64)).to(self.pool.device)
        return self.random_rows(0, self.objective.sample or 0) if self.engine == "sample" else None

    @cached_property
    def importance(self) -> np.ndarray | None:
        """The weights of the samples to be represented, (N,) float64; None if all are 1."""
        given, probabilities = self.pool.importance, self.pool.probabilities
        if self.objective.importance == "uncertainty" and probabilities is not None:
            two = probabilities.to(real(self.pool.device)).topk(min(2, probabilities.shape[1])).values
            given = (1.0 - (two[:, 0] - two[:, 1:].sum(1))).clamp(min=0.0)
        if given is None:
            return None
        weights = host(given).astype(np.float64)
        if weights.any():
            return np.ldexp(weights, -np.frexp(weights.max())[1])  # below 1: only ratios count, and sums stay finite
        warnings.warn("importance is 0 for every sample, so facility_location counts all of them alike", stacklevel=2)
        return None

    @cached_property
    def caps(self) -> Tensor | None:
        """max_{q ∈ Q} s_qj of every sample j that is to be covered, (N,), for a pool with a query."""
        return self._nearest_of("query")

    @cached_property
    def floors(self) -> Tensor | None:
        """max_{p ∈ P} s_pj of every sample j that is to be covered, (N,), for a pool with away_from."""
        return self._nearest_of("away_from")

    def _nearest_of(self, name: str) -> Tensor | None:
        if getattr(self.pool, name) is None or self.metric.bound == 0.0:
            return None
        parts, total = [], len(self.pool) if self.covered is None else len(self.covered)
        for columns, side in self.covered_blocks():
            parts.append(self.nearest_other(name, side))
            self.report(name, columns.stop, total)
        return torch.cat(parts)

    def nearest_other(self, name: str, side: BlockSide) -> Tensor:
        """Return the similarity of some samples to the most similar row of the query or of away_from."""
        best = torch.zeros(len(side.rows), device=self.pool.device)
        for rows in self.others(name).split(ROWS):
            best = torch.maximum(best, self.blocks.similarities(self.blocks.side_of(rows), side).amax(0))
        return best

    def others(self, name: str) -> Tensor:
        """Return the query or away_from as the space holds features."""
        if name not in self._moved:
            rows = getattr(self.pool, name).to(self.pool.device) * self.scaled_features[1]
            if self.objective.distance == "correlation":
                rows = torch.from_numpy(arithmetic.centred(host(rows))).to(self.pool.device)
            self._moved[name] = rows
        return self._moved[name]

    def random_rows(self, start: int, stop: int) -> Tensor:
        """Return rows start..stop of a random order of the samples with a weight, which is always the same."""
        order = np.arange(len(self.pool), dtype=np.int32)
        if self.importance is not None:
            order = order[self.importance > 0]
        sample_compiled(order, len(order), min(stop, len(order)), np.uint64(stream(0, len(order))))
        return torch.from_numpy(np.sort(order[start:stop]).astype(np.int64)).to(self.pool.device)

    @cached_property
    def similarities(self) -> Tensor | None:
        """The dense matrix of facility location, (N, N), if it fits."""
        if self.engine != "dense":
            return None
        given = self.pool.similarities
        return self._kept(self._matrix, "matrix") if given is None else given

    def _matrix(self) -> Tensor:
        n = len(self.pool)
        if n <= SMALL and self.pool.features.is_cpu:
            matrix = torch.from_numpy(similarity_matrix(self.points))
        elif self.metric.bound == 0.0:
            matrix = torch.zeros(n, n, device=self.pool.device)
        else:
            matrix = self.blocks.matrix(partial(self.report, "similarities"))
        return matrix if self.caps is None else matrix.clamp_(max=self.caps)

    def covered_blocks(self) -> Iterator[tuple[slice, BlockSide]]:
        """Yield the samples that facility location is measured on, block by block."""
        if self._sides is None:
            count = len(self.pool) if self.covered is None else len(self.covered)
            parts = (
                (part, self.blocks.side(part if self.covered is None else self.covered[part]))
                for part in tiles(count, COLUMNS)
            )
            space = self.space
            errors = space.errors.shape[1] if isinstance(space, GradientSpace) else 0
            if not keeps(count, self.pool.features.shape[1] + errors):
                return parts
            self._sides = list(parts)
        return iter(self._sides)

    def on_device(self, name: str) -> Tensor:
        """Return a part of `graph` on the pool's device; it is moved there once."""
        if name not in self._moved:
            self._moved[name] = torch.from_numpy(attrgetter(name)(self)).to(self.pool.device)
        return self._moved[name]
