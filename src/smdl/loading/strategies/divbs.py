"""DivBS (Hong et al. 2024): batches whose last-layer gradients span the gradient of the pool."""

import numpy as np

from smdl.common.messages import true_or_false
from smdl.engine.gradients import GradientSpace
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.strategies.strategy import Strategy

#: Parts of a squared length that are rounding errors.
TINY = 1e-10


class DivBS(Strategy):
    """Takes the sample whose last-layer gradient g has the largest |⟨g, r⟩|, one after the other. The residual r is at
    first the sum of the gradients of the pool; each pick removes its direction, orthogonal to those of the picks
    before it, from r. Once nothing is left of r, the rest is drawn at random.

    sampled   draw each pick with p ∝ |⟨g, r⟩| instead of taking the largest, as the authors' code does
    """

    needs_scores = True
    evidence = frozenset({"errors"})

    def __init__(self, sampled: bool = False) -> None:
        self.sampled = true_or_false("sampled", sampled)
        self.repeats = not sampled

    def describe(self) -> str:
        return f"DivBS, sampled {self.sampled}"

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        assert pool is not None
        places, gains = orthogonal_picks(gram(pool, remaining), batch_size, rng if self.sampled else None)
        missing = batch_size - len(places)
        if missing:
            others = np.setdiff1d(np.arange(len(remaining)), places)
            places = np.concatenate([places, rng.choice(others, missing, replace=False)])
            gains = np.concatenate([gains, np.zeros(missing)])
        return Selection(remaining[places].astype(np.int64), gains, float(gains.sum()))


def gram(pool: Pool, rows: np.ndarray) -> np.ndarray:
    """Return ⟨g_i, g_j⟩ = ⟨e_i, e_j⟩ (⟨f_i, f_j⟩ + 1) of the gradients of these rows, float64."""
    space = GradientSpace(pool)
    errors, features = space.host_errors[rows].astype(np.float64), space.host[rows].astype(np.float64)
    return (errors @ errors.T) * (features @ features.T + space.bias)


def orthogonal_picks(
    inner: np.ndarray, size: int, rng: np.random.Generator | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return up to `size` picks and ⟨e, r⟩², the part of the residual that each removes. With `rng` they are drawn.

    inner is the Gram matrix (P, P). Column k of `along` is ⟨g_i, e_k⟩ with the k-th orthonormal direction e_k: a
    pivoted Cholesky factor, so that no gradient is ever written out.
    """
    along, picks, gains = np.zeros((len(inner), size)), list[int](), list[float]()
    with_residual, free = inner.sum(axis=1), np.ones(len(inner), bool)
    lengths = np.diag(inner).copy()  # of what is left of each gradient, squared
    least = TINY * float(np.abs(with_residual).max())
    for k in range(size):
        free &= lengths > TINY * np.diag(inner)
        scores = np.where(free, np.abs(with_residual), 0.0)
        if scores.max() <= least:
            break
        pick = int(scores.argmax()) if rng is None else int(rng.choice(len(scores), p=scores / scores.sum()))
        along[:, k] = (inner[:, pick] - along[:, :k] @ along[pick, :k]) / np.sqrt(lengths[pick])
        part = with_residual[pick] / np.sqrt(lengths[pick])
        with_residual = with_residual - part * along[:, k]
        lengths = lengths - along[:, k] ** 2
        free[pick] = False
        picks.append(pick)
        gains.append(part * part)
    return np.array(picks, np.int64), np.array(gains)
