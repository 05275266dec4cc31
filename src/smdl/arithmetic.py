"""Scores in float64: compiled loops that add from left to right.

Loops need no temporary arrays. Without fast-math they give the same bits as the plain Python loops of
`greedy/specification.py`. Only squared norms are added in any order: they are a scale, and that is faster.
"""

import math

import numpy as np

from smdl.jit import compiled, inlined, reordered

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
            total += concave(g, max(np.float64(features[i, u]), 0.0))
        out[i] = total
    return out


@compiled
def column_sums(features: np.ndarray) -> np.ndarray:
    """Return Σ_i x_i, (N, D) -> (D,)."""
    total = np.zeros(features.shape[1])
    for i in range(len(features)):
        for u in range(features.shape[1]):
            total[u] += np.float64(features[i, u])
    return total


@compiled
def squared_distances(features: np.ndarray, centre: np.ndarray) -> np.ndarray:
    """Return ‖x_i − centre‖² of every row, (N, D) -> (N,)."""
    out = np.zeros(len(features))
    for i in range(len(features)):
        total = 0.0
        for u in range(len(centre)):
            gap = np.float64(features[i, u]) - centre[u]
            total += gap * gap
        out[i] = total
    return out


@reordered
def _squared_norm(row: np.ndarray) -> float:
    total = 0.0
    for u in range(len(row)):
        total += np.float64(row[u]) * np.float64(row[u])
    return total


@compiled
def squared_norms(features: np.ndarray) -> np.ndarray:
    """Return ‖x_i‖² of every row, (N, D) -> (N,); squares are added in any order."""
    out = np.empty(len(features))
    for i in range(len(features)):
        out[i] = _squared_norm(features[i])
    return out


@compiled
def gradient_parts(
    features: np.ndarray, probabilities: np.ndarray, labels: np.ndarray, bias: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Return e = p − onehot(y), (N, C) in the type of the features, ‖e‖², ‖f‖² + bias, (N,), and the largest ‖e‖ ‖f‖."""
    errors, largest = np.empty(probabilities.shape, features.dtype), 0.0
    e, f, row = np.empty(len(features)), np.empty(len(features)), np.empty_like(probabilities[0])
    for i in range(len(features)):
        row[:] = probabilities[i]
        row[labels[i]] -= 1
        errors[i] = row
        e[i], f[i] = _squared_norm(row), _squared_norm(features[i]) + bias
        largest = max(largest, math.sqrt(e[i] * f[i]))
    return errors, e, f, largest


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
            x = np.float64(features[i, u])
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
    out, width = np.empty_like(features), features.shape[1]
    for i in range(len(features)):
        total = 0.0
        for u in range(width):
            total += np.float64(features[i, u])
        mean = total / width
        noise = width * ROUNDING * abs(mean)  # a constant row must become zeros, not rounding errors
        for u in range(width):
            gap = np.float64(features[i, u]) - mean
            out[i, u] = gap if abs(gap) > noise else 0.0
    return out
