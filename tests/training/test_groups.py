"""Errors by groups: all classes alike, the rare groups, the worst one; a hidden tail keeps its groups."""

from typing import Any

import numpy as np
import pytest

from smdl.training.config import DataConfig
from smdl.training.datasets.load import load
from smdl.training.groups import Groups
from smdl.training.loop import TrainingRun
from tests.experiments.base import BASE


def test_errors_are_means_over_classes_and_groups():
    """Class 0 is groups 0 and 1, class 1 is group 2. Group 1 has 1 of 21 training samples."""
    classes, groups = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 1, 2, 2])
    known = Groups(classes, groups, np.array([0] * 10 + [1] + [2] * 10))
    found = known.errors(np.array([True, False, False, True, False, False]))
    assert found == {
        "test_balanced_error": pytest.approx((2 / 4 + 0) / 2),
        "test_rare_error": 1.0,
        "test_worst_error": 1.0,
    }


def test_without_a_rare_group_there_is_no_error_of_the_rare():
    known = Groups(np.array([0, 1]), np.array([0, 1]), np.array([0, 1]))
    found = known.errors(np.array([True, False]))
    assert found == {"test_balanced_error": 0.5, "test_rare_error": None, "test_worst_error": 1.0}


def test_a_group_without_training_samples_is_rare():
    known = Groups(np.array([0, 1]), np.array([0, 1]), np.array([0, 0]))
    assert known.errors(np.array([False, True]))["test_rare_error"] == 1.0


def test_the_groups_of_a_hidden_tail_are_the_classes_before_they_are_merged():
    splits = load(DataConfig(hidden_imbalance=10.0))
    groups = splits.groups
    assert (len(splits.classes), len(np.unique(groups.groups)), len(np.unique(groups.classes))) == (5, 10, 5)
    assert (groups.groups // 2 == groups.classes).all()
    sizes = np.bincount(groups.train_groups)
    assert sizes[0::2].min() > 8 * sizes[1::2].max()
    wrong = groups.groups % 2 == 1
    assert groups.errors(wrong)["test_rare_error"] == groups.errors(wrong)["test_worst_error"] == 1.0
    assert groups.errors(~wrong)["test_rare_error"] == 0.0


def test_wrong_labels_do_not_change_the_groups():
    clean, noisy = (load(DataConfig(imbalance=10.0, label_noise=noise)).groups for noise in (0.0, 0.5))
    assert (clean.train_groups == noisy.train_groups).all()


def test_a_run_measures_its_groups():
    run = TrainingRun(BASE)
    found: dict[str, Any] = run.evaluate()
    assert 0 <= found["test_balanced_error"] <= found["test_worst_error"] <= 1
    assert found["test_rare_error"] is None
    assert "train_worst_error" not in found
