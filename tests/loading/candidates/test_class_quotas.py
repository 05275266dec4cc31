"""Class quotas: every class equally often in every batch."""

import copy
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import TensorDataset

import smdl
from smdl.loading.candidates.class_quotas import deal_equally, rounded
from tests.toys import epoch_of, sgd, train


def tail() -> TensorDataset:
    """Three classes of 80, 30 and 10 samples."""
    labels = torch.tensor([0] * 80 + [1] * 30 + [2] * 10)
    return TensorDataset(torch.randn(120, 6, generator=torch.Generator().manual_seed(1)), labels)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


BALANCED = {"test_set": "balanced"}


def loader_of(network: nn.Module, seed: int = 0) -> smdl.DataLoader:
    return smdl.DataLoader(tail(), network, 12, options=BALANCED, seed=seed)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), st.integers(0, 2**32))
def test_rounding_keeps_the_sum_and_moves_by_less_than_one(parts, seed):
    exact = np.array(parts, float) * 7 / 3
    exact[-1] += -exact.sum() % 1
    found = rounded(exact, np.random.default_rng(seed))
    assert found.sum() == round(exact.sum())
    assert (np.abs(found - exact) < 1 + 1e-5).all()
    assert (found >= 0).all()


def test_rounding_is_right_on_average():
    rng = np.random.default_rng(0)
    mean = np.mean([rounded(np.array([0.3, 1.5, 2.2]), rng) for _ in range(4000)], axis=0)
    assert np.allclose(mean, [0.3, 1.5, 2.2], atol=0.05)


def plain_shares(counts: list[int], size: int) -> list[float]:
    """Give out the pool in small parts, one per class in turn, until it is full."""
    given_out = [0.0] * len(counts)
    for _ in range(1000 * size):
        free = [c for c, count in enumerate(counts) if given_out[c] < count - 1e-9]
        if not free or sum(given_out) > size - 1e-9:
            break
        part = min((size - sum(given_out)) / len(free), min(counts[c] - given_out[c] for c in free))
        for c in free:
            given_out[c] += part
    return given_out


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(1, 30), st.integers(0, 2**32))
def test_pools_hold_every_class_equally_often_and_no_sample_twice(counts, size, seed):
    size = min(size, sum(counts))
    classes = np.repeat(np.arange(len(counts)), counts)
    pools = list(deal_equally(classes, [size] * 5, np.random.default_rng(seed)))
    expected = plain_shares(counts, size)
    for pool in pools:
        assert len(set(pool.tolist())) == len(pool) == size
        assert (np.abs(np.bincount(classes[pool], minlength=len(counts)) - expected) < 1 + 1e-5).all()
    dealt = np.bincount(np.concatenate(pools), minlength=len(classes))
    for c in range(len(counts)):
        assert np.ptp(dealt[classes == c]) <= 1


@pytest.mark.parametrize("size", [3, 9])
def test_any_classes_may_be_in_a_batch_together(size):
    """Six classes, and batches of no multiple of six: 20 sets of three of them may come once more than the others."""
    classes = np.repeat(np.arange(6), 10)
    pools = deal_equally(classes, [size] * 400, np.random.default_rng(0))
    counts = [np.bincount(classes[pool], minlength=6) for pool in pools]
    assert len({tuple(np.flatnonzero(count > size // 6)) for count in counts}) == 20


def test_batches_for_a_balanced_test_set_hold_every_class_equally_often():
    data, network = tail(), model()
    loader = loader_of(network)
    for batch in train(loader, network, sgd(network), 2 * len(loader)):
        assert np.bincount(data.tensors[1].numpy()[batch]).tolist() == [4, 4, 4]
    assert loader.seconds["scoring"] == 0, "nothing is scored: the batches are drawn at random within the classes"


def test_samples_of_a_class_come_in_turn():
    network = model()
    loader = loader_of(network)
    used = np.bincount(list(chain(*train(loader, network, sgd(network), len(loader)))), minlength=120)
    assert [set(used[rows].tolist()) for rows in (slice(80), slice(80, 110), slice(110, 120))] == [{0, 1}, {1, 2}, {4}]


def test_the_same_seed_gives_the_same_batches_and_another_seed_others():
    def run(seed: int) -> list[list[int]]:
        network = model()
        return train(loader_of(network, seed), network, sgd(network), 25)

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_an_epoch_with_quotas_is_resumed_with_the_identical_tail():
    def begun():
        network = model()
        return loader_of(network), network, sgd(network)

    run = begun()
    train(*run, steps=14)
    state = copy.deepcopy([part.state_dict() for part in run])
    runs = run, begun()
    for one in runs:
        for part, saved in zip(one, state, strict=True):
            part.load_state_dict(copy.deepcopy(saved))
    tails = [train(*one, steps=20) for one in runs]
    assert tails[0] == tails[1]


def test_a_single_class_is_no_error():
    data = TensorDataset(torch.randn(40, 6), torch.full((40,), 2))
    loader = smdl.DataLoader(data, model(), 8, options=BALANCED)
    assert [len(set(batch)) for _ in range(3) for batch in epoch_of(loader)] == [8] * 15


def test_targets_that_are_no_classes_are_refused():
    data = TensorDataset(torch.randn(40, 6), torch.randn(40, 1))
    with pytest.raises(ValueError, match="targets must be one class number per sample"):
        smdl.DataLoader(data, model(), 8, options=BALANCED, scoring=smdl.Scoring(loss="mse"))


@pytest.mark.parametrize("method", ["recommended", "balanced"])
def test_ignored_labels_are_no_class(method):
    data, options = TensorDataset(torch.randn(40, 6), torch.arange(40) % 4), BALANCED if method == "recommended" else {}
    data.tensors[1][7] = -100
    with pytest.raises(ValueError, match="draws by classes, and sample 7 has the label -100"):
        smdl.DataLoader(data, model(), 8, method=method, options=options)


@pytest.mark.parametrize(
    "candidates", [smdl.Observed(), smdl.Full(), smdl.RandomPool(3)], ids=lambda each: each.describe()
)
def test_candidates_that_do_not_deal_shuffled_samples_are_refused(candidates):
    with pytest.raises(ValueError, match=r'Recommended draws shuffled samples: leave out .*, or use method="observed"'):
        smdl.DataLoader(tail(), model(), 12, method="recommended", candidates=candidates)
