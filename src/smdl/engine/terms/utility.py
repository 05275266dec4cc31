"""Utility: how good each sample is to choose, as a number that is given."""

import numpy as np

from smdl.engine.pool import host
from smdl.engine.terms.term import ModularTerm


class Utility(ModularTerm):
    """UT(x) = u_x, the number that the pool has for the sample: a quality score, a length, a reward."""

    needs = ("utility",)
    featureless = True

    def scores(self) -> np.ndarray:
        assert self.pool.utility is not None
        return host(self.pool.utility).astype(np.float64)
