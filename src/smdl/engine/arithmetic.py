"""Scores in float64: compiled loops that add from left to right.

Loops need no temporary arrays. Without fast-math they give the same bits as the plain Python loops of
`tests/specification.py`. Only squared norms are added in any order: they are a scale, and that is faster.
"""

import math

import numba
import numpy as np
from numba.extending import overload

from smdl.engine.jit import INLINED, compiled, inlined, reordered

#: Set terms are rounded to multiples of scale / GRID before they are summed. Such sums are exact, so they are the same
#: in any order, with any number of threads, and in the compiled and the torch code.
GRID = 2.0**40

#: The relative error of one float64 operation, rounded up.
ROUNDING = 2.3e-16

#: Scores whose spread is at most this share of their size are constant: scaled to [0, 1] they would be rounding noise.
FLAT = 1e-12

CONCAVE = {"sqrt": 0, "log": 1, "ratio": 2}
ENTROPY = 3


@inlined
def inverse(scale: float) -> float:
    """Return 1 / scale, and 0 if the scale is 0."""
    return 1.0 / scale if scale > 0.0 else 0.0


def value(x: np.ndarray, i: int, u: int) -> float:
    """Return x[i, u] (for compiled callers). Halves are stored as integers of the same bits: float16 as uint16,
    bfloat16 as int16. Numba has no such floats, and a copy as float32 would double the memory."""
    raise NotImplementedError


@overload(value, jit_options=INLINED)
def _value(x, i, u):  # noqa: ARG001
    if x.dtype == numba.uint16:

        def from_float16(x, i, u):
            bits = np.uint32(x[i, u])
            sign, rest = (bits & np.uint32(0x8000)) << np.uint32(16), (bits & np.uint32(0x7FFF)) << np.uint32(13)
            if rest >= np.uint32(1 << 23):
                return np.uint32(sign | (rest + _EXPONENTS)).view(np.float32)
            small = np.uint32(rest + _EXPONENTS + np.uint32(1 << 23)).view(np.float32) - _LEAST
            return -small if sign else small

        return from_float16
    if x.dtype == numba.int16:

        def from_bfloat16(x, i, u):
            return np.int32(np.int32(x[i, u]) << np.int32(16)).view(np.float32)

        return from_bfloat16
    return lambda x, i, u: x[i, u]


def type_of(x: np.ndarray) -> type:
    """Return the type of `value` (for compiled callers)."""
    raise NotImplementedError


@overload(type_of, jit_options=INLINED)
def _type_of(x):
    kind = numba.float64 if x.dtype == numba.float64 else numba.float32
    return lambda x: kind  # noqa: ARG005


#: Exponents of float16 count from −15, those of float32 from −127. No factor 2¹¹²: sums in any order could move it.
_EXPONENTS = np.uint32(112 << 23)

#: The least float16 that has an exponent.
_LEAST = np.float32(2.0**-14)


def largest(values: np.ndarray) -> float:
    """Return the largest |x|; infinity or NaN if some x is. Halves are stored as for `value`."""
    found = _largest(values, _ZEROS[values.dtype])
    return math.inf if found >= 2.0**16 and values.dtype == np.uint16 else found  # `value` reads no infinite float16


@compiled
def _largest(values, zero):
    """Find the maximum among integers of the same bits: unlike floats they vectorise, and NaN is above infinity."""
    flat = values.ravel()
    bits, without_sign = flat.view(zero.dtype), np.iinfo(zero.dtype).max
    top = zero[0]
    for i in range(len(bits)):
        top = max(top, zero.dtype.type(bits[i] & without_sign))
    found = np.full((1, 1), top, zero.dtype)
    return np.float64(value(found.view(flat.dtype), 0, 0))


#: By type of numbers as stored: a zero of the integers of the same width.
_ZEROS: dict[np.dtype, np.ndarray] = {
    np.dtype(np.float32): np.zeros(1, np.int32),
    np.dtype(np.float64): np.zeros(1, np.int64),
    np.dtype(np.uint16): np.zeros(1, np.int16),
    np.dtype(np.int16): np.zeros(1, np.int16),
}


@compiled
def whole_range(values: np.ndarray) -> tuple[int, int]:
    """Return the least and the greatest of integers, (N,)."""
    low = high = values[0]
    for i in range(len(values)):
        low, high = min(low, values[i]), max(high, values[i])
    return low, high


@compiled
def row_range(rows: np.ndarray) -> tuple[float, float, float]:
    """Return the least number, the least sum of a row and the greatest one, (N, C)."""
    least, low, high = np.inf, np.inf, -np.inf
    for i in range(len(rows)):
        total = 0.0
        for c in range(rows.shape[1]):
            x = np.float64(value(rows, i, c))
            least = min(least, x)
            total += x
        low, high = min(low, total), max(high, total)
    return least, low, high


