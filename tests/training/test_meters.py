"""Sums and means over an epoch."""

import math

import numpy as np
import pytest
import torch

from smdl.training.meters import Meters, balance, gradient_norm


def test_balance_is_one_for_even_classes_and_zero_for_one():
    assert balance(np.array([5, 5, 5, 5])) == pytest.approx(1)
    assert balance(np.array([20, 0, 0, 0])) == pytest.approx(0)
    assert balance(np.array([1, 1, 0, 0])) == pytest.approx(1), "two samples cannot cover more than two classes"
    assert balance(np.array([3, 1])) == pytest.approx(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)) / math.log(2))


def test_means_weigh_batches_by_their_samples():
    meters = Meters()
    meters.add(1.0, 1, 2.0, np.array([0, 1, 1]), 3)
    meters.add(4.0, 1, 4.0, np.array([2]), 3)
    means = meters.means()
    assert means["batch_loss"] == pytest.approx((3 * 1.0 + 4.0) / 4)
    assert means["batch_error"] == pytest.approx(0.5)
    assert means["gradient_norm"] == pytest.approx(3.0)
    assert means["class_counts"] == [1, 2, 1]
    assert Meters(**meters.state()) == meters


def test_the_gradient_norm_is_over_all_weights():
    layer = torch.nn.Linear(2, 1)
    layer.weight.grad, layer.bias.grad = torch.tensor([[2.0, 3.0]]), torch.tensor([6.0])
    assert gradient_norm(layer.parameters()) == pytest.approx(7)
    assert gradient_norm(torch.nn.Linear(2, 1).parameters()) == 0
