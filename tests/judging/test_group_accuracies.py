"""group_accuracies: true and false in every form, and nothing else."""

import numpy as np
import pytest
import torch

import smdl

CORRECT = [True, False, True, True]


@pytest.mark.parametrize("form", [list, np.array, torch.tensor, lambda given: np.array(given, float), np.int64])
def test_true_and_false_may_be_written_in_several_ways(form):
    found = smdl.group_accuracies(form(CORRECT), [0, 0, 1, 1], [0, 0, 0, 1])
    assert found == {"balanced_accuracy": 0.75, "worst_accuracy": 0.5}


def test_groups_may_have_any_numbers_and_a_tensor_may_have_a_gradient():
    correct = torch.tensor([1.0, 0.0, 1.0], requires_grad=True)
    found = smdl.group_accuracies(correct, [0, 10**13, 0], [0, 0, 0, 0, 10**13])
    assert found == {"balanced_accuracy": 0.5, "rare_accuracy": 0.0, "worst_accuracy": 0.0}


@pytest.mark.parametrize(
    ("correct", "got"),
    [
        ([0, 2, 1, 1], "2"),
        ([1.0, np.nan, 1.0, 1.0], "nan"),
        ([1, 0, -1, 1], "-1"),
        (["yes", "no", "yes", "no"], "'yes'"),
        ([True, None, True, True], "None"),
        (torch.tensor([0.5, 1.0, 0.0, 0.0]), "0.5"),
    ],
)
def test_predictions_are_not_taken_for_true_and_false(correct, got):
    with pytest.raises(ValueError, match=f"correct must be True or False .*predictions == labels, got {got}$"):
        smdl.group_accuracies(correct, [0, 0, 1, 1], [0, 0, 0, 1])
