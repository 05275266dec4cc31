"""StepRecord: what the training forward of one rank showed, until the ranks exchange it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine.pool import host
from smdl.loading.ranks import Ranks


class Exchanged(NamedTuple):
    """What the training forwards of all ranks showed of the batch of a step."""

    rows: np.ndarray  # (W·B,) indices of the dataset
    targets: Tensor | None  # (W·B, …); None if only features are needed
    found: Tensor  # (W·B,) bool: whether the features of the row are known
    features: Tensor | None  # (W·B, D); None if no rank has any
    outputs: Tensor | None  # (W·B, C), flat
    known: np.ndarray  # (W·B,) bool: whether the loss of the row is known
    losses: np.ndarray  # (W·B,)
    doubt: int  # the largest doubt of a rank, see `smdl.scoring.observation.Doubt`


class StepRecord:
    """Rows of the current batch of this rank, with what is known of each."""

    def __init__(
        self, rows: np.ndarray, targets: Tensor | None, device: torch.device, width: tuple[int, ...] = ()
    ) -> None:
        """`width` is the shape of what is called the loss of a row: a number, unless the strategy learns from more."""
        self.rows, self.targets, self._device = rows, targets, device
        self._found = torch.zeros(len(rows), dtype=torch.bool, device=device)
        self._features: Tensor | None = None
        self._outputs: Tensor | None = None
        self._known, self._losses = np.zeros(len(rows), bool), np.zeros((len(rows), *width))

    def add_features(self, places: np.ndarray, found: Tensor | None, features: Tensor, outputs: Tensor | None) -> None:
        """Take the features and outputs of rows of the batch, where they are `found`; None means all."""
        features = features.to(self._device)
        flat = features[:, :0] if outputs is None else outputs.to(self._device).reshape(len(features), -1)
        if self._features is None or self._outputs is None:
            self._features, self._outputs = (new.new_zeros(len(self.rows), new.shape[1]) for new in (features, flat))
        index = torch.from_numpy(places).to(self._device)
        if found is not None:
            found = found.to(self._device)
            index, features, flat = index[found], features[found], flat[found]
        self._features[index], self._outputs[index], self._found[index] = features, flat, True

    def add_losses(self, places: np.ndarray, losses: np.ndarray) -> None:
        """Take the losses of rows of the batch."""
        self._losses[places], self._known[places] = losses, True

    def exchange(self, ranks: Ranks, features: bool, losses: bool, doubt: int) -> Exchanged:
        """Return what all ranks know. Every rank must call this once per step, whatever it knows."""
        widths = [0 if matrix is None else matrix.shape[1] for matrix in (self._features, self._outputs)]
        same = (np.full(len(self.rows), value) for value in (doubt, *widths))
        columns = [self.rows, host(self._found), self._known, *same]
        rows, found, known, doubts, *widths_of_ranks = ranks.gather_rows(np.stack(columns, axis=1)).T
        wide, classes = (_one_width(column) for column in widths_of_ranks)
        seen: Sequence[Tensor | None] = (None, None)
        if features and wide:
            mine = torch.zeros(len(self.rows), wide + classes, device=self._device)
            if self._features is not None and self._outputs is not None:
                mine = torch.cat([self._features, self._outputs], dim=1).float()
            known_features, outputs = ranks.gather(mine).split([wide, classes], dim=1)
            seen = known_features, outputs if classes else None
        return Exchanged(
            rows,
            ranks.gather(self.targets) if features and self.targets is not None else self.targets,
            torch.from_numpy(found > 0),
            seen[0],
            seen[1],
            known > 0,
            ranks.gather_rows(self._losses) if losses else self._losses,
            int(doubts.max()),
        )


def _one_width(widths: np.ndarray) -> int:
    """Return the width that all ranks have, or all that know one."""
    known = np.unique(widths[widths > 0])
    if len(known) > 1:
        raise ValueError(f"features and outputs must have the same width on every rank, got {known.tolist()}")
    return int(known[0]) if len(known) else 0
