"""Compiled loops over blocks: from the products of points to similarities, nearest neighbours and gains.

Most pairs of a block belong to no list of neighbours and add nothing to a gain. A comparison of float32 numbers, with a
margin for their rounding, skips those pairs. All others are computed in float64, so that the result is the same.
"""

import math
from typing import NamedTuple

import numpy as np

from smdl.engine.distances import COSINE, EUCLIDEAN
from smdl.engine.jit import compiled, inlined, reordered
from smdl.engine.similarity import gradient_gap, insert, one_minus_cosine

#: Pairs that are compared at once.
CHUNK = 64


class Columns(NamedTuple):
    """Points as the rows or as the columns of a block: a `smdl.engine.blocks.Side` on the host."""

    rows: np.ndarray
    errors: np.ndarray | None
    size: np.ndarray
    e: np.ndarray
    f: np.ndarray


class Measure(NamedTuple):
    """How compiled loops turn products into distances and similarities."""

    code: int
    bias: float
    near: float  # squared distances below are computed from differences
    doubled: float  # 2σ²
    scale: float  # 1/D


@reordered
def _gaps_between(x, i, y, j):
    total = np.float32(0.0)
    for u in range(x.shape[1]):
        gap = x[i, u] - y[j, u]
        total += gap * gap
    return np.float64(total)


@reordered
def _wide_gaps_between(x, i, y, j):
    total = 0.0
    for u in range(x.shape[1]):
        gap = np.float64(x[i, u]) - np.float64(y[j, u])
        total += gap * gap
    return total


@inlined
def _near_gap(others, a, b, i, j):
    """Return ‖u_i − v_j‖² from differences."""
    if others is None:
        return _gaps_between(a.rows, i, b.rows, j)
    apart, gap = _wide_gaps_between(a.errors, i, b.errors, j), _wide_gaps_between(a.rows, i, b.rows, j)
    return gradient_gap(apart, gap, a.e[i], b.e[j], a.f[i], b.f[j])


@inlined
def _gap_row(products, others, a, b, measure, i, left, right, gaps):
    """Write ‖u_i − v_j‖², or 1 − cos, of row i and the columns j from left to right to `gaps`."""
    width, row, sizes = right - left, products[i, left:right], b.size[left:right]
    if others is None:
        for j in range(width):
            gaps[j] = np.float64(row[j])
    else:
        second = others[i, left:right]
        for j in range(width):
            gaps[j] = np.float64(second[j]) * (np.float64(row[j]) + measure.bias)
    if measure.code == COSINE:
        for j in range(width):
            gaps[j] = one_minus_cosine(gaps[j], a.size[i] * sizes[j])
        return
    size, near = a.size[i], 0
    for j in range(width):
        gaps[j] = size + sizes[j] - 2.0 * gaps[j]
        near += gaps[j] < measure.near
    if near == 0:
        return
    for j in range(width):
        if gaps[j] < measure.near:
            gaps[j] = _near_gap(others, a, b, i, left + j)


@inlined
def _similarity_row(gaps, measure, out):
    """Write 1 − φ/D as float32, multiples of 2⁻²⁴ in [0, 1], to `out`."""
    one = np.float32(1.0)
    if measure.code == EUCLIDEAN:
        for j in range(len(out)):
            out[j] = one - np.float32(min(math.sqrt(gaps[j]) * measure.scale, 1.0))
    elif measure.code == COSINE:
        for j in range(len(out)):
            out[j] = one - np.float32(min(gaps[j] * measure.scale, 1.0))
    else:
        for j in range(len(out)):
            out[j] = one - np.float32(min(-math.expm1(-gaps[j] / measure.doubled) * measure.scale, 1.0))


@compiled
def to_similarities(gaps, measure, out):
    """Turn ‖u − v‖², or 1 − cos, into similarities."""
    for i in range(len(gaps)):
        _similarity_row(gaps[i], measure, out[i])


@compiled
def finish(products, others, a, b, measure):
    """Turn products into similarities, in place."""
    gaps = np.empty(products.shape[1])
    for i in range(len(products)):
        _gap_row(products, others, a, b, measure, i, 0, products.shape[1], gaps)
        _similarity_row(gaps, measure, products[i])


# A pair is skipped if its product is below offset_i + slope_i · floor_j. For the squared distance of two points,
# ‖u‖² + ‖v‖² − 2⟨u, v⟩ < t means ⟨u, v⟩ > ½(‖u‖² + ‖v‖² − t), and 1 − cos < t means ⟨u, v⟩ > (1 − t) ‖u‖ ‖v‖.


@inlined
def _margin(rows):
    """Return an upper bound of the rounding errors of a product, relative to ½(‖u‖² + ‖v‖²) or to ‖u‖ ‖v‖."""
    return (rows.shape[1] + 16) * 2.0**-23


@inlined
def _reach(products, offset, slope, floor):
    """Count the products that reach their floor. From 0 on and in 32 bits, the compiler handles several at once."""
    count = np.int32(0)
    for j in range(len(products)):
        count += np.int32(products[j] >= offset + slope * floor[j])
    return count


@inlined
def _worst_floor(a, measure, i, worst):
    """Return (offset, slope) of row i for distances below `worst`."""
    if measure.code == COSINE:
        return np.float32(0.0), np.float32((1.0 - min(worst, 4.0) - _margin(a.rows)) * a.size[i])
    return np.float32(0.5 * ((1.0 - _margin(a.rows)) * a.size[i] - worst)), np.float32(1.0)


