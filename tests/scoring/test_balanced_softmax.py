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


def test_targets_may_be_probabilities_whole_numbers_of_any_kind_and_minus_100():
    logits, counts = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), [7, 2, 1]
    targets = torch.tensor([0, 1, 2, 1])
    expected = smdl.balanced_softmax(logits, targets, counts, "none")
    assert torch.allclose(smdl.balanced_softmax(logits, torch.eye(3)[targets], counts, "none"), expected)
    assert torch.equal(smdl.balanced_softmax(logits, targets.int(), counts, "none"), expected)
    targets[3] = -100
    assert torch.equal(smdl.balanced_softmax(logits, targets, counts, "none")[:3], expected[:3])
    assert torch.isclose(smdl.balanced_softmax(logits, targets, counts), expected[:3].mean())


LOGITS, TARGETS = torch.zeros(2, 3), torch.zeros(2, dtype=torch.long)


@pytest.mark.parametrize(
    ("counts", "kind", "got"),
    [
        ([1, 2], ValueError, r"shape \(2,\)"),
        ([[1, 2, 3]], ValueError, r"shape \(1, 3\)"),
        (3, ValueError, r"shape \(\)"),
        ([1, 0, 2], ValueError, "0 for class 1"),
        ([1, 4, -1], ValueError, "-1 for class 2"),
        ([1, float("inf"), 2], ValueError, "inf for class 1"),
        ([float("nan"), 1, 2], ValueError, "nan for class 0"),
        (["a", "b", "c"], TypeError, "'a'"),
        ("abc", TypeError, "'abc'"),
        (None, TypeError, "None"),
    ],
)
def test_counts_that_do_not_fit_are_refused(counts, kind, got):
    with pytest.raises(kind, match=f"counts must be 3 positive numbers, one per class, got .*{got}"):
        smdl.balanced_softmax(LOGITS, TARGETS, counts)


@pytest.mark.parametrize(
    ("logits", "targets", "kind", "says"),
    [
        (LOGITS[0], TARGETS[0], ValueError, r"logits must be of shape \(batch, classes\), got \(3,\)"),
        (LOGITS, TARGETS[0], ValueError, r"targets must be of shape \(2,\)"),
        (LOGITS, TARGETS[:1], ValueError, r"targets must be of shape \(2,\).*, got \(1,\)"),
        (LOGITS, TARGETS.float(), ValueError, r"got \(2,\) of torch.float32"),
        (LOGITS, TARGETS[:, None].expand(2, 3), ValueError, r"got \(2, 3\) of torch.int64"),
        (LOGITS, TARGETS + 3, ValueError, r"targets must be in 0..2, or −100, got 3"),
        (LOGITS, TARGETS - 1, ValueError, r"targets must be in 0..2, or −100, got -1"),
        (LOGITS.numpy(), TARGETS, TypeError, "logits must be a tensor .*, got 'ndarray'"),
        (LOGITS, TARGETS.tolist(), TypeError, "targets must be a tensor .*, got 'list'"),
    ],
)
def test_logits_and_targets_that_do_not_fit_are_refused(logits, targets, kind, says):
    with pytest.raises(kind, match=says):
        smdl.balanced_softmax(logits, targets, [3, 1, 2])
