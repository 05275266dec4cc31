"""SetCover: every feature is in the batch, once."""

from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine.arithmetic import GRID, inverse, value
from smdl.engine.geometry import Geometry
from smdl.engine.jit import reordered
from smdl.engine.pool import host, real, stored
from smdl.engine.terms.term import Loops, SetTerm


class Uncovered(NamedTuple):
    """The compiled form."""

    features: np.ndarray  # (N, D)
    weights: np.ndarray  # (D,) float64, times the factor that brings a gain to the grid
    room: np.ndarray  # (D,) float64: what the empty batch leaves of 1
    coefficient: float


@reordered
def _fill(features, weights, room, a):
    total = 0.0
    for u in range(len(room)):
        total += np.rint(weights[u] * min(np.float64(value(features, a, u)), room[u]))
    return total


def _whole_room(term):
    return term.room.copy()


def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    return base + term.coefficient * (_fill(term.features, term.weights, state, a) / GRID), count


def _add_pick(term, state, a):
    for u in range(len(state)):
        state[u] = max(state[u] - np.float64(value(term.features, a, u)), 0.0)


class SetCover(SetTerm):
    """F(S) = Σ_u w_u min(1, Σ_{i ∈ S} x_iu), x ≥ 0: the weight of the features that the batch covers.

    With features of 0 and 1 this is maximum coverage: F(S) is the weight of the union. w are the feature weights of the
    pool, 1 by default. F is divided by the value of the best single sample.

    With away_from P, room_u starts at max(0, 1 − Σ_{p ∈ P} x_pu): the conditional gain. With a query Q, w_u is
    multiplied by min(1, Σ_{q ∈ Q} x_qu), which is the mutual information for features of 0 and 1.
    """

    loops: ClassVar = {Uncovered: Loops(_whole_room, _gain_of, _add_pick)}
    signed, weighted, beside = False, True, True
    highest: ClassVar[float] = float("inf")  # the largest feature that is allowed
    name: ClassVar[str] = "set_cover"

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self._check()
        wide, pool = real(self.pool.device), self.pool
        given = torch.ones(pool.features.shape[1]) if pool.feature_weights is None else pool.feature_weights
        self.weights = given.to(wide).to(pool.device)
        if pool.query is not None:
            self.weights = self.weights * (1.0 - self._left_by(pool.query))
        self.left = torch.ones_like(self.weights) if pool.away_from is None else self._left_by(pool.away_from)
        self.scale = max(float(self._values(rows.to(wide)).max()) for rows in pool.features.split(1 << 14))
        self.weights = self.weights * (GRID * inverse(self.scale))

    def _check(self) -> None:
        wanted = "features ≥ 0" if self.highest == float("inf") else f"features between 0 and {self.highest:g}"
        for name in ("features", "query", "away_from"):
            rows = getattr(self.pool, name)
            if rows is None:
                continue
            low, high = map(float, rows.aminmax())
            if low < 0 or high > self.highest:
                raise ValueError(f"{self.name} needs {wanted}, got {low if low < 0 else high:.6g} in {name}")

    def _left_by(self, rows: Tensor) -> Tensor:
        """Return what the rows leave of each feature."""
        left = torch.ones(rows.shape[1], dtype=real(self.pool.device), device=self.pool.device)
        for row in rows.to(left.dtype).to(left.device):
            left = self.taken(left, row)
        return left

    def _values(self, rows: Tensor) -> Tensor:
        return (self.weights * self.rise(torch.ones_like(self.weights), rows)).sum(-1)

    def rise(self, left: Tensor, x: Tensor) -> Tensor:
        """Return how much of each feature a sample adds."""
        return torch.minimum(x, left)

    def taken(self, left: Tensor, x: Tensor) -> Tensor:
        """Return what is left of each feature after a sample."""
        return (left - x).clamp(min=0.0)

    def start(self, parts: Tensor) -> None:
        self._left = self.left.expand(len(parts), -1).clone()

    def gains(self, candidates: Tensor) -> Tensor:
        out = self.tensor(*candidates.shape)
        step = max(1, (1 << 22) // (self._left.shape[1] * len(candidates)))
        for k in range(0, candidates.shape[1], step):
            x = self.pool.features[candidates[:, k : k + step]].to(out.dtype)
            rises = self.weights * self.rise(self._left[:, None, :], x)
            out[:, k : k + step] = rises.round().sum(-1) / GRID
        return out

    def add(self, picks: Tensor) -> None:
        self._left = self.taken(self._left, self.pool.features[picks].to(self._left.dtype))

    def compiled(self, coefficient: float, size: int) -> NamedTuple:  # noqa: ARG002
        return self.form()(stored(self.pool.features), host(self.weights), host(self.left), coefficient)

    def form(self) -> type:
        """Return the type of the compiled form."""
        return Uncovered
