"""FeatureCache: the latest known features of every sample of a dataset, scored by the current head."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.errors import check_keys
from smdl.pool import host
from smdl.scoring import NotFiniteError, Scorer, Scores
from smdl.suspects import Votes, neighbour_votes

TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
#: A cache of more bytes than this is announced.
ANNOUNCED = 1 << 30


class FeatureCache:
    """Features (N, D) from the last forward of each sample.

    The head as it is now turns them into probabilities. If the head is not known, or only a sketch of the features is
    kept, the logits of that forward are kept as well, (N, C).

    dtype    the type of the kept numbers; larger values are clamped
    device   "model", or "cpu" for main memory
    sketch   keep this many random projections of the features instead of the features
    """

    def __init__(self, samples: int, dtype: str, device: str, sketch: int | None) -> None:
        self._samples, self._dtype, self._sketch = samples, TYPES[dtype], sketch
        self._limit, self._on_model = torch.finfo(self._dtype).max, device == "model"
        self._projection: Tensor | None = None
        self._features: Tensor | None = None
        self._logits: Tensor | None = None
        self._labels = np.zeros(samples, np.int64)
        self._seen = torch.zeros(samples, dtype=torch.bool)

    def write(
        self, scorer: Scorer, rows: np.ndarray, found: Tensor | None, features: Tensor, logits: Tensor, labels: Tensor
    ) -> None:
        """Keep what a forward computed for these samples, where they are `found`; None means all. This does not wait
        for the device."""
        if self._sketch is not None:
            features = features @ self._matrix(features)
        if self._features is None:
            self._allocate(features.shape[1], logits.shape[1], scorer)
        device = self._move(scorer)
        self._labels[rows] = host(labels)
        index = torch.from_numpy(rows).to(device)
        if found is None:
            self._seen.index_fill_(0, index, True)
        else:
            found = found.to(device)
            self._seen[index] |= found
        for kept, new in ((self._features, features), (self._logits, logits)):
            if kept is None:
                continue
            if new.shape[1] != kept.shape[1]:
                raise ValueError(
                    f"features must keep their width: it was {kept.shape[1]} until now, and is {new.shape[1]}"
                )
            new = new.clamp(-self._limit, self._limit).to(device, self._dtype)
            kept[index] = new if found is None else torch.where(found[:, None], new, kept[index])

    def scores(self, scorer: Scorer, rows: np.ndarray) -> tuple[Scores, np.ndarray] | None:
        """Return the scores of these samples, on the host, and which of them were ever seen; None before the first
        write. One transfer fetches everything from the device."""
        if self._features is None:
            return None
        device, labels = self._move(scorer), torch.from_numpy(self._labels[rows])
        index = torch.from_numpy(rows).to(device)
        features, seen = self._features.index_select(0, index).float(), self._seen.index_select(0, index)
        if self._logits is None:
            fresh = scorer.logits_from(features.to(scorer.device))
            assert fresh is not None
            logits = fresh.to(device)
        else:
            logits = self._logits.index_select(0, index).float()
        if device.type != "cpu":
            packed = torch.cat([features, logits, seen[:, None].float()], dim=1).cpu()
            features, logits, seen = packed.split([features.shape[1], logits.shape[1], 1], dim=1)
            features, seen = features.contiguous(), seen[:, 0] > 0
        return Scores.of(features, logits, labels), seen.numpy()

    def votes(self, scorer: Scorer, rng: np.random.Generator, most: int | None = None) -> tuple[np.ndarray, Votes]:
        """Return the samples seen so far, or `most` of them drawn at random, and how their nearest neighbours are
        labelled."""
        self._move(scorer)
        rows = host(self._seen.nonzero()[:, 0])
        if self._features is None or len(rows) == 0:
            return rows, Votes(np.zeros(0), np.zeros(0))
        asked = rows if most is None or most >= len(rows) else rng.choice(rows, most, replace=False)
        try:
            return asked, neighbour_votes(self._features, torch.from_numpy(self._labels), rng, asked, rows)
        except FloatingPointError as error:
            raise NotFiniteError("the model's features must be finite: has training diverged?") from error

    def pretend_seen(self) -> None:
        """Fill the rows of samples that were never seen with those of others. Used to time a typical step."""
        seen = self._seen.nonzero()[:, 0]
        if len(seen) == 0:
            return
        source = seen[torch.arange(self._samples, device=seen.device) % len(seen)]
        for kept in (self._features, self._logits):
            if kept is not None:
                kept[:] = kept[source]
        self._labels[:] = self._labels[host(source)]
        self._seen[:] = True

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that is kept."""
        labels = torch.from_numpy(self._labels)
        held = {"features": self._features, "logits": self._logits, "labels": labels, "seen": self._seen}
        return {name: None if value is None else value.cpu().clone() for name, value in held.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned. One that does not fit is refused and changes nothing."""
        check_keys("the state of the feature cache", state, self.state_dict())
        expected = {"features": (self._dtype, 2), "logits": (self._dtype, 2)}
        expected = {name: form for name, form in expected.items() if state[name] is not None}
        for name, (dtype, dimensions) in {**expected, "labels": (torch.int64, 1), "seen": (torch.bool, 1)}.items():
            value = state[name]
            shape = tuple(value.shape) if isinstance(value, Tensor) else None
            if shape is None or value.dtype != dtype or len(shape) != dimensions or shape[0] != self._samples:
                got = type(value).__name__ if shape is None else f"{value.dtype} of shape {shape}"
                raise ValueError(f"{name} of the feature cache must be {dtype} with {self._samples} rows, got {got}")
        self._labels, self._seen = host(state["labels"]).copy(), state["seen"].clone()
        self._features, self._logits = (
            None if state[name] is None else state[name].clone() for name in ("features", "logits")
        )

    def _move(self, scorer: Scorer) -> torch.device:
        """Make sure that everything is where it belongs, and return that device."""
        device = scorer.device if self._on_model else torch.device("cpu")
        if self._seen.device != device:
            self._seen = self._seen.to(device)
            self._features = None if self._features is None else self._features.to(device)
            self._logits = None if self._logits is None else self._logits.to(device)
        return device

    def _allocate(self, width: int, classes: int, scorer: Scorer) -> None:
        keeps_logits = self._sketch is not None or not scorer.knows_head
        needed = self._samples * (width + (classes if keeps_logits else 0)) * self._dtype.itemsize
        if needed > ANNOUNCED:
            warnings.warn(
                f"smdl.Observed will keep {width} numbers for each of {self._samples} samples:"
                f" {needed / 1e9:.1f} GB. It needs less with sketch=256; with device='cpu' it uses main memory",
                stacklevel=2,
            )
        device = self._move(scorer)
        self._features = torch.zeros(self._samples, width, dtype=self._dtype, device=device)
        if keeps_logits:
            self._logits = torch.zeros(self._samples, classes, dtype=self._dtype, device=device)

    def _matrix(self, features: Tensor) -> Tensor:
        """Return the random matrix of the sketch, (D, sketch). Inner products keep their expectation."""
        assert self._sketch is not None
        matrix = self._projection
        if matrix is None:
            generator = torch.Generator().manual_seed(features.shape[1])
            matrix = torch.randn(features.shape[1], self._sketch, generator=generator) / self._sketch**0.5
        self._projection = matrix = matrix.to(features.device)
        return matrix
