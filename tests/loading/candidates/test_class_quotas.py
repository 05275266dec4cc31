"""Class quotas: every class equally often in every batch."""

import copy
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl
from smdl.loading.candidates.class_quotas import deal_equally, rounded
from smdl.scoring import suspects
from tests.toys import epoch_of, sgd, train


def tail() -> TensorDataset:
    """Three classes of 80, 30 and 10 samples."""
    labels = torch.tensor([0] * 80 + [1] * 30 + [2] * 10)
    return TensorDataset(torch.randn(120, 6, generator=torch.Generator().manual_seed(1)), labels)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 3))


def loader_of(network: nn.Module, seed: int = 0, **options) -> smdl.DataLoader:
    return smdl.DataLoader(tail(), network, 12, candidates=smdl.Observed(test_set="balanced", **options), seed=seed)


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


def test_samples_of_unknown_class_are_as_frequent_as_in_the_dataset():
    classes = np.repeat([-1, 0, 1], [30, 60, 10])
    pools = list(deal_equally(classes, [20] * 50, np.random.default_rng(0)))
    held = np.mean([[np.count_nonzero(classes[pool] == c) for c in (-1, 0, 1)] for pool in pools], axis=0)
    assert np.allclose(held, [6, 7, 7], atol=0.2)
    fill = next(deal_equally(np.repeat([-1, 0], [30, 5]), [33], np.random.default_rng(0)))
    assert len(set(fill.tolist())) == 33, "a class with too few samples leaves its part to the others"


def test_batches_for_a_balanced_test_set_hold_every_class_equally_often():
    data, network = tail(), model()
    loader = loader_of(network)
    first = train(loader, network, sgd(network), len(loader))
    assert sorted(chain(*first)) == list(range(120)), "the first epoch is a plain pass"
    for batch in train(loader, network, sgd(network), 2 * len(loader)):
        assert np.bincount(data.tensors[1].numpy()[batch]).tolist() == [4, 4, 4]
    assert loader.seconds["scoring"] == 0, "nothing is scored: the batches are drawn at random within the classes"


def test_samples_of_a_class_come_in_turn():
    network = model()
    loader = loader_of(network, trust="all")
    train(loader, network, sgd(network), len(loader))
    used = np.bincount(list(chain(*train(loader, network, sgd(network), len(loader)))), minlength=120)
    assert [set(used[rows].tolist()) for rows in (slice(80), slice(80, 110), slice(110, 120))] == [{0, 1}, {1, 2}, {4}]


def test_samples_with_suspect_labels_are_not_drawn(monkeypatch):
    network = model()
    loader = loader_of(network, trust="neighbours")
    wrong = np.arange(120) % 4 == 0
    monkeypatch.setattr(suspects.Votes, "suspect", property(lambda votes: wrong[: len(votes.own)]))
    train(loader, network, sgd(network), 2 * len(loader))
    used = list(chain(*train(loader, network, sgd(network), len(loader))))
    assert len(used) == 120
    assert not wrong[used].any()


def test_the_same_seed_gives_the_same_batches_and_another_seed_others():
    def run(seed: int) -> list[list[int]]:
        network = model()
        return train(loader_of(network, seed), network, sgd(network), 25)

    assert run(3) == run(3)
    assert run(3)[10:] != run(4)[10:]


def test_an_epoch_with_quotas_is_resumed_with_the_identical_tail():
    def begun():
        network = model()
        return loader_of(network, start=0), network, sgd(network)

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
    loader = smdl.DataLoader(data, model(), 8, candidates=smdl.Observed(test_set="balanced"))
    assert [len(set(batch)) for _ in range(3) for batch in epoch_of(loader)] == [8] * 15


def test_targets_that_are_no_classes_are_refused():
    network = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 1))
    data = TensorDataset(torch.randn(40, 6), torch.randn(40, 1))
    scoring = smdl.Scoring(loss="mse")
    loader = smdl.DataLoader(data, network, 8, candidates=smdl.Observed(test_set="balanced"), scoring=scoring)
    for x, y in loader:
        F.mse_loss(network(x), y)
    with pytest.raises(ValueError, match='test_set="balanced" needs class numbers as targets'):
        next(iter(loader))


def test_a_strategy_without_scores_is_refused():
    with pytest.raises(ValueError, match='test_set="balanced" needs a strategy that scores candidates'):
        smdl.DataLoader(tail(), model(), 12, method="uniform", candidates=smdl.Observed(test_set="balanced"))
