"""LogDeterminant: the volume that the batch spans, by an incremental Cholesky factor.

The compiled form grows the factor only for candidates that could win.
"""

import math
from copy import copy
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.common import memory
from smdl.engine.arithmetic import GRID, inverse, wide_products
from smdl.engine.distances import Metric, one_minus_cosines
from smdl.engine.geometry import Geometry
from smdl.engine.gradients import GradientSpace
from smdl.engine.jit import inlined
from smdl.engine.pool import real
from smdl.engine.similarity import gradient_gap, one_minus_cosine, wide_gaps
from smdl.engine.terms.term import Loops, SetTerm

#: The largest K/σ²: above, the differences that the Cholesky factor takes are rounding errors.
LARGEST_KERNEL = 1e10

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
    diagonal: np.ndarray  # (N,) K_ii / σ², less what `before` takes
    before: np.ndarray  # (N, P) the entries of the Cholesky factor for `away_from`
    factor: float
    coefficient: float
    size: int


class State(NamedTuple):
    """What is known of the Cholesky factor of I + K/σ² over the batch."""

    rows: np.ndarray  # (N, size): row a holds the entries of candidate a for the picks that were taken into account
    left: np.ndarray  # (N,) what these entries leave of its diagonal entry
    order: np.ndarray  # (size,) the picks
    picks: np.ndarray  # (1,) their number


@inlined
def _entry(term, a, b):
    """Return K_ab / σ², less what `before` takes."""
    taken = 0.0
    for t in range(term.before.shape[1]):
        taken += term.before[a, t] * term.before[b, t]
    return _kernel(term, a, b) - taken


@inlined
def _kernel(term, a, b):
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


def _empty_state(term):
    return State(
        np.empty((len(term.diagonal), term.size)),
        term.diagonal.copy(),
        np.empty(term.size, np.int32),
        np.zeros(1, np.int64),
    )


def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    if seen < 0:
        seen, bound = 0, base + _log(term, state.left[a])
    while seen < count and bound >= best:  # entries only lower the gain: stop as soon as a cannot win
        _take(term, state, a, seen)
        bound = base + _log(term, state.left[a])
        seen += 1
    return bound, seen


def _add_pick(term, state, a):
    """Complete the row of the new pick."""
    count = state.picks[0]
    state.left[a] = term.diagonal[a]
    for t in range(count):
        _take(term, state, a, t)
    state.order[count] = a
    state.picks[0] = count + 1


