"""Last-layer gradients in factored form, as a space for the set terms.

The gradient of a loss with respect to the last linear layer is g_i = e_i ⊗ [f_i, 1]: the errors e_i are the gradient
of the loss with respect to the output of the layer (p_i − onehot(y_i) for cross-entropy), and if the layer has a bias,
there is a 1 after the features. Everything below is computed from e and f, without an array of size N × C·D.
"""

from collections.abc import Callable
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from smdl.engine import arithmetic
from smdl.engine.distances import by_chunks
from smdl.engine.pool import Pool, real, stored, widest


class GradientSpace:
    """⟨g_i, g_j⟩ = ⟨e_i, e_j⟩ (⟨f_i, f_j⟩ + 1), with the + 1 only if the head has a bias.

    ‖g_i − g_j‖² = ½ [ a (F_i + F_j) + b (E_i + E_j) − a b + (E_i − E_j)(F_i − F_j) ]
    with a = ‖e_i − e_j‖², b = ‖f_i − f_j‖², E = ‖e‖², F = ‖f‖² (+ 1). Differences come first, which avoids needless
    cancellation. Errors of cross-entropy sum to zero except for rounding, so gradients are centred, and correlation
    equals cosine.
    """

    def __init__(self, pool: Pool, features: Tensor | None = None, scale: float = 1.0) -> None:
        """Use the pool's features, or `features`, which are the pool's times `scale`."""
        self._pool, self._features = pool, pool.features if features is None else features
        self.bias = scale * scale if pool.bias else 0.0
        self.host = pool.on_host("features") if self._features is pool.features else stored(self._features)
        errors = pool.on_host("errors")
        self.host_errors = errors.astype(np.float64 if self.host.dtype == np.float64 else np.float32, copy=False)
        self.error_norms, self.feature_norms = np.empty(len(pool)), np.empty(len(pool))  # E and F
        # max ‖g_i‖, a bound that needs no mean gradient, (C, D)
        self.radius = arithmetic.gradient_norms(self.host, errors, self.bias, self.error_norms, self.feature_norms)

    @property
    def rows(self) -> Tensor:
        """f, (N, D)."""
        return self._features

    @property
    def errors(self) -> Tensor:
        """e, (N, C)."""
        return self._pool.errors

    @property
    def norms(self) -> tuple[Tensor, Tensor]:
        """E and F, (N,)."""
        return self._e, self._f

    @cached_property
    def _e(self) -> Tensor:
        return widest(self.error_norms, self._features.device)

    @cached_property
    def _f(self) -> Tensor:
        return widest(self.feature_norms, self._features.device)

    def inner(self, i: Tensor, j: Tensor) -> Tensor:
        errors = self._sums(torch.mul, self._pool.errors, i, j)
        return errors * (self._sums(torch.mul, self._features, i, j) + self.bias)

    def squared(self, i: Tensor, j: Tensor) -> Tensor:
        a, b = self._sums(_gap, self._pool.errors, i, j), self._sums(_gap, self._features, i, j)
        sums = a * (self._f[i] + self._f[j]) + b * (self._e[i] + self._e[j])
        gaps = (self._e[i] - self._e[j]) * (self._f[i] - self._f[j])
        return (0.5 * (sums - a * b + gaps)).clamp(min=0.0)

    def _sums(self, of: Callable[[Tensor, Tensor], Tensor], rows: Tensor, i: Tensor, j: Tensor) -> Tensor:
        """Return Σ_u of(x_iu, x_ju) in float64: the terms of `squared` may cancel."""
        wide = real(rows.device)
        return by_chunks(lambda i, j: of(rows[i].to(wide), rows[j].to(wide)).sum(-1), i, j, rows.shape[1])

    def lengths(self) -> np.ndarray:
        return np.sqrt(self.error_norms * self.feature_norms)


def _gap(u: Tensor, v: Tensor) -> Tensor:
    return (u - v).square()
