"""FeatureMatch: a concave function of the reference model's features."""

import warnings

import numpy as np

from smdl.engine import arithmetic
from smdl.engine.arithmetic import CONCAVE
from smdl.engine.pool import stored
from smdl.engine.terms.term import ModularTerm


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
