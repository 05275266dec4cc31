"""What every term is made of: a score per sample, or gains that depend on the batch so far.

A modular term scores every sample on its own; `scores()` is computed once per pool. A set term depends on the batch so
far. It works on several disjoint partitions at once, and row p of every array belongs to partition p:

    gains(candidates)   (P, K) indices -> (P, K): F(a | S_p) of each candidate
    add(picks)          (P,) indices: S_p <- S_p + {a}

`unit` is the gain that counts as 1 before the weight is applied: one positive constant per pool, never a shift.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine.geometry import Geometry
from smdl.engine.pool import Pool, real


class Loops(NamedTuple):
    """The compiled form of a set term, for terms of one type: what the loops of `greedy` call.

    The arguments must have these names: numba chooses the functions by the type of the term.
    """

    empty_state: Callable[..., Any]  # (term): what the term keeps of the batch S, for S = ∅
    gain_of: Callable[..., Any]  # (term, state, base, a, picked, seen, count, bound, best), see `greedy.gains`
    add_pick: Callable[..., Any]  # (term, state, a): S <- S + {a}


class Term:
    """One term of an objective, over the points of a pool."""

    needs: ClassVar[tuple[str, ...]] = ()
    submodular: ClassVar[bool] = True  # monotone and submodular; a property test checks it
    diminishing: ClassVar[bool] = True  # a gain never rises as the batch grows: what lazy evaluation rests on
    covers: ClassVar[bool] = False  # it sums similarities over the pool, or over a sample of it
    pairwise: ClassVar[bool] = False  # it reads similarities of single pairs
    featureless: ClassVar[bool] = False  # it reads neither features nor similarities
    signed: ClassVar[bool] = True  # features may be below 0, and gradients are
    weighted: ClassVar[bool] = False  # it reads the weights of features
    beside: ClassVar[bool] = False  # it has a form for a query and for away_from
    diminishing_about: ClassVar[bool] = True  # diminishing with a query too
    loops: ClassVar[Mapping[type, Loops]] = {}  # by type of what `compiled` returns

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


class SetTerm(Term):
    """A term whose gains depend on the batch so far."""

    unit: float = 1.0
    scale: float = 1.0  # what gains are divided by before they are rounded: it depends on the pool

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

    @classmethod
    def compiles(cls, engine: str, n: int, size: int) -> bool:  # noqa: ARG003
        """Whether the term has a compiled form for n samples and batches of `size`."""
        return bool(cls.loops)

    def compiled(self, coefficient: float, size: int) -> Any:
        """Return the term as the compiled loops take it, its gains times `coefficient`, for batches of `size`."""
        raise NotImplementedError

    def as_printed(self, chosen: Tensor) -> float | None:  # noqa: ARG002
        """Return F(S) as the paper prints it; None where it is the sum of the gains."""
        return None

    def tensor(self, *shape: int, fill: float = 0.0) -> Tensor:
        return torch.full(shape, fill, dtype=real(self.pool.device), device=self.pool.device)
