"""φ: euclidean, cosine, correlation and gaussian, over features or over last-layer gradients.

A space (`FeatureSpace`, `GradientSpace`) computes inner products and squared distances of its points; a `Metric` turns
them into a distance.
Distances are computed from differences, never from ‖u‖² + ‖v‖² − 2⟨u, v⟩, which loses most digits in float32.
"""

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from smdl.engine import arithmetic
from smdl.engine.pool import HALVES, Pool, host, real, stored, widest

if TYPE_CHECKING:
    from smdl.engine.gradients import GradientSpace

EUCLIDEAN, COSINE, GAUSSIAN = 0, 1, 2

#: Most numbers that a temporary array of the vectorised forms may hold.
CHUNK = 1 << 22


def doubled_square(sigma: float) -> float:
    """Return 2σ², and never 0: 0 / 0 is not a distance."""
    return max(2.0 * sigma * sigma, sys.float_info.min)


#: The code of each distance in the vectorised and compiled forms; correlation is the cosine of centred rows.
DISTANCES = {"euclidean": EUCLIDEAN, "cosine": COSINE, "correlation": COSINE, "gaussian": GAUSSIAN}


class FeatureSpace:
    """The rows of a matrix, (N, D). Indices broadcast against each other."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.host = rows, stored(rows)

    @property
    def radius(self) -> float:
        """Half of an upper bound of the distances."""
        mean = arithmetic.column_sums(self.host) / len(self.rows)
        return math.sqrt(arithmetic.squared_distances(self.host, mean).max())

    def inner(self, i: Tensor, j: Tensor) -> Tensor:
        """Compute in float64: a determinant subtracts such products."""
        wide = real(self.rows.device)
        return by_chunks(lambda i, j: (self.rows[i].to(wide) * self.rows[j]).sum(-1), i, j, self.rows.shape[1])

    def squared(self, i: Tensor, j: Tensor) -> Tensor:
        kind = torch.float32 if self.rows.dtype in HALVES else self.rows.dtype
        gaps = lambda i, j: (self.rows[i].to(kind) - self.rows[j].to(kind)).square().sum(-1)  # noqa: E731
        return by_chunks(gaps, i, j, self.rows.shape[1])

    def lengths(self) -> np.ndarray:
        return np.sqrt(arithmetic.squared_norms(self.host))


def in_safe_range(features: Tensor, largest: float, least: float = 0.0) -> tuple[Tensor, float]:
    """Return features whose squares neither overflow nor vanish, and the power of two they were multiplied by.

    Such a factor changes no digit. Features of a usual size are returned as they are. `largest` is the greatest
    |feature|, `least` a number that the squares are added to.
    """
    if features.dtype == torch.float16:
        return features, 1.0
    exponent = math.frexp(max(largest, least))[1]
    lowest, highest = _SAFE_EXPONENTS[features.dtype]
    if lowest <= exponent <= highest or largest == 0.0:
        return features, 1.0
    shift = -max(exponent, -1000)
    first = shift // 2  # in two steps: 2 to the power of the whole shift may overflow
    features = features.to(torch.float32) if features.dtype == torch.bfloat16 else features
    return features * 2.0**first * 2.0 ** (shift - first), 2.0**shift


#: Exponents of the largest feature between which squares of differences are exact enough in each type.
_SAFE_EXPONENTS = {torch.bfloat16: (-30, 50), torch.float32: (-30, 50), torch.float64: (-400, 400)}


class Metric:
    """φ over a space. `bound` is D, an upper bound of all distances."""

    def __init__(
        self, pool: Pool, space: "FeatureSpace | GradientSpace", name: str, sigma: float | None = None
    ) -> None:
        self.name, self.space, self.size = name, space, len(pool)
        self.code = DISTANCES[name]
        self._device = pool.device
        self.sigma = (sigma or self._median()) if self.code == GAUSSIAN else 1.0
        self.doubled = doubled_square(self.sigma)
        self.bound = 2.0 * space.radius if self.code == EUCLIDEAN else 2.0 if self.code == COSINE else 1.0
        self._lengths = widest(space.lengths(), self._device) if self.code == COSINE else None

    def between(self, i: Tensor, j: Tensor) -> Tensor:
        """Return φ of the points i and j, broadcast against each other."""
        if self._lengths is not None:
            norm = self._lengths[i] * self._lengths[j]
            return one_minus_cosines(self.space.inner(i, j).to(norm.dtype), norm)
        squared = self.space.squared(i, j).to(real(self._device))
        return squared.sqrt() if self.code == EUCLIDEAN else -torch.expm1(-squared / self.doubled)

    def _median(self) -> float:
        """Return the median distance of at most 64 points at a fixed stride, as a bandwidth that suits the data."""
        points = torch.arange(0, self.size, max(1, self.size // 64), device=self._device)[:64]
        squared = self.space.squared(points[:, None], points[None, :]).to(real(self._device))
        upper = torch.triu_indices(len(points), len(points), offset=1, device=self._device)
        gaps = np.sort(np.sqrt(host(squared[upper[0], upper[1]]).astype(np.float64)))
        gaps = gaps[gaps > 0]
        return float(gaps[len(gaps) // 2]) if len(gaps) else 1.0


def one_minus_cosines(dots: Tensor, norms: Tensor) -> Tensor:
    """Do what `similarity.one_minus_cosine` does, on any device."""
    cosines = (dots / norms * arithmetic.GRID).round() / arithmetic.GRID
    return torch.where(norms > 0, 1.0 - cosines, 1.0).clamp(min=0.0)


def by_chunks(function: Callable[[Tensor, Tensor], Tensor], i: Tensor, j: Tensor, width: int) -> Tensor:
    """Return function(i, j) over the broadcast indices, with temporaries of at most CHUNK numbers."""
    i, j = torch.broadcast_tensors(i, j)
    if i.numel() * width <= CHUNK:
        return function(i, j)
    step = max(1, CHUNK // width)
    parts = [function(a, b) for a, b in zip(i.reshape(-1).split(step), j.reshape(-1).split(step), strict=True)]
    return torch.cat(parts).reshape(i.shape)
