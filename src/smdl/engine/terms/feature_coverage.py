"""FeatureCoverage: the mass of each feature in the batch, with diminishing returns."""

import math
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine import arithmetic
from smdl.engine.arithmetic import CONCAVE, GRID, inverse, value
from smdl.engine.geometry import Geometry
from smdl.engine.jit import inlined, reordered
from smdl.engine.pool import stored
from smdl.engine.terms.term import Loops, SetTerm


class Coverage(NamedTuple):
    """The compiled form."""

    features: np.ndarray  # (N, D)
    factor: float
    coefficient: float
    g: int


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


def _empty_state(term):
    return np.zeros((2, term.features.shape[1]))  # mass and its root


def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    if term.g == 0:
        total = _root_rises(term.features, state, term.factor, a)
    else:
        total = _concave_rises(term.features, state, term.factor, term.g, a)
    return base + term.coefficient * (total / GRID), count


def _add_pick(term, state, a):
    for u in range(term.features.shape[1]):
        state[0, u] += np.float64(value(term.features, a, u))
        state[1, u] = math.sqrt(state[0, u])


class FeatureCoverage(SetTerm):
    """F(S) = Σ_u g(Σ_{i ∈ S} x_iu): every feature is present in the batch, with diminishing returns."""

    loops: ClassVar = {Coverage: Loops(_empty_state, _gain_of, _add_pick)}
    signed = False

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        low = float(self.pool.features.min())
        if low < 0:
            raise ValueError(f"feature_coverage needs features ≥ 0, got {low:.6g}")
        if not math.isfinite(arithmetic.column_sums(stored(self.pool.features)).sum()):
            raise ValueError("feature_coverage needs features with a finite sum, and theirs overflows: scale them")
        self.g = CONCAVE[geometry.objective.concave]
        self.scale = float(arithmetic.concave_sum(stored(self.pool.features), self.g).max())
        self.factor = GRID * inverse(self.scale)

    def start(self, parts: Tensor) -> None:
        self._mass = self.tensor(len(parts), self.pool.features.shape[1])

    def gains(self, candidates: Tensor) -> Tensor:
        out = self.tensor(*candidates.shape)
        step = max(1, (1 << 22) // (self._mass.shape[1] * len(candidates)))
        for k in range(0, candidates.shape[1], step):
            x = self.pool.features[candidates[:, k : k + step]].to(out.dtype)
            rises = self._rise(self._mass[:, None, :], x) * self.factor
            out[:, k : k + step] = rises.round().sum(-1) / GRID
        return out

    def _rise(self, mass: Tensor, x: Tensor) -> Tensor:
        """Return g(mass + x) − g(mass). In this form rounding never makes it grow with the mass."""
        if self.g == 0:
            roots = (mass + x).sqrt() + mass.sqrt()
            return torch.where(roots > 0, x / roots, 0.0)
        if self.g == 1:
            return torch.log1p(x / (1 + mass))
        return x / ((1 + mass) * (1 + mass + x))

    def add(self, picks: Tensor) -> None:
        self._mass = self._mass + self.pool.features[picks].to(self._mass.dtype)

    def compiled(self, coefficient: float, size: int) -> Coverage:  # noqa: ARG002
        return Coverage(stored(self.pool.features), self.factor, coefficient, self.g)