class LogDeterminant(SetTerm):
    """F(S) = log det(I + K_S / σ²), K linear, cosine or gaussian: the volume that the batch spans.

    Incremental Cholesky: the gain of a is log(1 + the remainder of its diagonal entry after the samples of S).

    With away_from P, F(S) = F(S ∪ P) − F(P): the conditional gain. With a query Q, F(S) = F(S | P) − F(S | P ∪ Q): the
    mutual information, given P if there is one. That one is monotone but not submodular, so `lazy` is refused.
    """

    loops: ClassVar = {Determinant: Loops(_empty_state, _gain_of, _add_pick)}
    beside, diminishing_about = True, False

    def __init__(self, geometry: Geometry, given: tuple[str, ...] = ("away_from",)) -> None:
        super().__init__(geometry)
        objective = geometry.objective
        self._about = None  # F(S | P ∪ Q)
        if self.pool.query is not None and "query" not in given:
            self._about = LogDeterminant(geometry, (*given, "query"))
        self.kernel, scale = objective.kernel, geometry.scaled_features[1]
        self.divisor = objective.noise * (scale * scale if self.kernel == "linear" else 1.0)
        self.doubled = 1.0
        if self.kernel != "linear":
            self._metric = Metric(self.pool, geometry.space, self.kernel, geometry.sigma)
            self.doubled = self._metric.doubled
        every_sample = torch.arange(len(self.pool), device=self.pool.device)
        self.diagonal = self._entries(every_sample, every_sample)
        largest = float(self.diagonal.max())
        if not largest <= LARGEST_KERNEL:
            raise ValueError(
                f"log_determinant needs noise of at least {objective.noise * largest / LARGEST_KERNEL:.3g} for these"
                f" features, got {objective.noise:g}: K/noise reaches {largest:.3g}, where rounding decides the picks"
            )
        self.scale = float(self.diagonal.max().log1p())
        self.factor = GRID * inverse(self.scale)
        rows = [rows for rows in (getattr(self.pool, name) for name in given) if rows is not None]
        self.before = self.tensor(len(self.pool), 0)
        if rows:
            self.before = self._factor_of(torch.cat([part.to(self.pool.device) for part in rows]))
            self.diagonal = self.diagonal - self.before.square().sum(1)

    def _entries(self, i: Tensor, j: Tensor) -> Tensor:
        """Return K_ij / σ²."""
        if self.kernel == "linear":
            return self.geometry.space.inner(i, j) / self.divisor
        return (1.0 - self._metric.between(i, j)) / self.divisor

    def _factor_of(self, others: Tensor) -> Tensor:
        """Return the entries of every sample in the Cholesky factor of I + K/σ² over other samples, (N, P)."""
        features, scale = self.geometry.scaled_features
        wide = real(self.pool.device)
        others, features = others.to(wide) * scale, features.to(wide)
        eye = torch.eye(len(others), dtype=wide, device=self.pool.device)
        factor = torch.linalg.cholesky(eye + self._kernel(others, others))
        return torch.linalg.solve_triangular(factor, self._kernel(others, features), upper=False).T.contiguous()

    def _kernel(self, u: Tensor, v: Tensor) -> Tensor:
        """Return K/σ² of the rows of u and v."""
        if self.kernel == "gaussian":
            gaps = torch.cdist(u, v, compute_mode="donot_use_mm_for_euclid_dist").square()
            return (1.0 + torch.expm1(-gaps / self.doubled)) / self.divisor
        dots = u @ v.T
        if self.kernel == "cosine":
            dots = 1.0 - one_minus_cosines(dots, u.norm(dim=1)[:, None] * v.norm(dim=1))
        return dots / self.divisor

    def start(self, parts: Tensor) -> None:
        self._parts, self._remainder = parts, self.diagonal.clone()
        if self._about is not None:
            self._about = copy(self._about)  # it keeps state
            self._about.start(parts)
        self._rows: list[Tensor] = []  # of the Cholesky factor, each (P, Q)
        self._where = torch.zeros(len(self.pool), dtype=torch.int64, device=self.pool.device)
        self._where[parts.flip(1)] = torch.arange(parts.shape[1], device=parts.device).flip(0).expand_as(parts)

    def gains(self, candidates: Tensor) -> Tensor:
        return (self.logs(candidates) * self.factor).round() / GRID

    def logs(self, candidates: Tensor) -> Tensor:
        """Return the gains before they are scaled."""
        logs = self._remainder[candidates].clamp(min=0.0).log1p()
        return logs if self._about is None else (logs - self._about.logs(candidates)).clamp(min=0.0)

    def add(self, picks: Tensor) -> None:
        row = self._entries(self._parts, picks[:, None])
        if self.before.shape[1]:
            row = row - (self.before[self._parts] * self.before[picks][:, None, :]).sum(-1)
        if self._rows:
            factor = torch.stack(self._rows)  # (T, P, Q)
            at = factor.gather(2, self._where[picks].expand(len(factor), -1)[..., None])  # (T, P, 1)
            row = row - (factor * at).sum(0)
        row = row / (1.0 + self._remainder[picks].clamp(min=0.0))[:, None].sqrt()
        self._rows.append(row)
        self._remainder[self._parts] = self._remainder[self._parts] - row.square()
        if self._about is not None:
            self._about.add(picks)

    @classmethod
    def compiles(cls, engine: str, n: int, size: int) -> bool:  # noqa: ARG003
        return 8 * n * size <= memory.available() // 2  # the Cholesky factor

    def compiled(self, coefficient: float, size: int) -> Determinant:
        space, none, n = self.geometry.space, np.zeros(0), len(self.pool)
        gradients = space if isinstance(space, GradientSpace) else None
        return Determinant(
            space.host,
            np.zeros((n, 0), np.float32) if gradients is None else gradients.host_errors,
            0.0 if gradients is None else gradients.bias,
            none if gradients is None else gradients.error_norms,
            none if gradients is None else gradients.feature_norms,
            space.lengths() if self.kernel == "cosine" else none,
            KERNELS[self.kernel],
            self.doubled,
            self.divisor,
            self.diagonal.numpy(),
            self.before.numpy(),
            self.factor,
            coefficient,
            size,
        )