@compiled
def concave(g: int, mass: float) -> float:
    """Return g(mass): √m, log(1 + m), m / (1 + m) or −m log m."""
    if g == 0:
        return math.sqrt(mass)
    if g == 1:
        return math.log1p(mass)
    if g == ENTROPY:
        return -mass * math.log(mass) if mass > 0.0 else 0.0
    return mass / (1.0 + mass)


@compiled
def concave_sum(features: np.ndarray, g: int) -> np.ndarray:
    """Return Σ_u g(max(m_u, 0)) of every row, (N, D) -> (N,)."""
    out = np.zeros(len(features))
    for i in range(len(features)):
        total = 0.0
        for u in range(features.shape[1]):
            total += concave(g, max(np.float64(value(features, i, u)), 0.0))
        out[i] = total
    return out


@compiled
def column_sums(features: np.ndarray) -> np.ndarray:
    """Return Σ_i x_i, (N, D) -> (D,)."""
    total = np.zeros(features.shape[1])
    for i in range(len(features)):
        for u in range(features.shape[1]):
            total[u] += np.float64(value(features, i, u))
    return total


@compiled
def squared_distances(features: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return ‖x_i − centre‖² of every row, (N, D) -> (N,)."""
    out = np.zeros(len(features))
    for i in range(len(features)):
        total = 0.0
        for u in range(len(centre)):
            gap = np.float64(value(features, i, u)) - centre[u]
            total += gap * gap
        out[i] = total
    return out


@reordered
def wide_products(x: np.ndarray, i: int, j: int) -> float:
    """Return ⟨x_i, x_j⟩ in float64."""
    total = 0.0
    for u in range(x.shape[1]):
        total += np.float64(value(x, i, u)) * np.float64(value(x, j, u))
    return total


@compiled
def squared_norms(features: np.ndarray) -> np.ndarray:
    """Return ‖x_i‖² of every row, (N, D) -> (N,); squares are added in any order."""
    out = np.empty(len(features))
    for i in range(len(features)):
        out[i] = wide_products(features, i, i)
    return out


@compiled
def subtract_ones(rows: np.ndarray, columns: np.ndarray) -> None:
    """Subtract 1 from one number of each row in place: rows − onehot(columns)."""
    for i in range(len(rows)):
        rows[i, columns[i]] -= 1


@compiled
def gradient_norms(features: np.ndarray, errors: np.ndarray, bias: float, e: np.ndarray, f: np.ndarray) -> float:
    """Write ‖e‖² and ‖f‖² + bias, (N,), to `e` and `f`. Return the largest ‖g‖ = ‖e‖ ‖f‖."""
    longest = 0.0
    for i in range(len(features)):
        e[i], f[i] = wide_products(errors, i, i), wide_products(features, i, i) + bias
        longest = max(longest, math.sqrt(e[i] * f[i]))
    return longest


@compiled
def cosine_to(features: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """Return cos(x_i, direction) of every row, (N, D) -> (N,); 0 where either is the zero vector."""
    out = np.zeros(len(features))
    length = 0.0
    for u in range(len(direction)):
        length += direction[u] * direction[u]
    length = math.sqrt(length)
    for i in range(len(features)):
        dot, square = 0.0, 0.0
        for u in range(len(direction)):
            x = np.float64(value(features, i, u))
            dot += x * direction[u]
            square += x * x
        norm = math.sqrt(square) * length
        if norm > 0.0:
            out[i] = dot / norm
    return out


@compiled
def add_scaled(total: np.ndarray, scores: np.ndarray, weight: float, low: float, high: float) -> None:
    """Add weight · (scores − low) / (high − low) to total in place. A constant score adds nothing."""
    if high - low > FLAT * max(abs(low), abs(high)):
        for i in range(len(total)):
            total[i] += weight * ((scores[i] - low) / (high - low))


@compiled
def centred(features: np.ndarray) -> np.ndarray:
    """Return every row minus its mean: the cosine of such rows is their correlation."""
    out, width = np.empty(features.shape, type_of(features)), features.shape[1]
    for i in range(len(features)):
        total = 0.0
        for u in range(width):
            total += np.float64(value(features, i, u))
        mean = total / width
        noise = width * ROUNDING * abs(mean)  # a constant row must become zeros, not rounding errors
        for u in range(width):
            gap = np.float64(value(features, i, u)) - mean
            out[i, u] = gap if abs(gap) > noise else 0.0
    return out
