"""The recommended batches: plain passes over the data, without wrong labels, and with equal classes if asked for."""

from typing import Any, Literal

import numpy as np
import torch

from smdl.common.messages import one_of, true_or_false
from smdl.common.saved_state import SavedState
from smdl.loading.strategies.uniform import Uniform
from smdl.scoring.label_check import NOISE, LabelRecord, Suspects


class Recommended(Uniform):
    """Draws what `uniform` draws, until it finds wrong labels: samples whose labels are more probably wrong than right
    are left out of the epochs that follow, if more than 12 % of all labels seem to be wrong.

    test_set      what the data is like on which the model will be tested: "like_training", or "balanced", with all
                  classes alike. Then the batches hold every class equally often
    check_labels  whether to leave out wrong labels
    """

    needs_passes = True
    needs_losses = True
    needs_label_evidence = True
    evidence = frozenset()  # the targets may be of any kind: without class numbers no label is judged

    def __init__(
        self, test_set: Literal["balanced", "like_training"] = "like_training", check_labels: bool = True
    ) -> None:
        self.test_set = one_of("test_set", test_set, ("balanced", "like_training"))
        self.needs_labels = test_set == "balanced"
        self.needs_losses = self.needs_label_evidence = true_or_false("check_labels", check_labels)
        self._noise, self._left_out, self._record = 1.0, np.zeros(0, bool), LabelRecord(0)

    def prepare(self, samples: int, epochs: int | None) -> None:  # noqa: ARG002
        self._left_out, self._record = np.zeros(samples, bool), LabelRecord(samples)

    def set_labels(self, labels: np.ndarray) -> None:
        self.quotas = labels

    def describe(self) -> str:
        return f"Recommended, test_set {self.test_set}, check_labels {self.needs_losses}"

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:
        self._record.add(indices, losses)

    def begin_epoch(self, epoch: int) -> None:  # noqa: ARG002
        """Judge the labels. What is left out stays out: the model does not see it any more, and says nothing new. The
        smallest share of wrong labels that was found counts, because an early model takes more of them for wrong."""
        noise = self._record.noise()
        if noise is None:
            return
        self._noise = min(self._noise, noise)
        if self._noise > NOISE or self._left_out.any():
            self._record.add_wrong(self._noise, self._left_out)

    @property
    def admitted(self) -> np.ndarray | None:  # type: ignore[override]
        return np.flatnonzero(~self._left_out) if self._left_out.any() else None

    def suspects(self, count: int | None = None) -> Suspects:
        """Return the samples whose labels are probably wrong, or the `count` most suspicious ones."""
        return self._record.suspects(count)

    def state_dict(self) -> dict[str, Any]:
        left_out = torch.from_numpy(self._left_out.copy())
        return {"noise": self._noise, "left_out": left_out, "record": self._record.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = SavedState("the state of Recommended", state, self.state_dict())
        noise, left_out = saved.number("noise", 0.0), saved.flags("left_out", len(self._left_out))
        self._record.load_state_dict(saved["record"])
        self._noise, self._left_out = noise, left_out
