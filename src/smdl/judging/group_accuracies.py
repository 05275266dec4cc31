"""group_accuracies: how a model does on the groups of a test set, for a training function of the user."""

from typing import Any

import numpy as np
from torch import Tensor

from smdl.common.messages import choice, names_checked
from smdl.training.groups import Groups


@names_checked
def group_accuracies(correct: Any, groups: Any, train_groups: Any) -> dict[str, float]:
    """Return the accuracy by groups of a test set, as fractions, for the metrics of `smdl.compare`.

    Args:
        correct: (M,) which test samples are classified rightly: booleans, or 1 and 0.
        groups: (M,) the group of each test sample: a class, or something that labels do not show, as a whole number.
        train_groups: (N,) the group of each training sample: they say which groups are rare.

    Returns:
        `balanced_accuracy`: the mean over the groups. `worst_accuracy`: of the worst group. `rare_accuracy`: the mean
        over the groups with less than half of the training samples of an average group, if there are such groups.

    Raises:
        ValueError: If the lengths do not fit, `correct` has other values than true and false, or groups are not whole
            numbers ≥ 0.

    Examples:
        >>> import smdl
        >>> smdl.group_accuracies([True, False, True], [0, 0, 1], [0, 0, 0, 1])["worst_accuracy"]
        0.5
    """
    right, mine, theirs = map(_array, (correct, groups, train_groups))
    if right.ndim != 1 or right.shape != mine.shape or len(right) == 0:
        raise ValueError(f"correct and groups must be one per test sample, got shapes {right.shape} and {mine.shape}")
    others = [one for one in right.tolist() if one not in (0, 1)]
    if others:
        allowed = "True or False (or 1 or 0) for each test sample, such as predictions == labels"
        raise ValueError(choice("correct", others[0], allowed))
    for name, found in (("groups", mine), ("train_groups", theirs)):
        check_groups(name, found)
    errors = Groups(mine, mine, theirs).errors(~right.astype(bool))
    found = {name.removeprefix("test_").replace("error", "accuracy"): error for name, error in errors.items()}
    return {name: 1 - error for name, error in found.items() if error is not None}


def check_groups(name: str, given: Any, samples: int | None = None) -> np.ndarray:
    """Return groups as int64, (N,), or raise an error with what was found."""
    groups = _array(given)
    if groups.ndim != 1 or groups.dtype.kind not in "iu" or len(groups) == 0 or groups.min() < 0:
        raise ValueError(f"{name} must be one whole number ≥ 0 per sample, got {groups.dtype} of shape {groups.shape}")
    if samples is not None and len(groups) != samples:
        raise ValueError(f"{name} must be one number per sample of the dataset, {samples}, got {len(groups)}")
    return groups.astype(np.int64)


def _array(values: Any) -> np.ndarray:
    return np.asarray(values.detach().cpu() if isinstance(values, Tensor) else values)
