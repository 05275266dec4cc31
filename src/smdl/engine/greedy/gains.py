"""CompiledTerm gains of one set term plus the modular scores.

Each set term implements four small functions. Numba chooses them by the type of the term when it compiles a loop:

    empty_state(term)                        what the term keeps of the batch S, for S = ∅
    single_gains(term, state, ...)           F({a}) of every member
    gain_of(term, state, base, a, ...)       (F(a | S), number of picks of S taken into account)
    add_pick(term, state, a)                 S <- S + {a}
"""

import math
from typing import NamedTuple

import numpy as np
from numba.extending import overload

from smdl.common import memory
from smdl.engine.arithmetic import GRID, value
from smdl.engine.block_loops import rise
from smdl.engine.greedy.determinant import Determinant, State, compiled_determinant, determinant_add, determinant_gain
from smdl.engine.jit import INLINED, PLAIN, compiled, inlined, reordered
from smdl.engine.objective import Problem
from smdl.engine.pool import stored
from smdl.engine.similarity import Points, distance
from smdl.engine.terms import FacilityLocation, FeatureCoverage, LogDeterminant, Redundancy


class ModularOnly(NamedTuple):
    """No set term: only the modular scores."""

    weight: float


class NearestPick(NamedTuple):
    """Redundancy: the distance to the nearest pick."""

    points: Points
    coefficient: float
    weight: float  # the gain at S = ∅, where R = D


class DenseFacilityLocation(NamedTuple):
    """Facility location over a dense matrix."""

    similarities: np.ndarray  # (N, N) float32
    weights: np.ndarray | None  # (N,) float64 of the samples to be represented
    coefficient: float


class SparseFacilityLocation(NamedTuple):
    """Facility location over a graph of neighbours."""

    neighbours: np.ndarray  # (N, k) int32
    similarities: np.ndarray  # (N, k) float32
    weights: np.ndarray | None
    coefficient: float


class ListedFacilityLocation(NamedTuple):
    """Facility location over lists: for each candidate the samples that it covers better than the batch does."""

    starts: np.ndarray  # (C + 1,) int64: the list of a candidate begins here, and ends where the next one begins
    samples: np.ndarray  # int32
    similarities: np.ndarray  # float32
    weights: np.ndarray | None  # (m,)
    coverage: np.ndarray  # (m,) float32, by the batch for which the lists were made
    coefficient: float


class Coverage(NamedTuple):
    """Feature coverage."""

    features: np.ndarray  # (N, D)
    factor: float
    coefficient: float
    g: int


FacilityLocations = DenseFacilityLocation | SparseFacilityLocation | ListedFacilityLocation
CompiledTerm = ModularOnly | NearestPick | FacilityLocations | Coverage | Determinant


def compiled_term(problem: Problem, size: int) -> CompiledTerm | None:
    """Return the set term of the problem as the loops below take it, for batches of `size`; None where they do not
    support it."""
    if not problem.pool.features.is_cpu or not problem.objective.diminishing or len(problem.set_terms) > 1:
        return None
    geometry = problem.geometry
    for name, term in problem.set_terms.items():
        coefficient = problem.coefficient(name)
        if isinstance(term, Redundancy):
            return NearestPick(geometry.points, coefficient, coefficient * term.unit)
        if isinstance(term, FacilityLocation):
            if term.unit == 0.0:
                return ModularOnly(0.0)  # all samples are the same point
            if geometry.graph is not None:
                return SparseFacilityLocation(*geometry.graph, term.weights, coefficient / term.grid)
            if geometry.similarities is not None:
                return DenseFacilityLocation(geometry.similarities.numpy(), term.weights, coefficient / term.grid)
            return None
        if isinstance(term, FeatureCoverage):
            return Coverage(stored(problem.pool.features), term.factor, coefficient, term.g)
        if isinstance(term, LogDeterminant) and 8 * len(problem.pool) * size <= memory.available() // 2:
            return compiled_determinant(problem, term, size)
        return None
    return ModularOnly(0.0)


@inlined
def _one_rise(similarity, weights, best, j):
    """Return w_j max(0, s − best_j), as `rise` rounds it."""
    found = max(np.float64(similarity) - np.float64(best[j]), 0.0)
    if weights is None:
        return found
    return np.rint(weights[j] * found)


@inlined
def _root_rise(features, state, factor, a, u):
    """Return √(mass + x) − √mass on the grid. In this form rounding never makes it grow with the mass."""
    x = np.float64(value(features, a, u))
    roots = math.sqrt(state[0, u] + x) + state[1, u]
    return np.rint((x / roots if roots > 0.0 else 0.0) * factor)


@reordered
def _root_rises(features, state, factor, a):
    total = 0.0
    for u in range(features.shape[1]):
        total += _root_rise(features, state, factor, a, u)
    return total


