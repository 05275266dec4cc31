"""Which labels are probably wrong, by what the training forwards of their samples say.

Suppose that a share η of the labels was replaced by any of the C − 1 other classes. A model that learns from them gives
a label the probability q = (1 − η) p + η (1 − p) / (C − 1), where p is that of the true class. By Bayes' rule the label
is more probably wrong than right if q < 2 (1 − p) η / (C − 1), and p is small then. Hard samples differ from wrong
labels: their labels are among the likely classes, and wrong labels are anywhere. So η is estimated where the model is
most confident, from the labels that are in the lower half of its ranking of the classes.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.common.saved_state import SavedState

#: With fewer classes, wrong labels cannot be told from hard samples.
FEWEST_CLASSES = 4
#: The share of the samples, those of the greatest confidence, by which the share of wrong labels is estimated.
CONFIDENT = 0.25
#: The model can tell if it agrees with more than this share of those of their labels that seem to be right, both less
#: the share that a constant model agrees with.
AGREES = 0.8
#: Labels of which more than this share seems to be wrong cannot be judged: a model that knows nothing finds them so.
MOST_NOISE = 0.5
#: Labels are noisy if more than this share of all is wrong.
NOISE = 0.12
#: At most this part of the samples with the same label is left out.
PART = 0.5
#: The least log-probability that counts.
LEAST = -14.0
#: Numbers per sample in the evidence about its label.
WIDTH = 6


class Suspects(NamedTuple):
    """Samples that are probably mislabelled, the most suspicious first."""

    indices: np.ndarray  # (k,) of the dataset
    probabilities: np.ndarray  # (k,) of the label, by the training forwards: their geometric mean
    noise: float  # the estimated share of wrong labels in the dataset, the largest so far


def tells(outputs: Tensor, labels: Tensor) -> bool:
    """Whether there is evidence about labels in a batch: these are logits of enough classes, and class numbers."""
    return outputs.ndim == 2 and outputs.shape[1] >= FEWEST_CLASSES and labels.ndim == 1


def label_evidence(logits: Tensor, labels: Tensor) -> Tensor:
    """Return what logits (B, C) say about class numbers (B,), in (B, 6): the log-probability of the label, that of the
    likeliest class, whether the label is the likeliest class, whether it is among the ⌊C / 2⌋ least likely ones, the
    label, and C. NaN for labels outside 0..C-1, such as the one that a loss ignores."""
    labels, classes = labels.to(logits.device), logits.shape[1]
    known = (labels >= 0) & (labels < classes)
    found = logits.detach().float().log_softmax(dim=1).clamp_min(LEAST)
    own = found.gather(1, labels.where(known, 0)[:, None])
    better = (found > own).sum(dim=1)
    first, low = better == 0, better >= classes - classes // 2
    columns = own[:, 0], found.amax(dim=1), first, low, labels, torch.full_like(labels, classes)
    return torch.stack([column.to(found.dtype) for column in columns], dim=1).where(known[:, None], torch.nan)


class LabelRecord:
    """Means of the evidence about the label of each sample, over its training forwards from the second one on: at the
    first one the model had hardly learned anything."""

    def __init__(self, samples: int) -> None:
        self._sums = np.zeros((samples, 4))
        self._forwards = np.zeros(samples, np.int64)
        self._labels = np.full(samples, -1, np.int64)
        self._classes, self._most = FEWEST_CLASSES, 0.0  # the largest share of wrong labels that was found

    def add(self, rows: np.ndarray, evidence: np.ndarray) -> None:
        """Take the evidence of a training forward of these samples, (B, 6). Rows that are not finite do not count."""
        finite = np.isfinite(evidence).all(axis=1)
        rows, evidence = rows[finite], evidence[finite]
        if len(rows) == 0:
            return
        before = self._forwards[rows] + _times_before(rows)
        np.add.at(self._sums, rows, np.where(before[:, None] > 0, evidence[:, :4], 0.0))
        np.add.at(self._forwards, rows, 1)
        self._labels[rows], self._classes = evidence[:, 4].astype(np.int64), int(evidence[0, 5])

    def noise(self) -> float | None:
        """Return the estimated share of wrong labels. None as long as that cannot be told: before most samples were
        forwarded twice, while more than half of the labels seem to be wrong, and while the model, where it is most
        confident, agrees with hardly more labels than a constant model does with all.

        Labels that were replaced at random are in the lower half of the ranking for ⌊C / 2⌋ of the C − 1 other classes.
        """
        rows, means = self._known()
        count = int(CONFIDENT * len(rows))
        if count == 0 or 2 * len(rows) < len(self._forwards):
            return None
        sure = means[np.argpartition(-means[:, 1], count - 1)[:count]]
        first, low = sure[:, 2:].mean(axis=0)
        found = min(1.0, float(low) * (self._classes - 1) / (self._classes // 2))
        right, constant = 1 - found, np.bincount(self._labels[rows]).max() / len(rows)
        if found > MOST_NOISE or right <= constant or first - constant <= AGREES * (right - constant):
            return None
        self._most = max(self._most, found)
        return found

    def add_wrong(self, noise: float, left_out: np.ndarray) -> None:
        """Add to the samples that are left out, (N,) bool, those whose labels are more probably wrong than right if
        this share of all labels is wrong. The least probable ones come first, and a part of each class stays."""
        rows, own = self._ranked()
        rows = rows[(own < self._limit(noise)) & ~left_out[rows]]
        labels, classes = self._labels, int(self._labels.max(initial=0)) + 1
        sizes = np.bincount(labels[labels >= 0], minlength=classes)
        room = np.floor(PART * sizes) - np.bincount(labels[left_out], minlength=classes)
        left_out[rows[_times_before(labels[rows]) < room[labels[rows]]]] = True

    def suspects(self, count: int | None = None) -> Suspects:
        """Return the `count` samples whose labels are least probable, by default as many as labels seem to be wrong. A
        model that has learned wrong labels by heart finds fewer, so the largest estimate so far counts."""
        rows, own = self._ranked()
        if len(rows) == 0:
            raise ValueError(
                "suspects needs samples that were trained on twice, with class numbers of at least"
                f" {FEWEST_CLASSES} classes as targets, and there are none yet"
            )
        self.noise()
        found = slice(round(self._most * len(rows)) if count is None else count)
        return Suspects(rows[found], np.exp(own[found]), self._most)

    def _known(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the samples of which anything is known, and the means of their evidence, (n, 4)."""
        rows = np.flatnonzero(self._forwards > 1)
        return rows, self._sums[rows] / (self._forwards[rows, None] - 1)

    def _ranked(self) -> tuple[np.ndarray, np.ndarray]:
        """Return these samples and the mean log-probabilities of their labels, the lowest first."""
        rows, means = self._known()
        order = np.argsort(means[:, 0], kind="stable")
        return rows[order], means[order, 0]

    def _limit(self, noise: float) -> float:
        """Return the log-probability below which a label is more probably wrong than right."""
        return float(np.log(2 * noise / (self._classes - 1))) if noise > 0 else -np.inf

    def state_dict(self) -> dict[str, Any]:
        """Return copies of everything that is known."""
        kept = {"sums": self._sums, "forwards": self._forwards, "labels": self._labels}
        copies = {name: torch.from_numpy(values.copy()) for name, values in kept.items()}
        return {**copies, "classes": self._classes, "most": self._most}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        saved, n = SavedState("the record of labels", state, self.state_dict()), len(self._labels)
        classes, most = saved.count("classes", FEWEST_CLASSES), saved.number("most", 0.0)
        sums = saved.tensor("sums", torch.float64, 2, n).numpy()
        if sums.shape[1] != 4:
            raise ValueError(f"the record of labels: sums must have 4 columns, got {sums.shape[1]}")
        forwards, labels = saved.whole("forwards", n, least=0), saved.whole("labels", n, least=-1)
        self._sums, self._forwards, self._labels = sums, forwards, labels
        self._classes, self._most = classes, most


def _times_before(values: np.ndarray) -> np.ndarray:
    """Return how often each value occurs before its place."""
    order, found = np.argsort(values, kind="stable"), np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(values[order], values[order])
    return found
