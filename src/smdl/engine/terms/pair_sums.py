"""PairSums: what the terms share whose gain is a sum over the samples of the batch."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine import similarity_sums
from smdl.engine.geometry import Geometry
from smdl.engine.pool import host
from smdl.engine.similarity import Points, similarity
from smdl.engine.terms.term import Loops, SetTerm


class Pairs(NamedTuple):
    """F(a | S) = first_a − rate · Σ_{j ∈ S} (s_aj + s_ja)."""

    points: Points
    scale: float  # 1/D
    first: np.ndarray  # (N,) float64
    rate: float
    coefficient: float


def _no_sums(term):
    return np.zeros(len(term.first))


def _gain_of(term, state, base, a, picked, seen, count, bound, best):
    if seen < 0:
        seen, state[a] = 0, 0.0
        bound = base + term.coefficient * (term.first[a] - term.rate * state[a])
    while seen < count and bound >= best:  # a pair only lowers the gain: stop as soon as a cannot win
        state[a] += 2.0 * np.float64(similarity(term.points, term.scale, a, picked[seen]))
        bound = base + term.coefficient * (term.first[a] - term.rate * state[a])
        seen += 1
    return bound, seen


def _add_nothing(term, state, a):  # noqa: ARG001
    return


class PairSums(SetTerm):
    """F(a | S) = first_a − rate · Σ_{j ∈ S} (s_aj + s_ja), with s = 1 − φ/D. Subclasses set `first` and `rate`."""

    loops: ClassVar = {Pairs: Loops(_no_sums, _gain_of, _add_nothing)}
    pairwise = True
    first: Tensor  # (N,)
    rate: float

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        every = torch.arange(len(self.pool), device=self.pool.device)
        self.itself = similarity_sums.between(geometry, every, every) / 2

    def start(self, parts: Tensor) -> None:
        self._parts = parts
        self._sums = self.tensor(len(self.pool))  # Σ_{j ∈ S} (s_aj + s_ja)

    def gains(self, candidates: Tensor) -> Tensor:
        return self.first[candidates] - self.rate * self._sums[candidates]

    def add(self, picks: Tensor) -> None:
        self._sums[self._parts] = self._sums[self._parts] + similarity_sums.between(
            self.geometry, self._parts, picks[:, None]
        )

    @classmethod
    def compiles(cls, engine: str, n: int, size: int) -> bool:  # noqa: ARG003
        return engine != "given"

    def compiled(self, coefficient: float, size: int) -> Pairs:  # noqa: ARG002
        scale = 1.0 / self.geometry.metric.bound
        return Pairs(self.geometry.points, scale, host(self.first).astype(np.float64), self.rate, coefficient)
