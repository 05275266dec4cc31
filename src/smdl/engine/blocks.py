"""Similarities of many pairs at once: matrix multiplications, block by block.

‖u − v‖² = ‖u‖² + ‖v‖² − 2⟨u, v⟩ loses digits where two points are near. Points are centred first, and pairs nearer
than about 1.5 % of the scale are computed again from their differences. The result is within 2 · 10⁻⁶ of the scale,
and exact where the features lie on a dyadic grid: a centre with few digits keeps them on their grid.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smdl.engine import arithmetic
from smdl.engine.arithmetic import inverse
from smdl.engine.block_loops import Columns, Measure, add_rises, finish, list_rises, scan, to_similarities
from smdl.engine.distances import COSINE, EUCLIDEAN, GAUSSIAN, Metric, by_chunks, one_minus_cosines
from smdl.engine.gradients import GradientSpace
from smdl.engine.pool import host, real, widest
from smdl.engine.similarity import Graph

#: Rows and columns of a block: large enough for fast multiplication, small enough for the processor's cache, and for
#: memory that is used again (larger blocks are returned to the system each time, which takes longer than to fill them).
ROWS, COLUMNS = 256, 1024

#: Pairs nearer than this share of the scale are computed from differences: over features, and over gradients, where
#: two products are rounded and features are not centred.
NEAR, NEAR_GRADIENTS = 1 / 64, 1 / 16


Report = Callable[[int, int], None]  # done, total


@dataclass(frozen=True)
class BlockSide:
    """Points as the rows or as the columns of a block."""

    rows: Tensor  # (m, D) float32, centred unless the distance is an angle
    errors: Tensor | None  # (m, C) float32, for gradients
    size: Tensor  # (m,) ‖point‖², or ‖point‖ for cosine
    e: Tensor  # (m,) ‖e‖² and ‖f‖² of gradients, else `size`
    f: Tensor

    def part(self, at: slice) -> "BlockSide":
        errors = None if self.errors is None else self.errors[at]
        return BlockSide(self.rows[at], errors, self.size[at], self.e[at], self.f[at])

    def columns(self) -> "Columns":
        errors = None if self.errors is None else self.errors.numpy()
        return Columns(self.rows.numpy(), errors, self.size.numpy(), self.e.numpy(), self.f.numpy())


class Blocks:
    """Blocks of 1 − φ/D over the points of a metric. Use it only if D > 0."""

    def __init__(self, metric: Metric) -> None:
        space, self._metric = metric.space, metric
        self._gradients = space if isinstance(space, GradientSpace) else None
        self.device = space.rows.device
        diameter = 2.0 * space.radius
        near = ((NEAR_GRADIENTS if self._gradients else NEAR) * diameter) ** 2
        if metric.code == GAUSSIAN and metric.sigma < diameter / 6:  # a digit of ‖u − v‖² counts more
            near = max(near, 40 * metric.sigma**2)
        centred = self._gradients is None and metric.code != COSINE
        self._centre = self._coarse_mean(diameter) if centred else None
        self._factor = factor = _safe_factor(diameter if centred else arithmetic.largest(space.host))
        bias = 0.0 if self._gradients is None else self._gradients.bias * factor**2
        scale = inverse(metric.bound) / (factor if metric.code == EUCLIDEAN else 1.0)
        self._measure = Measure(metric.code, bias, near * factor**2, metric.doubled * factor**2, scale)

    def _coarse_mean(self, diameter: float) -> Tensor:
        """Return the mean rounded to a multiple of a power of two near the diameter."""
        mean = arithmetic.column_sums(self._metric.space.host) / self._metric.size
        step = 2.0 ** (math.frexp(diameter)[1] - 4)
        return widest(np.round(mean / step) * step, self.device)

    def side(self, points: Tensor | slice) -> BlockSide:
        """Return the given points, ready for blocks."""
        rows = self._metric.space.rows[points]
        if self._gradients is None:
            return self.side_of(rows)
        e, f = self._gradients.norms[0][points], self._gradients.norms[1][points] * self._factor**2
        size = (e * f).sqrt() if self._metric.code == COSINE else e * f
        errors = self._gradients.errors[points].to(torch.float32)
        return BlockSide((rows * self._factor).to(torch.float32), errors, size, e, f)

    def side_of(self, rows: Tensor) -> BlockSide:
        """Return the points with these features, ready for blocks."""
        wide, angle = real(self.device), self._metric.code == COSINE
        if self._centre is not None:
            rows = rows.to(wide) - self._centre
        if self._factor != 1.0:
            rows = rows * self._factor
        if angle:  # a power of two per row changes no digit of a cosine, and keeps short rows in the range of float32
            exponents = torch.frexp(rows.to(wide).abs().amax(1, keepdim=True)).exponent
            rows = torch.ldexp(rows.to(wide), -exponents)
        rows = rows.to(torch.float32)
        size = torch.cat([part.to(wide).square().sum(1) for part in rows.split(COLUMNS)])
        size = size.sqrt() if angle else size
        return BlockSide(rows, None, size, size, size)

    def similarities(self, a: BlockSide, b: BlockSide) -> Tensor:
        """Return 1 − φ/D of every pair, (len(a), len(b)) float32: multiples of 2⁻²⁴ in [0, 1]."""
        if self.device.type == "cpu":
            products, others = self._products(a, b)
            finish(products, others, a.columns(), b.columns(), self._measure)
            return torch.from_numpy(products)
        return self._to_similarities(self._gaps(a, b))

    def add_rises(
        self, a: BlockSide, b: BlockSide, best: Tensor, caps: Tensor | None, weights: Tensor | None, gains: Tensor
    ) -> None:
        """Add Σ_j w_j max(0, min(s_ij, cap_j) − best_j) of every row i to `gains`."""
        if self.device.type == "cpu":
            products, others = self._products(a, b)
            limits, factors = (None if x is None else x.numpy() for x in (caps, weights))
            columns = (a.columns(), b.columns(), self._measure, best.numpy(), limits, factors, gains.numpy())
            add_rises(products, others, *columns)
            return
        found = self.similarities(a, b)
        found = found if caps is None else found.clamp_(max=caps)
        gains += weighted_sum((found - best).clamp_(min=0), weights, gains.dtype)

    def rises(
        self, a: BlockSide, b: BlockSide, best: Tensor, caps: Tensor | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return row i, column j and min(s_ij, cap_j) of every pair where that is above best_j, row by row."""
        if self.device.type == "cpu":
            products, others = self._products(a, b)
            limits = None if caps is None else caps.numpy()
            i, j = np.empty((2, products.size), np.int32)
            found = np.empty(products.size, np.float32)
            count = list_rises(
                products, others, a.columns(), b.columns(), self._measure, best.numpy(), limits, i, j, found
            )
            return i[:count].copy(), j[:count].copy(), found[:count].copy()  # views would keep the whole buffers
        found = self.similarities(a, b)
        found = found if caps is None else found.clamp_(max=caps)
        i, j = torch.nonzero(found > best, as_tuple=True)
        return host(i.int()), host(j.int()), host(found[i, j])

    def _to_similarities(self, gaps: Tensor) -> Tensor:
        """Do what `block_loops.to_similarities` does, on any device."""
        code, doubled = self._measure.code, self._measure.doubled
        distances = {EUCLIDEAN: gaps.sqrt, COSINE: lambda: gaps, GAUSSIAN: lambda: -torch.expm1(-gaps / doubled)}[
            code
        ]()
        return 1.0 - (distances * self._measure.scale).clamp(max=1.0).to(torch.float32)

    def _products(self, a: BlockSide, b: BlockSide) -> tuple[np.ndarray, np.ndarray | None]:
        others = None if a.errors is None or b.errors is None else (a.errors @ b.errors.T).numpy()
        return (a.rows @ b.rows.T).numpy(), others

    def _gaps(self, a: BlockSide, b: BlockSide) -> Tensor:
        """Return ‖u − v‖², or 1 − cos, of every pair: what `block_loops` computes, on any device."""
        dots, m = (a.rows @ b.rows.T).to(a.size.dtype), self._measure
        if a.errors is not None and b.errors is not None:
            dots = (dots + m.bias) * (a.errors @ b.errors.T)
        if m.code == COSINE:
            return one_minus_cosines(dots, a.size[:, None] * b.size)
        gaps = a.size[:, None] + b.size - 2.0 * dots
        i, j = torch.nonzero(gaps < m.near, as_tuple=True)
        gaps[i, j] = by_chunks(lambda i, j: self._exact(a, b, i, j), i, j, a.rows.shape[1])
        return gaps

    def _exact(self, a: BlockSide, b: BlockSide, i: Tensor, j: Tensor) -> Tensor:
        gaps = (a.rows[i] - b.rows[j]).to(a.size.dtype).square().sum(-1)
        if a.errors is None or b.errors is None:
            return gaps
        apart = (a.errors[i].to(gaps.dtype) - b.errors[j]).square().sum(-1)
        sums = apart * (a.f[i] + b.f[j]) + gaps * (a.e[i] + b.e[j])
        return (0.5 * (sums - apart * gaps + (a.e[i] - b.e[j]) * (a.f[i] - b.f[j]))).clamp(min=0.0)

    def matrix(self, report: Report = lambda *_: None) -> Tensor:
        """Return the similarities of all pairs, (N, N). Each pair is computed once."""
        n = self._metric.size
        points = self.side(slice(None))
        if self.device.type == "cpu":  # NumPy asks for large pages of memory, torch does not: a third of the time
            out = torch.from_numpy(np.empty((n, n), np.float32))
        else:
            out = torch.empty(n, n, device=self.device)
        for rows in tiles(n, ROWS):
            for columns in tiles(rows.stop, COLUMNS):
                block = self.similarities(points.part(rows), points.part(columns))
                out[rows, columns], out[columns, rows] = block, block.T
            square = out[rows, rows]  # products of a block with itself need not be symmetric in the last digit
            out[rows, rows] = square.tril() + square.tril(-1).T
            report(rows.stop**2, n * n)
        return out

    def nearest(self, k: int, rows: np.ndarray | None = None, report: Report = lambda *_: None) -> Graph:
        """Return each sample (or each of `rows`) and its k − 1 nearest others. Ties go to the lower index."""
        n = self._metric.size
        rows = np.arange(n, dtype=np.int64) if rows is None else rows.astype(np.int64)
        graph = Graph(np.empty((len(rows), k), np.int32), np.empty((len(rows), k), np.float32))
        for part in tiles(len(rows), 16 * ROWS):
            report(part.start, len(rows))
            a = self.side(torch.from_numpy(rows[part]).to(self.device))
            if self.device.type == "cpu":
                self._search(a, rows[part], graph, part)
            else:
                self._search_in_torch(a, torch.from_numpy(rows[part]).to(self.device), graph, part)
        return graph

    def _search(self, a: BlockSide, rows: np.ndarray, graph: Graph, part: slice) -> None:
        neighbours, gaps = graph.neighbours[part], np.full((len(rows), graph.neighbours.shape[1]), np.inf)
        held = np.ones(len(rows), np.int64)
        neighbours[:, 0], gaps[:, 0] = rows, -1.0
        for columns in tiles(self._metric.size, COLUMNS):
            b = self.side(columns)
            for k in tiles(len(rows), ROWS):
                some = a.part(k)
                block = (*self._products(some, b), some.columns(), b.columns(), self._measure)
                scan(*block, rows[k], columns.start, gaps[k], neighbours[k], held[k])
        gaps[:, 0] = 0.0
        if self._measure.code == COSINE:
            gaps[:, 0] = np.where(a.size.numpy() > 0, 0.0, 1.0)
        to_similarities(gaps, self._measure, graph.similarities[part])

    def _search_in_torch(self, a: BlockSide, rows: Tensor, graph: Graph, part: slice) -> None:
        k = graph.neighbours.shape[1]
        gaps = torch.full((len(rows), 0), math.inf, dtype=a.size.dtype, device=self.device)
        neighbours = torch.empty(len(rows), 0, dtype=torch.int64, device=self.device)
        for columns in tiles(self._metric.size, COLUMNS):
            every = torch.arange(columns.start, columns.stop, device=self.device)
            found = self._gaps(a, self.side(columns))
            found[rows[:, None] == every] = -1.0  # the sample itself comes first
            gaps, order = torch.cat([gaps, found], 1).sort(dim=1, stable=True)  # ties stay in the order of indices
            neighbours = torch.cat([neighbours, every.expand(len(rows), -1)], 1).gather(1, order)[:, :k]
            gaps = gaps[:, :k]
        gaps[:, 0] = torch.where(a.size > 0, 0.0, 1.0) if self._measure.code == COSINE else 0.0
        graph.neighbours[part] = host(neighbours)
        graph.similarities[part] = host(self._to_similarities(gaps))


def weighted_sum(rises: Tensor, weights: Tensor | None, kind: torch.dtype) -> Tensor:
    """Return Σ_j w_j · rise_j over the last dimension, as `block_loops.rise` rounds it."""
    return rises.sum(-1, dtype=kind) if weights is None else (rises.to(kind) * weights).round_().sum(-1)


def _safe_factor(largest: float) -> float:
    """Return a power of two that brings numbers of this size into the range of float32; 1 for a usual size."""
    exponent = math.frexp(largest)[1]
    return 1.0 if -30 <= exponent <= 50 else 2.0**-exponent


def tiles(n: int, size: int) -> Iterator[slice]:
    """Yield the slices of 0..n-1 of at most `size` elements."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))
