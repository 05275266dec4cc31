"""Gains of one set term beside the modular scores, compiled.

What differs between set terms is four small functions, chosen by type when a loop is compiled:

    blank(term)                              what the term remembers of S, for S = ∅
    singles(term, memory, ...)               F({a}) of every member
    evaluate(term, memory, base, a, ...)     (F(a | S), how much of S it has seen)
    remember(term, memory, a)                S <- S + {a}
"""

import math
from typing import NamedTuple

import numpy as np
from numba.extending import overload

from smdl.arithmetic import GRID
from smdl.jit import INLINED, PLAIN, compiled, inlined, reordered
from smdl.objective import Problem
from smdl.similarity import Points, distance, similarity
from smdl.terms import FacilityLocation, FeatureCoverage, Redundancy


class Nothing(NamedTuple):
    """No set term: the modular scores alone."""

    weight: float


class NearestPick(NamedTuple):
    points: Points
    coefficient: float
    weight: float  # the gain at S = ∅, where R = D


class DenseFacilityLocation(NamedTuple):
    """Facility location over a dense matrix."""

    similarities: np.ndarray  # (N, N) float32
    coefficient: float


class SparseFacilityLocation(NamedTuple):
    """Facility location over a graph of neighbours."""

    neighbours: np.ndarray  # (N, k) int32
    similarities: np.ndarray  # (N, k) float32
    coefficient: float


class LazyFacilityLocation(NamedTuple):
    """Facility location without a matrix: similarities are computed where they are looked at."""

    points: Points
    coefficient: float


class Coverage(NamedTuple):
    """Feature coverage by square roots."""

    features: np.ndarray  # (N, D)
    factor: float
    coefficient: float


class ConcaveCoverage(NamedTuple):
    """Feature coverage by another concave g."""

    features: np.ndarray
    factor: float
    coefficient: float
    g: int


Compiled = (
    Nothing
    | NearestPick
    | DenseFacilityLocation
    | SparseFacilityLocation
    | LazyFacilityLocation
    | Coverage
    | ConcaveCoverage
)


def compiled_term(problem: Problem) -> Compiled | None:
    """The problem's set term for the loops below; None where they cannot serve it."""
    if problem.pool.device.type != "cpu" or not problem.objective.diminishing or len(problem.set_terms) > 1:
        return None
    for name, term in problem.set_terms.items():
        coefficient = problem.coefficient(name)
        if isinstance(term, Redundancy):
            return NearestPick(problem.points, coefficient, coefficient * term.unit)
        if isinstance(term, FacilityLocation):
            if problem.metric.bound == 0.0:
                return Nothing(0.0)  # all samples are one point
            if problem.graph is not None:
                return SparseFacilityLocation(*problem.graph, coefficient)
            if problem.similarities is not None:
                return DenseFacilityLocation(problem.similarities, coefficient)
            return LazyFacilityLocation(problem.points, coefficient)
        if isinstance(term, FeatureCoverage):
            features = problem.pool.features.numpy()
            if problem.objective.concave == "sqrt":
                return Coverage(features, term.factor, coefficient)
            return ConcaveCoverage(features, term.factor, coefficient, term.g)
        return None
    return Nothing(0.0)


@inlined
def _inverse(scale):
    return 1.0 / scale if scale > 0.0 else 0.0


@reordered
def _dense_rise(similarities, served, a):
    """Σ_j max(0, s_aj − served_j). Multiples of 2⁻²⁴, so the order of the sum is free."""
    total, zero = 0.0, np.float32(0.0)
    for j in range(len(served)):
        total += np.float64(max(similarities[a, j] - served[j], zero))
    return total


@inlined
def _root_rise(features, memory, factor, a, u):
    """√(mass + x) − √mass on the grid, in a form whose rounding never lets it rise with mass."""
    x = np.float64(features[a, u])
    roots = math.sqrt(memory[0, u] + x) + memory[1, u]
    return np.rint((x / roots if roots > 0.0 else 0.0) * factor)


@reordered
def _root_rises(features, memory, factor, a):
    total = 0.0
    for u in range(features.shape[1]):
        total += _root_rise(features, memory, factor, a, u)
    return total


def blank(term: Compiled) -> np.ndarray:
    """What the term remembers of the empty set; for compiled callers."""
    raise NotImplementedError


@overload(blank, jit_options=PLAIN)
def _blank(term):
    return {
        Nothing: lambda term: np.zeros(0, np.float32),  # noqa: ARG005
        NearestPick: lambda term: np.zeros(0, np.float32),  # noqa: ARG005
        DenseFacilityLocation: lambda term: np.zeros(len(term.similarities), np.float32),
        SparseFacilityLocation: lambda term: np.zeros(len(term.neighbours), np.float32),
        LazyFacilityLocation: lambda term: np.zeros(len(term.points.rows), np.float32),
        Coverage: lambda term: np.zeros((2, term.features.shape[1])),  # mass and its root
        ConcaveCoverage: lambda term: np.zeros((1, term.features.shape[1])),
    }[term.instance_class]


