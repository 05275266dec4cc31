"""DisparitySum: a batch whose samples are far from each other on average."""

from torch import Tensor

from smdl.engine import similarity_sums
from smdl.engine.geometry import Geometry
from smdl.engine.terms.term import SetTerm


class DisparitySum(SetTerm):
    """F(S) = Σ_{i < j ∈ S} φ(i, j)/D: the sum of the distances of all pairs.

    Not submodular: the gain of a sample *rises* as the batch grows, so `lazy` is refused. Greedy reaches ½ of the
    optimum for distances that obey the triangle inequality.
    """

    submodular = diminishing = False
    pairwise = True

    def __init__(self, geometry: Geometry) -> None:
        super().__init__(geometry)
        self.unit = 0.0 if similarity_sums.all_alike(geometry) else 1.0

    def start(self, parts: Tensor) -> None:
        self._parts = parts
        self._sums = self.tensor(len(self.pool))

    def gains(self, candidates: Tensor) -> Tensor:
        return self._sums[candidates]

    def add(self, picks: Tensor) -> None:
        self._sums[self._parts] = self._sums[self._parts] + self.gaps(picks)

    def gaps(self, picks: Tensor) -> Tensor:
        """Return φ/D of every member of the parts to the picks."""
        return (1.0 - similarity_sums.between(self.geometry, self._parts, picks[:, None]) / 2.0).clamp(min=0.0)
