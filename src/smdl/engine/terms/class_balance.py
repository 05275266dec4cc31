"""ClassBalance: the samples of each class, with diminishing returns."""

import torch
from torch import Tensor

from smdl.engine.terms.term import SetTerm


class ClassBalance(SetTerm):
    """F(S) = Σ_c √(samples of class c in S): the second sample of a class is worth less than the first."""

    needs = ("labels",)
    featureless = True

    def start(self, parts: Tensor) -> None:
        self._counts = self.tensor(len(parts), self.pool.classes)

    def gains(self, candidates: Tensor) -> Tensor:
        assert self.pool.labels is not None
        counts = self._counts.gather(1, self.pool.labels[candidates])
        return 1.0 / ((counts + 1).sqrt() + counts.sqrt())

    def add(self, picks: Tensor) -> None:
        assert self.pool.labels is not None
        self._counts.scatter_add_(1, self.pool.labels[picks][:, None], torch.ones_like(self._counts[:, :1]))
