"""Compiled distances and similarities: of one pair, and of all pairs of a small pool.

The compiler may reorder the sums over features, which makes them fast. They are exact where the features lie on a
dyadic grid, and elsewhere correct up to a few units of the last digit.
"""

import math
from typing import NamedTuple

import numpy as np
from numba.extending import overload

from smdl.engine.arithmetic import GRID, value
from smdl.engine.distances import COSINE, EUCLIDEAN, Metric
from smdl.engine.gradients import GradientSpace
from smdl.engine.jit import INLINED, compiled, inlined, reordered

#: Size of the tiles in which all pairs are computed.
ROWS, COLUMNS = 32, 256

#: A multiple of the numbers that any processor handles at once.
LANES = 16


# The points of a metric as the compiled loops take them. Each kind of distance has its own type, so that numba
# compiles every loop for one distance: a branch inside the loop would cost several times as much as the distance.


class Euclidean(NamedTuple):
    rows: np.ndarray  # (N, D)
    bound: float  # D, the scale


class Cosine(NamedTuple):
    rows: np.ndarray
    lengths: np.ndarray  # (N,)
    bound: float


class Gaussian(NamedTuple):
    rows: np.ndarray
    doubled: float  # 2σ²
    bound: float


class GradientEuclidean(NamedTuple):
    rows: np.ndarray
    errors: np.ndarray  # (N, C)
    e: np.ndarray  # (N,) ‖e‖²
    f: np.ndarray  # (N,) ‖f‖² (+ 1)
    bound: float


class GradientCosine(NamedTuple):
    rows: np.ndarray
    errors: np.ndarray
    bias: float
    lengths: np.ndarray
    bound: float


class GradientGaussian(NamedTuple):
    rows: np.ndarray
    errors: np.ndarray
    e: np.ndarray
    f: np.ndarray
    doubled: float
    bound: float


Points = Euclidean | Cosine | Gaussian | GradientEuclidean | GradientCosine | GradientGaussian


def points_of(metric: Metric) -> Points:
    """Return the points of a metric as the compiled loops take them."""
    space, bound, doubled = metric.space, metric.bound, metric.doubled
    rows = space.host
    if isinstance(space, GradientSpace):
        errors = space.host_errors
        if metric.code == COSINE:
            return GradientCosine(rows, errors, space.bias, space.lengths(), bound)
        if metric.code == EUCLIDEAN:
            return GradientEuclidean(rows, errors, space.error_norms, space.feature_norms, bound)
        return GradientGaussian(rows, errors, space.error_norms, space.feature_norms, doubled, bound)
    if metric.code == COSINE:
        return Cosine(rows, space.lengths(), bound)
    return Euclidean(rows, bound) if metric.code == EUCLIDEAN else Gaussian(rows, doubled, bound)


@reordered
def _gaps(x: np.ndarray, i: int, j: int) -> float:
    total = value(x, i, 0) - value(x, i, 0)  # 0 in the type of x
    for u in range(x.shape[1]):
        gap = value(x, i, u) - value(x, j, u)
        total += gap * gap
    return np.float64(total)


@reordered
def _products(x: np.ndarray, i: int, j: int) -> float:
    total = value(x, i, 0) - value(x, i, 0)
    for u in range(x.shape[1]):
        total += value(x, i, u) * value(x, j, u)
    return np.float64(total)


@reordered
def wide_gaps(x: np.ndarray, i: int, j: int) -> float:
    total = 0.0
    for u in range(x.shape[1]):
        gap = np.float64(value(x, i, u)) - np.float64(value(x, j, u))
        total += gap * gap
    return total


@inlined
def gradient_gap(a, b, ei, ej, fi, fj):
    """Return ‖g_i − g_j‖² from a = ‖e_i − e_j‖², b = ‖f_i − f_j‖² (see `GradientSpace`). Float64: terms can cancel."""
    return max(0.0, 0.5 * (a * (fi + fj) + b * (ei + ej) - a * b + (ei - ej) * (fi - fj)))


@inlined
def one_minus_cosine(dot, norm):
    """Return 1 − cos, the cosine rounded to a multiple of 1/GRID: parallel points are equally far, whatever their
    length."""
    return max(0.0, 1.0 - np.rint(dot / norm * GRID) / GRID) if norm > 0.0 else 1.0