@compiled
def scan(products, others, a, b, measure, rows, start, nearest, neighbours, held):
    """Insert the columns start, start + 1, ... of a block into the sorted lists of nearest neighbours of its rows."""
    width, last = products.shape[1], nearest.shape[1] - 1
    floor, gaps = np.empty(width, np.float32), np.empty(CHUNK)
    for j in range(width):
        floor[j] = b.size[j] if measure.code == COSINE else 0.5 * (1.0 - _margin(b.rows)) * b.size[j]
    for i in range(len(products)):
        worst = nearest[i, last]
        for left in range(0, width, CHUNK):
            right = min(left + CHUNK, width)
            if others is None:
                offset, slope = _worst_floor(a, measure, i, worst)
                if _reach(products[i, left:right], offset, slope, floor[left:right]) == 0:
                    continue
            _gap_row(products, others, a, b, measure, i, left, right, gaps)
            for j in range(right - left):
                if gaps[j] < worst and start + left + j != rows[i]:
                    held[i] = insert(nearest[i], neighbours[i], held[i], gaps[j], start + left + j)
                    worst = nearest[i, last]


@inlined
def _rise_floor(b, measure, j, best):
    """Return floor_j for similarities above `best`."""
    share = 1.0 - np.float64(best) + 2.0**-22
    if measure.code == COSINE:
        return (1.0 - share / measure.scale - _margin(b.rows)) * b.size[j]
    if measure.code == EUCLIDEAN:
        gap = (share / measure.scale) ** 2
    else:
        gap = -measure.doubled * math.log1p(-share / measure.scale) if share < measure.scale else np.inf
    return 0.5 * ((1.0 - _margin(b.rows)) * b.size[j] - gap)


@inlined
def _rise_line(a, measure, i):
    """Return (offset, slope) of row i for the floors of `_rise_floor`."""
    if measure.code == COSINE:
        return np.float32(0.0), np.float32(a.size[i])
    return np.float32(0.5 * (1.0 - _margin(a.rows)) * a.size[i]), np.float32(1.0)


@compiled
def add_rises(products, others, a, b, measure, best, caps, weights, gains):
    """Add Σ_j w_j max(0, min(s_ij, cap_j) − best_j) of every row i to `gains`. Without a query `caps` is None; if all
    weights are 1, `weights` is None (see `rise`)."""
    width = products.shape[1]
    floor, gaps, found = np.empty(width, np.float32), np.empty(width), np.empty((1, width), np.float32)
    for j in range(width):
        floor[j] = _rise_floor(b, measure, j, best[j])
    for i in range(len(products)):
        step, offset, slope = width, np.float32(-np.inf), np.float32(0.0)
        if others is None:
            offset, slope = _rise_line(a, measure, i)
            reached = _reach(products[i], offset, slope, floor)
            if reached == 0:
                continue
            step = width if CHUNK * reached > width else CHUNK  # a whole row at once, if most chunks matter
        for left in range(0, width, step):
            right = min(left + step, width)
            if step < width and _reach(products[i, left:right], offset, slope, floor[left:right]) == 0:
                continue
            _gap_row(products, others, a, b, measure, i, left, right, gaps)
            _similarity_row(gaps, measure, found[0, : right - left])
            if caps is not None:
                for j in range(right - left):
                    found[0, j] = min(found[0, j], caps[left + j])
            if weights is None:
                gains[i] += rise(found, None, best[left:right], 0)
            else:
                gains[i] += rise(found, weights[left:right], best[left:right], 0)


@compiled
def list_rises(products, others, a, b, measure, best, caps, rows, columns, found):
    """Write row, column and min(s_ij, cap_j) of every pair with s_ij and cap_j above best_j. Return how many."""
    width, count = products.shape[1], 0
    floor, gaps, value = np.empty(width, np.float32), np.empty(width), np.empty(width, np.float32)
    for j in range(width):
        floor[j] = _rise_floor(b, measure, j, best[j])
    for i in range(len(products)):
        offset, slope, step = np.float32(0.0), np.float32(0.0), CHUNK
        if others is None:
            offset, slope = _rise_line(a, measure, i)
        for left in range(0, width, step):
            right = min(left + step, width)
            reached = right - left
            if others is None:
                reached = _reach(products[i, left:right], offset, slope, floor[left:right])
            if reached == 0:
                continue
            whole = 4 * reached > right - left  # all pairs at once, if many matter
            if whole:
                _gap_row(products, others, a, b, measure, i, left, right, gaps)
                _similarity_row(gaps, measure, value[: right - left])
            for j in range(left, right):
                if not whole:
                    if products[i, j] < offset + slope * floor[j]:
                        continue
                    _gap_row(products, others, a, b, measure, i, j, j + 1, gaps)
                    _similarity_row(gaps, measure, value[:1])
                similarity = value[j - left] if whole else value[0]
                if caps is not None:
                    similarity = min(similarity, caps[j])
                if similarity > best[j]:
                    rows[count], columns[count], found[count] = i, j, similarity
                    count += 1
    return count


@reordered
def rise(similarities, weights, best, a):
    """Return Σ_j w_j max(0, s_aj − best_j). Similarities are multiples of 2⁻²⁴, and weighted rises are rounded to whole
    numbers (see `FacilityLocation`), so the sum is exact in any order. `weights` may be None: all are 1."""
    total, zero = 0.0, np.float32(0.0)
    if weights is None:
        for j in range(len(best)):
            total += np.float64(max(similarities[a, j] - best[j], zero))
    else:
        for j in range(len(best)):
            total += np.rint(weights[j] * np.float64(max(similarities[a, j] - best[j], zero)))
    return total
