"""Uncertainty: the entropy of a sample's probabilities."""

import numpy as np

from smdl.engine import arithmetic
from smdl.engine.arithmetic import ENTROPY
from smdl.engine.pool import host
from smdl.engine.terms.term import ModularTerm


class Uncertainty(ModularTerm):
    """U(x) = −Σ_c p_c log p_c (Eq. 4): high where the model is least certain."""

    needs = ("probabilities",)

    def scores(self) -> np.ndarray:
        assert self.pool.probabilities is not None
        return arithmetic.concave_sum(host(self.pool.probabilities), ENTROPY)
