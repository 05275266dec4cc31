"""FeatureCache: the latest known features of every sample of a dataset, scored by the current head."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.common.saved_state import SavedState
from smdl.engine import arithmetic
from smdl.engine.pool import host
from smdl.scoring.losses import Scores
from smdl.scoring.scorer import Scorer

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
#: A cache of more bytes than this is announced.
ANNOUNCED = 1 << 30


class FeatureCache:
    """Features (N, D) from the last forward of each sample, and its targets.

    The head as it is now turns them into outputs. If the head is not known, or only a sketch of the features is kept,
    the outputs of that forward are kept as well, (N, C). Of outputs with more dimensions (a token or a pixel each) only
    the loss is kept, (N, 1). If nothing but features is needed, only they are kept.

    dtype    the type of the kept numbers; larger values are clamped
    device   "model", or "cpu" for main memory
    sketch   keep this many random projections of the features instead of the features
    """

    def __init__(self, samples: int, dtype: str, device: str, sketch: int | None) -> None:
        self._samples, self._dtype, self._sketch = samples, TYPES[dtype], sketch
        self._limit, self._on_model = torch.finfo(self._dtype).max, device == "model"
        self._projection: Tensor | None = None
        self._features: Tensor | None = None
        self._outputs: Tensor | None = None  # or losses, if `_holds_losses`
        self._targets: Tensor | None = None  # in main memory
        self._holds_losses = False
        self._is_told_of_clamping = False
        self._seen = torch.zeros(samples, dtype=torch.bool)
        self._all_seen = False  # as far as is known, see `count_seen`

    def write(
        self,
        scorer: Scorer,
        rows: np.ndarray,
        found: Tensor | None,
        features: Tensor,
        outputs: Tensor | None,
        targets: Tensor | None,
    ) -> None:
        """Keep what a forward computed for these samples, where they are `found`; None means all. This does not wait
        for the device."""
        if self._sketch is not None:
            features = features @ self._matrix(features)
        outputs = scorer.kept.outputs(outputs, targets)
        targets = None if outputs is None else scorer.kept.targets(targets)
        self._holds_losses = scorer.criterion.loss is not None and scorer.kept.are_losses
        if self._features is None:
            self._allocate(features.shape[1], outputs, targets, scorer)
        device = self._move(scorer)
        on_host = torch.from_numpy(rows)
        if targets is not None and self._targets is not None:
            self._targets[on_host] = targets.detach().cpu()
        index = on_host.to(device)
        if found is None:
            self._seen.index_fill_(0, index, True)
        else:
            found = found.to(device)
            self._seen[index] |= found
        for kept, new in ((self._features, features), (self._outputs, outputs)):
            if kept is None or new is None:
                continue
            if new.shape[1] != kept.shape[1]:
                raise ValueError(
                    f"features must keep their width: it was {kept.shape[1]} until now, and is {new.shape[1]}"
                )
            new = new.clamp(-self._limit, self._limit).to(device, self._dtype)
            kept[index] = new if found is None else torch.where(found[:, None], new, kept[index])

    def scores(self, scorer: Scorer, rows: np.ndarray, losses: bool = True) -> tuple[Scores, np.ndarray | None] | None:
        """Return the scores of these samples, on the host, and which of them were ever seen, where None is all; None
        before the first write. One transfer fetches everything from the device. `losses`: whether they are needed."""
        if self._features is None:
            return None
        device = self._move(scorer)
        on_host = torch.from_numpy(rows)
        index = on_host.to(device)
        features = self._features.index_select(0, index).float()
        seen = None if self._all_seen else self._seen.index_select(0, index)
        if self._outputs is not None:
            outputs = self._outputs.index_select(0, index).float()
        elif self._targets is not None:
            fresh = scorer.network.outputs_from(features.to(scorer.network.device))
            assert fresh is not None
            outputs = fresh.to(device).reshape(len(rows), -1)
        else:
            outputs = features[:, :0]
        if device.type != "cpu":
            found = features[:, :0] if seen is None else seen[:, None].float()
            packed = torch.cat([features, outputs, found], dim=1).cpu()
            features, outputs, found = packed.split([features.shape[1], outputs.shape[1], found.shape[1]], dim=1)
            features, seen = features.contiguous(), None if seen is None else found[:, 0] > 0
        self._tell_of_clamping(features, *([] if self._outputs is None else [outputs]))
        which = None if seen is None else seen.numpy()
        if self._holds_losses:
            return Scores(features, losses=outputs[:, 0]), which
        if self._targets is None:
            return Scores(features), which
        targets = self._targets.index_select(0, on_host)  # faster than `[]`
        return scorer.criterion.scores(features, scorer.kept.shaped(outputs), targets, losses), which

    def count_seen(self) -> None:
        """Find out whether every sample was seen: if so, the scores of a step need no mask."""
        self._all_seen = bool(self._seen.all())

    def _tell_of_clamping(self, *kept: Tensor) -> None:
        """Warn once if kept numbers are the largest of float16: distances between such features mean nothing."""
        is_told = self._is_told_of_clamping or self._dtype is not torch.float16
        if not is_told and any(values.numel() and arithmetic.largest(host(values)) >= self._limit for values in kept):
            self._is_told_of_clamping = True
            warnings.warn(
                f"the features or outputs of some samples are beyond the range of float16 and are kept as"
                f' {self._limit:,.0f}, so that they cannot be told apart: use smdl.Observed(dtype="float32"),'
                " or scale the inputs",
                stacklevel=2,
            )

    def forget(self) -> None:
        """Keep nothing: every sample is as if it were never seen."""
        self._features = self._outputs = self._targets = None
        self._seen[:], self._all_seen = False, False

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that is kept."""
        held = {"features": self._features, "outputs": self._outputs, "targets": self._targets, "seen": self._seen}
        copies = {name: None if value is None else value.cpu().clone() for name, value in held.items()}
        return {**copies, "holds_losses": self._holds_losses}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned. One that does not fit is refused and changes nothing."""
        saved = SavedState("the state of the feature cache", state, self.state_dict())
        holds_losses, targets = saved.flag("holds_losses"), saved["targets"]
        seen = saved.tensor("seen", torch.bool, 1, self._samples)
        kind = (targets.dtype, targets.ndim) if isinstance(targets, Tensor) else (torch.int64, 1)
        forms = {"features": (self._dtype, 2), "outputs": (self._dtype, 2), "targets": kind}
        features, outputs, targets = (
            None if saved[name] is None else saved.tensor(name, dtype, dimensions, self._samples)
            for name, (dtype, dimensions) in forms.items()
        )
        self._seen, self._all_seen, self._holds_losses = seen, False, holds_losses
        self._features, self._outputs, self._targets = features, outputs, targets

    def _move(self, scorer: Scorer) -> torch.device:
        """Make sure that everything is where it belongs, and return that device."""
        device = scorer.network.device if self._on_model else torch.device("cpu")
        if self._seen.device != device:
            self._seen = self._seen.to(device)
            self._features = None if self._features is None else self._features.to(device)
            self._outputs = None if self._outputs is None else self._outputs.to(device)
        return device

    def _allocate(self, width: int, outputs: Tensor | None, targets: Tensor | None, scorer: Scorer) -> None:
        unknown = self._sketch is not None or not scorer.network.knows_head or self._holds_losses
        more = outputs.shape[1] if outputs is not None and unknown else 0
        needed = self._samples * (width + more) * self._dtype.itemsize
        if needed > ANNOUNCED:
            warnings.warn(
                f"smdl.Observed will keep {width} numbers for each of {self._samples} samples:"
                f" {needed / 1e9:.1f} GB. It needs less with sketch=256; with device='cpu' it uses main memory",
                stacklevel=2,
            )
        device = self._move(scorer)
        self._features = torch.zeros(self._samples, width, dtype=self._dtype, device=device)
        if more:
            self._outputs = torch.zeros(self._samples, more, dtype=self._dtype, device=device)
        if targets is not None:
            self._targets = torch.zeros(self._samples, *targets.shape[1:], dtype=targets.dtype)

    def _matrix(self, features: Tensor) -> Tensor:
        """Return the random matrix of the sketch, (D, sketch). Inner products keep their expectation."""
        assert self._sketch is not None
        matrix = self._projection
        if matrix is None:
            generator = torch.Generator().manual_seed(features.shape[1])
            matrix = torch.randn(features.shape[1], self._sketch, generator=generator) / self._sketch**0.5
        self._projection = matrix = matrix.to(features.device)
        return matrix
