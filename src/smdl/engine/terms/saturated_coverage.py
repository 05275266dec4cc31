"""SaturatedCoverage: every sample is similar to the batch, up to a share of its similarity to the pool."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine import similarity_sums
from smdl.engine.geometry import Geometry
from smdl.engine.jit import reordered
from smdl.engine.pool import host, real
from smdl.engine.terms.term import Loops, SetTerm


class Saturation(NamedTuple):
    """The compiled form, over a dense matrix."""

    similarities: np.ndarray  # (N, N) float32
    room: np.ndarray  # (N,) float64: α Σ_i s_ij
    coefficient: float


@reordered
def _fill(similarities, room, a):
    """Return Σ_j min(s_aj, room_j). All are multiples of 2⁻²⁴, so the sum is exact in any order."""
    total = 0.0
    for j in range(len(room)):
        total += min(np.float64(similarities[a, j]), room[j])
    return total


def _whole_room(term):
    return term.room.copy()


def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    return base + term.coefficient * _fill(term.similarities, state, a), count


def _add_pick(term, state, a):
    for j in range(len(state)):
        state[j] = max(state[j] - np.float64(term.similarities[a, j]), 0.0)


class SaturatedCoverage(SetTerm):
    """F(S) = Σ_{j ∈ W} min(Σ_{i ∈ S} s_ij, α Σ_{i ∈ V} s_ij) with s = 1 − φ/D and α = `saturation`.

    A sample that the batch is similar enough to counts no more. Monotone submodular. W is the whole pool, or with
    `sample=m` m random samples of it. F is divided by Σ_j α Σ_{i ∈ V} s_ij, rounded down to a multiple of 2⁻²⁴ per
    sample.
    """

    loops: ClassVar = {Saturation: Loops(_whole_room, _gain_of, _add_pick)}
    covers = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        sums = similarity_sums.column_sums(geometry)
        self.limits = (sums * (geometry.objective.saturation * 2.0**24)).floor() / 2.0**24  # (N,)
        self.unit = 0.0 if similarity_sums.all_alike(geometry) else float(self.limits.sum())

    @property
    def costly(self) -> bool:
        return self.unit > 0 and self.geometry.engine in ("blocks", "sample")

    def start(self, parts: Tensor) -> None:
        self._room = self.limits.expand(len(parts), -1).clone()

    def gains(self, candidates: Tensor) -> Tensor:
        out = self.tensor(*candidates.shape)
        step = max(1, (1 << 22) // (len(self.limits) * len(candidates)))
        for k in range(0, candidates.shape[1], step):
            similar = similarity_sums.to_covered(self.geometry, candidates[:, k : k + step]).to(out.dtype)
            out[:, k : k + step] = torch.minimum(similar, self._room[:, None, :]).sum(-1)
        return out

    def add(self, picks: Tensor) -> None:
        similar = similarity_sums.to_covered(self.geometry, picks).to(real(self.pool.device))
        self._room = (self._room - similar).clamp_(min=0.0)

    @classmethod
    def compiles(cls, engine: str, n: int, size: int) -> bool:  # noqa: ARG003
        return engine == "dense"

    def compiled(self, coefficient: float, size: int) -> Saturation:  # noqa: ARG002
        assert self.geometry.similarities is not None
        return Saturation(self.geometry.similarities.numpy(), host(self.limits).astype(np.float64), coefficient)