@inlined
def _concave_rises(features, state, factor, g, a):
    total = 0.0
    for u in range(features.shape[1]):
        x, mass = np.float64(value(features, a, u)), state[0, u]
        rise = math.log1p(x / (1.0 + mass)) if g == 1 else x / ((1.0 + mass) * (1.0 + mass + x))
        total += np.rint(rise * factor)
    return total


def empty_state(term: CompiledTerm) -> np.ndarray:
    """Return the state of a term for S = ∅ (for compiled callers)."""
    raise NotImplementedError


@overload(empty_state, jit_options=PLAIN)
def _empty_state(term):
    return {
        ModularOnly: lambda term: np.zeros(0, np.float32),  # noqa: ARG005
        NearestPick: lambda term: np.zeros(0, np.float32),  # noqa: ARG005
        DenseFacilityLocation: lambda term: np.zeros(len(term.similarities), np.float32),
        SparseFacilityLocation: lambda term: np.zeros(len(term.neighbours), np.float32),
        ListedFacilityLocation: lambda term: term.coverage.copy(),
        Coverage: lambda term: np.zeros((2, term.features.shape[1])),  # mass and its root
        Determinant: lambda term: State(
            np.empty((len(term.diagonal), term.size)),
            term.diagonal.copy(),
            np.empty(term.size, np.int32),
            np.zeros(1, np.int64),
        ),
    }[term.instance_class]


def gain_of(term, state, base, a, picked, seen, count, bound, best) -> tuple[float, int]:
    """Return (gain, or a bound below `best`; number of picks taken into account) (for compiled callers)."""
    raise NotImplementedError


@overload(gain_of, jit_options=INLINED)
def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    def modular_only(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        return base, count

    def nearest_pick(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        if seen < 0:
            seen, bound = 0, base + term.weight
        while seen < count and bound >= best:  # stop as soon as a cannot win; no pair is measured twice
            gap = distance(term.points, a, picked[seen])
            bound = min(bound, base + min(term.weight, term.coefficient * gap))
            seen += 1
        return bound, seen

    def dense(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        return base + term.coefficient * rise(term.similarities, term.weights, state, a), count

    def sparse(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        total = 0.0
        for t in range(term.neighbours.shape[1]):
            total += _one_rise(term.similarities[a, t], term.weights, state, term.neighbours[a, t])
        return base + term.coefficient * total, count

    def listed(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        total = 0.0
        for t in range(term.starts[a], term.starts[a + 1]):
            total += _one_rise(term.similarities[t], term.weights, state, term.samples[t])
        return base + term.coefficient * total, count

    def coverage(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        if term.g == 0:
            total = _root_rises(term.features, state, term.factor, a)
        else:
            total = _concave_rises(term.features, state, term.factor, term.g, a)
        return base + term.coefficient * (total / GRID), count

    def determinant(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        return determinant_gain(term, state, base, a, seen, count, bound, best)

    return {
        ModularOnly: modular_only,
        NearestPick: nearest_pick,
        DenseFacilityLocation: dense,
        SparseFacilityLocation: sparse,
        ListedFacilityLocation: listed,
        Coverage: coverage,
        Determinant: determinant,
    }[term.instance_class]


def add_pick(term, state, a):
    """Update the state: S <- S + {a} (for compiled callers)."""
    raise NotImplementedError


@overload(add_pick, jit_options=PLAIN)
def _add_pick(term, state, a):  # noqa: ARG001
    def no_state(term, state, a):  # noqa: ARG001
        return

    def dense(term, state, a):
        for j in range(len(state)):
            state[j] = max(state[j], term.similarities[a, j])

    def sparse(term, state, a):
        for t in range(term.neighbours.shape[1]):
            j = term.neighbours[a, t]
            state[j] = max(state[j], term.similarities[a, t])

    def listed(term, state, a):
        for t in range(term.starts[a], term.starts[a + 1]):
            j = term.samples[t]
            state[j] = max(state[j], term.similarities[t])

    def coverage(term, state, a):
        for u in range(term.features.shape[1]):
            state[0, u] += np.float64(value(term.features, a, u))
            state[1, u] = math.sqrt(state[0, u])

    return {
        ModularOnly: no_state,
        NearestPick: no_state,
        DenseFacilityLocation: dense,
        SparseFacilityLocation: sparse,
        ListedFacilityLocation: listed,
        Coverage: coverage,
        Determinant: lambda term, state, a: determinant_add(term, state, a),
    }[term.instance_class]


@compiled
def single_gains(term, state, modular, members, picked, count, bounds):
    """Write F(a | S) of every member to `bounds`; S are the first `count` of `picked` (for compiled callers)."""
    for k in range(len(members)):
        bounds[k], _ = gain_of(term, state, modular[members[k]], members[k], picked, -1, count, np.inf, -np.inf)
