"""The terms of an objective, each a small class with its equation.

A modular term scores every sample on its own; `scores()` is computed once per pool. A set term depends on the batch so
far. It works on several disjoint partitions at once, and row p of every array belongs to partition p:

    gains(candidates)   (P, K) indices -> (P, K): F(a | S_p) of each candidate
    add(picks)          (P,) indices: S_p <- S_p + {a}

`unit` is the gain that counts as 1 before the weight is applied: one positive constant per pool, never a shift.
"""

import math
import warnings
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from smdl.engine import arithmetic
from smdl.engine.arithmetic import CONCAVE, ENTROPY, GRID, inverse
from smdl.engine.blocks import COLUMNS, ROWS, tiles, weighted_sum
from smdl.engine.distances import Metric
from smdl.engine.geometry import Geometry
from smdl.engine.pool import Pool, host, real, stored, widest

#: The largest K/σ² of log_determinant: above, the differences that the Cholesky factor takes are rounding errors.
LARGEST_KERNEL = 1e10


class Term:
    """One term of an objective, over the points of a pool."""

    needs: ClassVar[tuple[str, ...]] = ()
    submodular: ClassVar[bool] = True  # monotone and submodular; a property test checks it

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.pool: Pool = geometry.pool


class ModularTerm(Term):
    """A term that scores each sample on its own: F(S) = Σ of the scores."""

    def check(self) -> None:
        """Warn about doubtful input. Called once per pool."""

    def scores(self) -> np.ndarray:
        """Return the raw scores on the host, (N,) float64."""
        raise NotImplementedError


class Uncertainty(ModularTerm):
    """U(x) = −Σ_c p_c log p_c (Eq. 4): high where the model is least certain."""

    needs = ("probabilities",)

    def scores(self) -> np.ndarray:
        assert self.pool.probabilities is not None
        return arithmetic.concave_sum(host(self.pool.probabilities), ENTROPY)


class MeanCloseness(ModularTerm):
    """MC(x) = cos(x, mean of V), as the paper's text says: high near the centre of the data, so outliers lose."""

    def scores(self) -> np.ndarray:
        features = stored(self.geometry.scaled_features[0])
        return arithmetic.cosine_to(features, arithmetic.column_sums(features))


class MeanDistance(ModularTerm):
    """MD(x) = ‖x − mean of V‖: Eq. 6 as it is printed, where outliers win."""

    def scores(self) -> np.ndarray:
        features = host(self.geometry.scaled_features[0])
        mean = arithmetic.column_sums(features) / len(features)
        return np.sqrt(arithmetic.squared_distances(features, mean))


class FeatureMatch(ModularTerm):
    """FM(x) = Σ_u g(m_u(x)) (Eq. 7): m are the features of the reference model, clamped at 0."""

    needs = ("reference",)

    def check(self) -> None:
        assert self.pool.reference is not None
        negative = float((self.pool.reference < 0).sum()) / self.pool.reference.numel()
        if negative > 0.01:
            warnings.warn(
                f"feature_match clamps negative reference features at 0: {negative:.0%} of them are negative",
                stacklevel=2,
            )

    def scores(self) -> np.ndarray:
        assert self.pool.reference is not None
        return arithmetic.concave_sum(stored(self.pool.reference), CONCAVE[self.geometry.objective.concave])


class SetTerm(Term):
    """A term whose gains depend on the batch so far."""

    unit: float = 1.0

    @property
    def costly(self) -> bool:
        """Whether a gain costs so much that bounds should spare it."""
        return False

    def start(self, parts: Tensor) -> None:
        """Set S_p <- ∅ for each partition. `parts` is (P, Q) indices; short rows are padded with their first member."""
        raise NotImplementedError

    def gains(self, candidates: Tensor) -> Tensor:
        raise NotImplementedError

    def add(self, picks: Tensor) -> None:
        raise NotImplementedError

    def _tensor(self, *shape: int, fill: float = 0.0) -> Tensor:
        return torch.full(shape, fill, dtype=real(self.pool.device), device=self.pool.device)


class Redundancy(SetTerm):
    """R(a | S) = min_{j ∈ S} φ(a, j) (Eq. 5), D when S is empty: the gain of the paper's Lemma 1.

    A surrogate: Eq. 5 summed over S is neither monotone nor submodular, because adding a point also lowers R of the
    points next to it. The gains still diminish, so lazy bounds hold; no 1 − 1/e is claimed.
    """

    submodular = False

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.unit = self.geometry.metric.bound

    def start(self, parts: Tensor) -> None:
        self._parts = parts
        self._nearest = self._tensor(len(self.pool), fill=self.unit)

    def gains(self, candidates: Tensor) -> Tensor:
        return self._nearest[candidates]

    def add(self, picks: Tensor) -> None:
        distances = self.geometry.metric.between(self._parts, picks[:, None])
        self._nearest[self._parts] = torch.minimum(self._nearest[self._parts], distances)