def evaluate(term, memory, base, a, picked, seen, count, bound, best) -> tuple[float, int]:
    """(gain or a bound below `best`, how many of S it has taken into account); for compiled callers."""
    raise NotImplementedError


@overload(evaluate, jit_options=INLINED)
def _evaluate(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    def nothing(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        return base, count

    def redundant(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        if seen < 0:
            seen, bound = 0, base + term.weight
        while seen < count and bound >= best:  # stop as soon as it cannot win: every pair at most once
            gap = distance(term.points, a, picked[seen])
            bound = min(bound, base + min(term.weight, term.coefficient * gap))
            seen += 1
        return bound, seen

    def served(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        return base + term.coefficient * _dense_rise(term.similarities, memory, a), count

    def served_nearby(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        total = 0.0
        for t in range(term.neighbours.shape[1]):
            rise = np.float64(term.similarities[a, t]) - np.float64(memory[term.neighbours[a, t]])
            total += max(rise, 0.0)
        return base + term.coefficient * total, count

    def served_afar(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        total, inverse = 0.0, _inverse(term.points.bound)
        for j in range(len(memory)):
            rise = np.float64(similarity(term.points, inverse, a, j)) - np.float64(memory[j])
            total += max(rise, 0.0)
        return base + term.coefficient * total, count

    def covered(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        return base + term.coefficient * (_root_rises(term.features, memory, term.factor, a) / GRID), count

    def covered_by(term, memory, base, a, picked, seen, count, bound, best):  # noqa: ARG001
        total = 0.0
        for u in range(term.features.shape[1]):
            x, mass = np.float64(term.features[a, u]), memory[0, u]
            rise = math.log1p(x / (1.0 + mass)) if term.g == 1 else x / ((1.0 + mass) * (1.0 + mass + x))
            total += np.rint(rise * term.factor)
        return base + term.coefficient * (total / GRID), count

    return {
        Nothing: nothing,
        NearestPick: redundant,
        DenseFacilityLocation: served,
        SparseFacilityLocation: served_nearby,
        LazyFacilityLocation: served_afar,
        Coverage: covered,
        ConcaveCoverage: covered_by,
    }[term.instance_class]


def remember(term, memory, a):
    """S <- S + {a}; for compiled callers."""
    raise NotImplementedError


@overload(remember, jit_options=PLAIN)
def _remember(term, memory, a):  # noqa: ARG001
    def nothing(term, memory, a):  # noqa: ARG001
        return

    def served(term, memory, a):
        for j in range(len(memory)):
            memory[j] = max(memory[j], term.similarities[a, j])

    def served_nearby(term, memory, a):
        for t in range(term.neighbours.shape[1]):
            j = term.neighbours[a, t]
            memory[j] = max(memory[j], term.similarities[a, t])

    def served_afar(term, memory, a):
        inverse = _inverse(term.points.bound)
        for j in range(len(memory)):
            memory[j] = max(memory[j], similarity(term.points, inverse, a, j))

    def covered(term, memory, a):
        for u in range(term.features.shape[1]):
            memory[0, u] += np.float64(term.features[a, u])
            memory[-1, u] = math.sqrt(memory[0, u])

    def covered_by(term, memory, a):
        for u in range(term.features.shape[1]):
            memory[0, u] += np.float64(term.features[a, u])

    return {
        Nothing: nothing,
        NearestPick: nothing,
        DenseFacilityLocation: served,
        SparseFacilityLocation: served_nearby,
        LazyFacilityLocation: served_afar,
        Coverage: covered,
        ConcaveCoverage: covered_by,
    }[term.instance_class]


@compiled
def _one_by_one(term, memory, modular, members, bounds):
    none = np.empty(0, np.int32)
    for k in range(len(members)):
        bounds[k], _ = evaluate(term, memory, modular[members[k]], members[k], none, -1, 0, np.inf, -np.inf)


def singles(term, memory, modular, members, bounds):
    """F({a}) of every member, into bounds; for compiled callers."""
    raise NotImplementedError


@overload(singles, jit_options=PLAIN)
def _singles(term, memory, modular, members, bounds):  # noqa: ARG001
    def one_by_one(term, memory, modular, members, bounds):
        _one_by_one(term, memory, modular, members, bounds)

    def pair_by_pair(term, memory, modular, members, bounds):
        n = len(memory)
        if len(members) < n:
            _one_by_one(term, memory, modular, members, bounds)
            return
        bounds[:], inverse = 0.0, _inverse(term.points.bound)
        for i in range(n):
            for j in range(i + 1, n):
                value = np.float64(similarity(term.points, inverse, i, j))
                bounds[i] += value
                bounds[j] += value
        for i in range(n):
            own = np.float64(similarity(term.points, inverse, i, i))
            bounds[i] = modular[i] + term.coefficient * (bounds[i] + own)

    return pair_by_pair if term.instance_class is LazyFacilityLocation else one_by_one
