"""ProbabilisticSetCover: every feature is likely to be in the batch."""

from typing import ClassVar, NamedTuple

import numpy as np
from torch import Tensor

from smdl.engine.arithmetic import GRID, value
from smdl.engine.jit import reordered
from smdl.engine.terms.set_cover import SetCover
from smdl.engine.terms.term import Loops


class Unlikely(NamedTuple):
    """The compiled form."""

    features: np.ndarray  # (N, D)
    weights: np.ndarray  # (D,) float64, times the factor that brings a gain to the grid
    left: np.ndarray  # (D,) float64: Π_{p ∈ P} (1 − x_pu)
    coefficient: float


@reordered
def _chances(features, weights, left, a):
    total = 0.0
    for u in range(len(left)):
        total += np.rint(weights[u] * (left[u] * np.float64(value(features, a, u))))
    return total


def _all_left(term):
    return term.left.copy()


def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    return base + term.coefficient * (_chances(term.features, term.weights, state, a) / GRID), count


def _add_pick(term, state, a):
    for u in range(len(state)):
        state[u] = state[u] * (1.0 - np.float64(value(term.features, a, u)))


class ProbabilisticSetCover(SetCover):
    """F(S) = Σ_u w_u (1 − Π_{i ∈ S} (1 − x_iu)), x in [0, 1]: x_iu is the probability that sample i covers u.

    w are the feature weights of the pool, 1 by default. F is divided by the value of the best single sample.

    With away_from P the product starts at Π_{p ∈ P} (1 − x_pu): the conditional gain. With a query Q, w_u is multiplied
    by 1 − Π_{q ∈ Q} (1 − x_qu): the mutual information.
    """

    loops: ClassVar = {Unlikely: Loops(_all_left, _gain_of, _add_pick)}
    highest = 1.0
    name = "probabilistic_set_cover"

    def rise(self, left: Tensor, x: Tensor) -> Tensor:
        return left * x

    def taken(self, left: Tensor, x: Tensor) -> Tensor:
        return left * (1.0 - x)

    def form(self) -> type:
        return Unlikely