class FacilityLocation(SetTerm):
    """F(S) = Σ_{j ∈ W} w_j max_{i ∈ S} (D − φ(i, j)): every sample of W has a similar sample in the batch.

    W is the whole pool, or with `sample=m` m random samples of it with w_j > 0. The weights w are 1, or the importance
    of the samples; F is divided by their sum. Weighted rises are rounded to multiples of 1/grid, which leaves F 52
    binary digits: sums are exact, in any order. Similarities are held in units of D as 1 − φ/D in
    float32: multiples of 2⁻²⁴, whose float64 sums are exact. With `neighbours=k` a sample represents only itself and
    the k − 1 samples nearest to it.

    With a query Q, F(S) = Σ_{j ∈ W} min(max_{i ∈ S} s_ij, max_{q ∈ Q} s_qj): the mutual information of S and Q. A
    sample counts only as far as it is similar to the query.
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        covered = geometry.covered
        self.count = len(self.pool) if covered is None else len(covered)
        self.weights, self.grid, total = self._row_weights(covered)  # the weights are multiplied by the grid
        given = self.pool.similarities is not None
        self.unit = total if given or self.geometry.metric.bound > 0 else 0.0

    def _row_weights(self, covered: Tensor | None) -> tuple[np.ndarray | None, float, float]:
        weights = self.geometry.importance
        if weights is None:
            return None, 1.0, float(self.count)
        weights = weights if covered is None else weights[host(covered)]
        total = math.fsum(weights)
        grid = 2.0 ** (52 - math.frexp(total)[1])
        return weights * grid, grid, total

    def start(self, parts: Tensor) -> None:
        self._coverage = torch.zeros(len(parts), self.count, device=self.pool.device)
        self._weights = None if self.weights is None else widest(self.weights, self.pool.device)

    def gains(self, candidates: Tensor) -> Tensor:
        out = self._tensor(*candidates.shape)
        if self._by_blocks:
            for p, rows in enumerate(candidates):
                self._add_rises(rows, self._coverage[p], out[p])
            return out / self.grid
        step = max(1, (1 << 24) // (self.count * len(candidates)))
        for k in range(0, candidates.shape[1], step):
            part = candidates[:, k : k + step]
            better = self.similarities(part) - self._coverage[:, None, :]
            out[:, k : k + step] = weighted_sum(better.clamp_(min=0), self._weights, out.dtype)
        return out / self.grid

    def _add_rises(self, rows: Tensor, coverage: Tensor, out: Tensor) -> None:
        blocks, caps = self.geometry.blocks, self.geometry.caps
        for part in tiles(len(rows), ROWS):
            side = blocks.side(rows[part])
            for columns, covered in self.geometry.covered_blocks():
                limits, weights = (None if x is None else x[columns] for x in (caps, self._weights))
                blocks.add_rises(side, covered, coverage[columns], limits, weights, out[part])

    def add(self, picks: Tensor) -> None:
        self._coverage = torch.maximum(self._coverage, self.similarities(picks))

    def _capped(self, similarities: Tensor, columns: slice) -> Tensor:
        caps = self.geometry.caps
        return similarities if caps is None else similarities.clamp_(max=caps[columns])

    def mean_coverage(self, chosen: Tensor, covered: Tensor) -> float:
        """Return the weighted mean, over `covered`, of the similarity to the most similar sample of `chosen`."""
        blocks, total, importance = self.geometry.blocks, 0.0, self.geometry.importance
        weights = np.ones(len(covered)) if importance is None else importance[host(covered)]
        for part in tiles(len(covered), ROWS):
            side = blocks.side(covered[part])
            parts = (blocks.similarities(side, blocks.side(chosen[k])) for k in tiles(len(chosen), COLUMNS))
            best = torch.stack([part.amax(1) for part in parts]).amax(0)
            total += float(host(best).astype(np.float64) @ weights[part])
        return total / weights.sum()

    @property
    def costly(self) -> bool:
        return self._by_blocks

    @property
    def _by_blocks(self) -> bool:
        geometry = self.geometry
        return self.unit > 0 and geometry.graph is None and geometry.similarities is None

    def similarities(self, rows: Tensor) -> Tensor:
        """Return 1 − φ/D of the given samples to every sample that is to be covered, (..., N) float32."""
        geometry = self.geometry
        if self.unit == 0:
            return torch.zeros(*rows.shape, self.count, device=self.pool.device)
        if geometry.graph is not None:
            near, values = geometry.on_device("graph.neighbours"), geometry.on_device("graph.similarities")
            zeros = torch.zeros(*rows.shape, len(self.pool), device=self.pool.device)
            return zeros.scatter_reduce(-1, near[rows].long(), values[rows], "amax")  # short rows repeat a column
        if geometry.similarities is not None:
            return geometry.similarities[rows]
        side = geometry.blocks.side(rows.reshape(-1))
        parts = [
            self._capped(geometry.blocks.similarities(side, covered), columns)
            for columns, covered in geometry.covered_blocks()
        ]
        return torch.cat(parts, 1).reshape(*rows.shape, self.count)


class FeatureCoverage(SetTerm):
    """F(S) = Σ_u g(Σ_{i ∈ S} x_iu): every feature is present in the batch, with diminishing returns."""

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        if geometry.objective.space == "gradients":
            raise ValueError('feature_coverage needs features ≥ 0, but gradients are signed: use space="features"')
        low = float(self.pool.features.min())
        if low < 0:
            raise ValueError(f"feature_coverage needs features ≥ 0, got {low:.6g}")
        if not math.isfinite(arithmetic.column_sums(stored(self.pool.features)).sum()):
            raise ValueError("feature_coverage needs features with a finite sum, and theirs overflows: scale them")
        self.g = CONCAVE[geometry.objective.concave]
        scale = float(arithmetic.concave_sum(stored(self.pool.features), self.g).max())
        self.factor = GRID * inverse(scale)

    def start(self, parts: Tensor) -> None:
        self._mass = self._tensor(len(parts), self.pool.features.shape[1])

    def gains(self, candidates: Tensor) -> Tensor:
        out = self._tensor(*candidates.shape)
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


class LogDeterminant(SetTerm):
    """F(S) = log det(I + K_S / σ²), K linear, cosine or gaussian: the volume that the batch spans.

    Incremental Cholesky: the gain of a is log(1 + the remainder of its diagonal entry after the samples of S).
    """

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        objective = geometry.objective
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
        self.factor = GRID * inverse(float(self.diagonal.max().log1p()))

    def _entries(self, i: Tensor, j: Tensor) -> Tensor:
        """Return K_ij / σ²."""
        if self.kernel == "linear":
            return self.geometry.space.inner(i, j) / self.divisor
        return (1.0 - self._metric.between(i, j)) / self.divisor

    def start(self, parts: Tensor) -> None:
        self._parts, self._remainder = parts, self.diagonal.clone()
        self._rows: list[Tensor] = []  # of the Cholesky factor, each (P, Q)
        self._where = torch.zeros(len(self.pool), dtype=torch.int64, device=self.pool.device)
        self._where[parts.flip(1)] = torch.arange(parts.shape[1], device=parts.device).flip(0).expand_as(parts)

    def gains(self, candidates: Tensor) -> Tensor:
        logs = self._remainder[candidates].clamp(min=0.0).log1p() * self.factor
        return logs.round() / GRID

    def add(self, picks: Tensor) -> None:
        row = self._entries(self._parts, picks[:, None])
        if self._rows:
            factor = torch.stack(self._rows)  # (T, P, Q)
            at = factor.gather(2, self._where[picks].expand(len(factor), -1)[..., None])  # (T, P, 1)
            row = row - (factor * at).sum(0)
        row = row / (1.0 + self._remainder[picks].clamp(min=0.0))[:, None].sqrt()
        self._rows.append(row)
        self._remainder[self._parts] = self._remainder[self._parts] - row.square()


class ClassBalance(SetTerm):
    """F(S) = Σ_c √(samples of class c in S): the second sample of a class is worth less than the first."""

    needs = ("labels",)

    def start(self, parts: Tensor) -> None:
        self._counts = self._tensor(len(parts), self.pool.classes)

    def gains(self, candidates: Tensor) -> Tensor:
        assert self.pool.labels is not None
        counts = self._counts.gather(1, self.pool.labels[candidates])
        return 1.0 / ((counts + 1).sqrt() + counts.sqrt())

    def add(self, picks: Tensor) -> None:
        assert self.pool.labels is not None
        self._counts.scatter_add_(1, self.pool.labels[picks][:, None], torch.ones_like(self._counts[:, :1]))


#: Every term by the name of its weight, in the order in which they are added.
TERMS: dict[str, type[Any]] = {
    "uncertainty": Uncertainty,
    "mean_closeness": MeanCloseness,
    "mean_distance": MeanDistance,
    "feature_match": FeatureMatch,
    "redundancy": Redundancy,
    "facility_location": FacilityLocation,
    "feature_coverage": FeatureCoverage,
    "log_determinant": LogDeterminant,
    "class_balance": ClassBalance,
}
