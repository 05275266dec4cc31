"""Redundancy: the distance to the nearest pick."""

import math
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine.geometry import Geometry
from smdl.engine.similarity import Points, distance
from smdl.engine.terms.term import Loops, SetTerm


class NearestPick(NamedTuple):
    """The compiled form."""

    points: Points
    coefficient: float
    weight: float  # the gain at S = ∅, where R = D


def _no_state(term):  # noqa: ARG001
    return np.zeros(0, np.float32)


def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    if seen < 0:
        seen, bound = 0, base + term.weight
    while seen < count and bound >= best:  # stop as soon as a cannot win; no pair is measured twice
        gap = distance(term.points, a, picked[seen])
        bound = min(bound, base + min(term.weight, term.coefficient * gap))
        seen += 1
    return bound, seen


def _add_nothing(term, state, a):  # noqa: ARG001
    return


class Redundancy(SetTerm):
    """R(a | S) = min_{j ∈ S} φ(a, j) (Eq. 5), D when S is empty: the gain of the paper's Lemma 1.

    A surrogate: Eq. 5 summed over S is neither monotone nor submodular, because adding a point also lowers R of the
    points next to it. The gains still diminish, so lazy bounds hold; no 1 − 1/e is claimed.
    """

    submodular = False
    loops: ClassVar = {NearestPick: Loops(_no_state, _gain_of, _add_nothing)}

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.unit = self.geometry.metric.bound

    def start(self, parts: Tensor) -> None:
        self._parts = parts
        self._nearest = self.tensor(len(self.pool), fill=self.unit)

    def gains(self, candidates: Tensor) -> Tensor:
        return self._nearest[candidates]

    def add(self, picks: Tensor) -> None:
        distances = self.geometry.metric.between(self._parts, picks[:, None])
        self._nearest[self._parts] = torch.minimum(self._nearest[self._parts], distances)

    def compiled(self, coefficient: float, size: int) -> NearestPick:  # noqa: ARG002
        return NearestPick(self.geometry.points, coefficient, coefficient * self.unit)

    def as_printed(self, chosen: Tensor) -> float:
        """Return Σ_{i ∈ S} min_{j ∈ S, j ≠ i} φ(i, j); D if S has one sample."""
        if len(chosen) < 2:
            return self.unit * len(chosen)
        distances = self.geometry.metric.between(chosen[:, None], chosen[None, :])
        distances.fill_diagonal_(math.inf)
        return float(distances.min(dim=1).values.sum())
