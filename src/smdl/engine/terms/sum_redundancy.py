"""SumRedundancy: samples that are not similar to each other."""

from smdl.engine import similarity_sums
from smdl.engine.geometry import Geometry
from smdl.engine.terms.pair_sums import PairSums


class SumRedundancy(PairSums):
    """F(S) = −Σ_{i, j ∈ S} s_ij with s = 1 − φ/D: every pair of similar samples costs.

    Submodular, so gains diminish, but not monotone: every sample lowers F. No 1 − 1/e is claimed.
    """

    submodular = False

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.unit = 0.0 if similarity_sums.all_alike(geometry) else 1.0
        self.rate, self.first = 1.0, -self.itself
