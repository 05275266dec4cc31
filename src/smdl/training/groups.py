"""Errors by groups of the test set: of all classes alike, of the rare groups, and of the worst group."""

from dataclasses import dataclass

import numpy as np

#: A group is rare if it has less than this part of the training samples that a group has on average.
RARE = 0.5


@dataclass(frozen=True)
class Groups:
    """The classes as the data set has them. A hidden tail merges them: then the labels do not show the groups."""

    classes: np.ndarray  # (N,) class of each test sample, as the model sees it
    groups: np.ndarray  # (N,) group of each test sample
    train_groups: np.ndarray  # group of each training sample

    def errors(self, wrong: np.ndarray) -> dict[str, float | None]:
        """Return the mean error over classes, over the rare groups (None if no group is rare), and the highest error of
        a group. `wrong`, (N,), says which test samples are classified wrongly."""
        by_group = _error_per_member(self.groups, wrong)
        known, counts = np.unique(self.train_groups, return_counts=True)
        sizes = dict(zip(known.tolist(), counts.tolist(), strict=True))
        rare = [error for group, error in by_group.items() if sizes.get(group, 0) < RARE * counts.mean()]
        return {
            "test_balanced_error": float(np.mean(list(_error_per_member(self.classes, wrong).values()))),
            "test_rare_error": float(np.mean(rare)) if rare else None,
            "test_worst_error": max(by_group.values()),
        }


def _error_per_member(kinds: np.ndarray, wrong: np.ndarray) -> dict[int, float]:
    return {int(kind): float(wrong[kinds == kind].mean()) for kind in np.unique(kinds)}