def distance(points: Points, i: int, j: int) -> float:
    """Return φ(i, j) (for compiled callers)."""
    raise NotImplementedError


@overload(distance, jit_options=INLINED)
def _distance(points, i, j):  # noqa: ARG001
    def euclidean(points, i, j):
        return math.sqrt(_gaps(points.rows, i, j))

    def cosine(points, i, j):
        return one_minus_cosine(_products(points.rows, i, j), points.lengths[i] * points.lengths[j])

    def gaussian(points, i, j):
        return -math.expm1(-_gaps(points.rows, i, j) / points.doubled)

    def gradient_euclidean(points, i, j):
        a, b = wide_gaps(points.errors, i, j), wide_gaps(points.rows, i, j)
        return math.sqrt(gradient_gap(a, b, points.e[i], points.e[j], points.f[i], points.f[j]))

    def gradient_cosine(points, i, j):
        dot = _products(points.errors, i, j) * (_products(points.rows, i, j) + points.bias)
        return one_minus_cosine(dot, points.lengths[i] * points.lengths[j])

    def gradient_gaussian(points, i, j):
        a, b = wide_gaps(points.errors, i, j), wide_gaps(points.rows, i, j)
        return -math.expm1(-gradient_gap(a, b, points.e[i], points.e[j], points.f[i], points.f[j]) / points.doubled)

    return {
        Euclidean: euclidean,
        Cosine: cosine,
        Gaussian: gaussian,
        GradientEuclidean: gradient_euclidean,
        GradientCosine: gradient_cosine,
        GradientGaussian: gradient_gaussian,
    }[points.instance_class]


@inlined
def similarity(points, scale, i, j):
    """Return 1 − φ/D as float32: a multiple of 2⁻²⁴ in [0, 1]. `scale` is 1/D."""
    return np.float32(1.0) - np.float32(min(distance(points, i, j) * scale, 1.0))


@compiled
def _mirror(out):
    """Copy the lower triangle to the upper one, four rows at a time: single columns would take three times as long."""
    whole = len(out) // 4 * 4
    for i in range(0, whole, 4):
        for j in range(i):
            a, b, c, d = out[i, j], out[i + 1, j], out[i + 2, j], out[i + 3, j]
            out[j, i], out[j, i + 1], out[j, i + 2], out[j, i + 3] = a, b, c, d
        for k in range(i, i + 4):
            for j in range(i, k):
                out[j, k] = out[k, j]
    for i in range(whole, len(out)):
        for j in range(i):
            out[j, i] = out[i, j]


@compiled
def _fill(points, out):
    """Fill the dense matrix tile by tile: the columns of a tile stay in the cache while its rows are computed."""
    n, scale = len(out), 1.0 / points.bound
    for top in range(0, n, ROWS):
        for left in range(0, min(top + ROWS, n), COLUMNS):
            for i in range(top, min(top + ROWS, n)):
                for j in range(left, min(left + COLUMNS, i + 1)):
                    out[i, j] = similarity(points, scale, i, j)
    _mirror(out)


@reordered
def _four_gaps(x, i, j):
    """Return `_gaps` of i and each of j, j + 1, j + 2, j + 3: row i is read once, and no sum waits for another."""
    a = b = c = d = value(x, i, 0) - value(x, i, 0)
    for u in range(x.shape[1]):
        p, q = value(x, i, u) - value(x, j, u), value(x, i, u) - value(x, j + 1, u)
        r, s = value(x, i, u) - value(x, j + 2, u), value(x, i, u) - value(x, j + 3, u)
        a += p * p
        b += q * q
        c += r * r
        d += s * s
    return a, b, c, d


@reordered
def _column_gaps(columns, i, width, out):
    """Write ‖x_i − x_j‖² for j < width to `out`; x_j is column j. The number of rows of `columns` is even."""
    out[:width] = 0.0
    for c in range(0, len(columns), 2):
        x, y = columns[c, i], columns[c + 1, i]
        for j in range(width):
            p, q = x - columns[c, j], y - columns[c + 1, j]
            out[j] += p * p + q * q


