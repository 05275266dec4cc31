"""balanced_softmax: its equation, and errors for counts that do not fit."""

import pytest
import torch

import smdl


def test_it_is_the_equation():
    generator = torch.Generator().manual_seed(0)
    logits, targets = torch.randn(7, 3, generator=generator), torch.arange(7) % 3
    counts = torch.tensor([70, 20, 1])
    expected = []
    for row, label in zip(logits, targets, strict=True):
        shares = counts * row.exp()
        expected.append(-(shares[label] / shares.sum()).log())
    found = smdl.balanced_softmax(logits, targets, counts, reduction="none")
    assert torch.allclose(found, torch.stack(expected), atol=1e-5)
    assert torch.allclose(smdl.balanced_softmax(logits, targets, [70, 20, 1]), found.mean())
    assert torch.allclose(smdl.balanced_softmax(logits, targets, counts.numpy(), "sum"), found.sum())
    equal = smdl.balanced_softmax(logits, targets, [5, 5, 5])
    assert torch.allclose(equal, torch.nn.functional.cross_entropy(logits, targets))


@pytest.mark.parametrize("counts", [[1, 2], [1, 0, 2], [1, -1, 2], [1, float("inf"), 2], [[1, 2, 3]]])
def test_counts_that_do_not_fit_are_refused(counts):
    with pytest.raises(ValueError, match="3 positive numbers, one per class"):
        smdl.balanced_softmax(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long), counts)
