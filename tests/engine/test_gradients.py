"""The factored last-layer gradients are the ones autograd computes."""

import pytest
import torch
from torch import nn

import smdl
from smdl.engine.gradients import GradientSpace


def autograd_gradients(head: nn.Linear, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    rows = []
    for x, y in zip(features, labels, strict=True):
        head.zero_grad()
        nn.functional.cross_entropy(head(x[None]), y[None]).backward()
        rows.append(torch.cat([p.grad.flatten() for p in head.parameters() if p.grad is not None]))
    return torch.stack(rows)


@pytest.mark.parametrize("bias", [True, False])
def test_factored_inner_products_and_distances_are_those_of_autograd(bias):
    generator = torch.Generator().manual_seed(0)
    features = torch.rand(12, 6, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 4, (12,), generator=generator)
    head = nn.Linear(6, 4, bias=bias, dtype=torch.float64)
    gradients = autograd_gradients(head, features, labels)
    probabilities = head(features).softmax(1)

    space = GradientSpace(smdl.Pool(features, probabilities, labels, bias=bias))
    i = torch.arange(12)
    torch.testing.assert_close(space.inner(i[:, None], i[None, :]), gradients @ gradients.T)
    torch.testing.assert_close(space.squared(i[:, None], i[None, :]), torch.cdist(gradients, gradients).square())
    torch.testing.assert_close(torch.from_numpy(space.lengths()), gradients.norm(dim=1))


@pytest.mark.parametrize("seed", range(6))  # several rows, because a float32 error below zero is clamped
def test_gradients_that_are_equal_although_their_factors_differ_are_at_distance_zero(seed):
    """e doubled and f halved is the same gradient: all terms cancel, and float32 sums would not give zero."""
    row = torch.rand(64, generator=torch.Generator().manual_seed(seed)) + 0.1
    pool = smdl.Pool(torch.stack([row, row / 2]), [[0.75, 0.25], [0.5, 0.5]], [0, 0], bias=False)
    assert smdl.select(pool, smdl.Objective(redundancy=1.0, space="gradients"), 2).gains[1] < 1e-6
    similarities = smdl.Objective.gradients().on(pool).geometry.similarities
    assert similarities is not None
    assert similarities[0, 1] > 1 - 1e-6


def test_space_gradients_needs_probabilities_and_labels():
    objective = smdl.Objective(redundancy=1.0, space="gradients")
    with pytest.raises(ValueError, match=r'space="gradients" needs probabilities: pass them as Pool\(probabilities='):
        smdl.select(smdl.Pool([[1.0], [2.0]]), objective, 1)
    with pytest.raises(ValueError, match="needs labels"):
        smdl.select(smdl.Pool([[1.0], [2.0]], [[0.5, 0.5], [1.0, 0.0]]), objective, 1)


def test_feature_coverage_refuses_gradients():
    pool = smdl.Pool([[1.0], [2.0]], [[0.5, 0.5], [1.0, 0.0]], [0, 1])
    with pytest.raises(ValueError, match="gradients are signed"):
        smdl.select(pool, smdl.Objective(feature_coverage=1.0, space="gradients"), 1)