@compiled
def _fill_gradients(points, out):
    """Do the same as `_fill` in half the time, for the distance that `Objective.gradients()` uses at every step.

    Errors are short, so they are transposed, and their loop runs along j. Features are summed in float64 only for the
    pairs whose terms cancel. Loops along j start at 0 and end at a multiple of LANES: scalar loops would do the rest.
    """
    n, classes, scale = len(out), points.errors.shape[1], 1.0 / points.bound
    padded = -(-n // LANES) * LANES
    columns, e, f = np.zeros((classes + classes % 2, padded)), np.zeros(padded), np.zeros(padded)
    for i in range(n):
        e[i], f[i] = points.e[i], points.f[i]
        for c in range(classes):
            columns[c, i] = points.errors[i, c]
    a, b = np.zeros(padded), np.zeros(padded)
    for i in range(n):
        ei, fi, cancelled, width = e[i], f[i], 0, (i // LANES + 1) * LANES
        whole = min(i // 4 + 1, n // 4) * 4
        _column_gaps(columns, i, width, a)
        for j in range(0, whole, 4):
            b[j], b[j + 1], b[j + 2], b[j + 3] = _four_gaps(points.rows, i, j)
        for j in range(whole, i + 1):
            b[j] = _gaps(points.rows, i, j)
        for j in range(min(width, n)):  # pairs with j > i are overwritten below
            squared = gradient_gap(a[j], b[j], ei, e[j], fi, f[j])
            cancelled += squared < (a[j] * (fi + f[j]) + b[j] * (ei + e[j])) / 64.0
            out[i, j] = np.float32(1.0) - np.float32(min(math.sqrt(squared) * scale, 1.0))
        if cancelled > 0:
            for j in range(i):
                squared = gradient_gap(a[j], b[j], ei, e[j], fi, f[j])
                if squared < (a[j] * (fi + f[j]) + b[j] * (ei + e[j])) / 64.0:
                    out[i, j] = similarity(points, scale, i, j)
    _mirror(out)


def similarity_matrix(points: Points) -> np.ndarray:
    """Return the similarities of all pairs, (N, N) float32; all 0 if every distance is 0."""
    n = len(points.rows)
    if points.bound == 0.0:
        return np.zeros((n, n), np.float32)
    out = np.empty((n, n), np.float32)
    if isinstance(points, GradientEuclidean):
        _fill_gradients(points, out)
    else:
        _fill(points, out)
    return out


class Graph(NamedTuple):
    """The k nearest neighbours of every sample, the sample itself first. All other pairs have similarity 0."""

    neighbours: np.ndarray  # (N, k) int32
    similarities: np.ndarray  # (N, k) float32


@compiled
def insert(gaps, neighbours, held, gap, j):
    """Insert j among the `held` nearest so far, sorted by distance. Return how many are held afterwards."""
    at = min(held, len(gaps) - 1)
    while gaps[at - 1] > gap:
        gaps[at], neighbours[at] = gaps[at - 1], neighbours[at - 1]
        at -= 1
    gaps[at], neighbours[at] = gap, j
    return min(held + 1, len(gaps))


@compiled
def _nearest_among(points, start, candidates, neighbours, similarities):
    k, scale, gaps = neighbours.shape[1], 1.0 / points.bound, np.empty(neighbours.shape[1])
    for row in range(len(candidates)):
        i, held = start + row, 1
        gaps[0], neighbours[row, 0] = -1.0, i
        for t in range(candidates.shape[1]):
            j = candidates[row, t]
            gap = distance(points, i, j) if j >= 0 and j != i else np.inf
            if gap == np.inf or (held == k and gap > gaps[k - 1]):
                continue
            at = min(held, k)
            while gaps[at - 1] > gap or (gaps[at - 1] == gap and neighbours[row, at - 1] > j):
                at -= 1
                if at + 1 < k:
                    gaps[at + 1], neighbours[row, at + 1] = gaps[at], neighbours[row, at]
            if at < k:
                gaps[at], neighbours[row, at] = gap, j
                held = min(held + 1, k)
        for t in range(k):
            if t >= held:
                neighbours[row, t] = i
            similarities[row, t] = similarity(points, scale, i, neighbours[row, t]) if t < held else 0.0


def nearest_among(
    points: Points, start: int, candidates: np.ndarray, neighbours: np.ndarray, similarities: np.ndarray
) -> None:
    """Write the samples start, start + 1, ... and the nearest of their candidates, (m, c), to the rows of a graph. Ties
    go to the lower index. A missing candidate is −1; what is left of a row repeats the sample with similarity 0."""
    _nearest_among(points, start, candidates, neighbours, similarities)
