"""DisparityMin: a batch whose nearest pair is far apart."""

import torch
from torch import Tensor

from smdl.engine.terms.disparity_sum import DisparitySum


class DisparityMin(DisparitySum):
    """F(S) = min_{i < j ∈ S} φ(i, j)/D: the distance of the nearest pair; 0 for fewer than two samples.

    Not submodular and not monotone: a third sample can only lower F. Greedy picks the farthest sample in every step and
    reaches ½ of the optimum for distances that obey the triangle inequality.
    """

    def start(self, parts: Tensor) -> None:
        self._parts = parts
        self._nearest = self.tensor(len(self.pool), fill=float("inf"))  # distance to the nearest sample of S
        self._least = self.tensor(len(parts), fill=float("inf"))  # F(S), ∞ for fewer than two samples
        self._count = 0

    def gains(self, candidates: Tensor) -> Tensor:
        if self._count == 0:
            return self.tensor(*candidates.shape)
        before = self._least[:, None]
        after = torch.minimum(self._nearest[candidates], before)
        return after if self._count == 1 else after - before

    def add(self, picks: Tensor) -> None:
        if self._count:
            self._least = torch.minimum(self._least, self._nearest[picks])
        self._nearest[self._parts] = torch.minimum(self._nearest[self._parts], self.gaps(picks))
        self._count += 1
