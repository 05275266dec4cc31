"""The compiled log-determinant: an incremental Cholesky factor that grows only for candidates that could win."""

import math
from typing import NamedTuple

import numpy as np

from smdl.engine.arithmetic import GRID
from smdl.engine.gradients import GradientSpace
from smdl.engine.jit import compiled, inlined
from smdl.engine.objective import Problem
from smdl.engine.similarity import gradient_gap, one_minus_cosine, wide_gaps, wide_products
from smdl.engine.terms import LogDeterminant

LINEAR, COSINE, GAUSSIAN = 0, 1, 2
KERNELS = {"linear": LINEAR, "cosine": COSINE, "gaussian": GAUSSIAN}


class Determinant(NamedTuple):
    """log det(I + K_S / σ²)."""

    rows: np.ndarray  # (N, D)
    errors: np.ndarray  # (N, C); C = 0 over features
    bias: float
    e: np.ndarray  # (N,) ‖e‖² and ‖f‖² of gradients
    f: np.ndarray
    lengths: np.ndarray  # (N,) for cosine
    kernel: int
    doubled: float
    divisor: float
    diagonal: np.ndarray  # (N,) K_ii / σ²
    factor: float
    coefficient: float
    size: int


class State(NamedTuple):
    """What is known of the Cholesky factor of I + K/σ² over the batch."""

    rows: np.ndarray  # (N, size): row a holds the entries of candidate a for the picks that were taken into account
    left: np.ndarray  # (N,) what these entries leave of its diagonal entry
    order: np.ndarray  # (size,) the picks
    picks: np.ndarray  # (1,) their number


def compiled_determinant(problem: Problem, term: LogDeterminant, size: int) -> Determinant:
    """Return the term as the compiled loops take it, for batches of `size`."""
    space, coefficient = problem.geometry.space, problem.coefficient("log_determinant")
    none, n = np.zeros(0), len(problem.pool)
    lengths = space.lengths() if term.kernel == "cosine" else none
    gradients = space if isinstance(space, GradientSpace) else None
    return Determinant(
        space.host,
        np.zeros((n, 0), np.float32) if gradients is None else gradients.host_errors,
        0.0 if gradients is None else gradients.bias,
        none if gradients is None else gradients.error_norms,
        none if gradients is None else gradients.feature_norms,
        lengths,
        KERNELS[term.kernel],
        term.doubled,
        term.divisor,
        term.diagonal.numpy(),
        term.factor,
        coefficient,
        size,
    )


@inlined
def _entry(term, a, b):
    """Return K_ab / σ²."""
    gradients = term.errors.shape[1] > 0
    if term.kernel == GAUSSIAN:
        gap = wide_gaps(term.rows, a, b)
        if gradients:
            apart = wide_gaps(term.errors, a, b)
            gap = gradient_gap(apart, gap, term.e[a], term.e[b], term.f[a], term.f[b])
        return (1.0 + math.expm1(-gap / term.doubled)) / term.divisor
    dot = wide_products(term.rows, a, b)
    if gradients:
        dot = wide_products(term.errors, a, b) * (dot + term.bias)
    if term.kernel == COSINE:
        dot = 1.0 - one_minus_cosine(dot, term.lengths[a] * term.lengths[b])
    return dot / term.divisor


@inlined
def _take(term, state, a, t):
    """Take pick t into account for candidate a, which has taken all earlier picks into account."""
    pick, total = state.order[t], 0.0
    for s in range(t):
        total += state.rows[a, s] * state.rows[pick, s]
    entry = (_entry(term, a, pick) - total) / math.sqrt(1.0 + max(state.left[pick], 0.0))
    state.rows[a, t] = entry
    state.left[a] -= entry * entry


@inlined
def _log(term, left):
    return term.coefficient * (np.rint(math.log1p(max(left, 0.0)) * term.factor) / GRID)


@inlined
def determinant_gain(term, state, base, a, seen, count, bound, best):
    """Return (gain of a, or a bound below `best`; number of picks taken into account)."""
    if seen < 0:
        seen, bound = 0, base + _log(term, state.left[a])
    while seen < count and bound >= best:  # entries only lower the gain: stop as soon as a cannot win
        _take(term, state, a, seen)
        bound = base + _log(term, state.left[a])
        seen += 1
    return bound, seen


@compiled
def determinant_add(term, state, a):
    """Complete the row of the new pick."""
    count = state.picks[0]
    state.left[a] = term.diagonal[a]
    for t in range(count):
        _take(term, state, a, t)
    state.order[count] = a
    state.picks[0] = count + 1
