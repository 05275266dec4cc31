"""Decks, weighted batches, and progressive balancing: how often a sample comes in an epoch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import TensorDataset

import smdl
from smdl.loading.strategies.deck import Deck
from smdl.loading.strategies.progressive import Progressive
from smdl.loading.strategies.weighted import Weighted
from tests.toys import Net, Tuples


@given(st.lists(st.integers(0, 20), min_size=1, max_size=40).filter(any), st.integers(0, 2**31))
def test_in_a_deck_a_sample_comes_as_often_as_its_share_says(weights, seed):
    shares = np.array(weights) / sum(weights)
    deck = Deck()
    deck.shuffle(shares, np.random.default_rng(seed))
    drawn = deck.draw(1000)
    assert len(drawn) == len(weights)
    assert deck.empty
    counts, expected = np.bincount(drawn, minlength=len(weights)), len(weights) * shares
    assert (np.abs(counts - expected) < 1 + 1e-9).all()


def drawn_in_an_epoch(loader: smdl.DataLoader) -> np.ndarray:
    return np.concatenate([loader.selection.indices for _ in loader])  # type: ignore[union-attr]


def test_equal_weights_are_plain_passes_and_zeros_never_come():
    data = Tuples(30)
    even = smdl.DataLoader(data, Net(), 4, method="weighted", seed=1)
    assert sorted(drawn_in_an_epoch(even)) == list(range(30))
    first, second = (drawn_in_an_epoch(even) for _ in range(2))
    assert sorted(second) == list(range(30))
    assert first.tolist() != second.tolist()
    weights = np.arange(30) % 3
    loader = smdl.DataLoader(data, Net(), 4, method="weighted", options={"weights": weights}, seed=1)
    assert np.bincount(drawn_in_an_epoch(loader), minlength=30).tolist() == weights.tolist()


def test_weights_of_another_length_and_bad_ones_are_refused():
    with pytest.raises(ValueError, match="per sample of the dataset, 30, got 7"):
        smdl.DataLoader(Tuples(30), Net(), 4, method="weighted", options={"weights": np.ones(7)})
    for bad in ([-1.0, 1.0], [0.0, 0.0], [np.nan, 1.0], [[1.0], [1.0]]):
        with pytest.raises(ValueError, match="≥ 0 per sample"):
            Weighted(bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weights must be one number ≥ 0 per sample, not all of them 0, got 'abc'"):
        Weighted("abc")  # type: ignore[arg-type]


def test_a_state_with_other_weights_is_refused():
    one, other = (
        smdl.DataLoader(Tuples(3), Net(), 1, method="weighted", options={"weights": weights})
        for weights in ([1, 2, 3], [3, 2, 1])
    )
    one.load_state_dict(one.state_dict())
    with pytest.raises(ValueError, match="belongs to a loader with strategy Weighted by weights"):
        other.load_state_dict(one.state_dict())


def test_progressive_starts_uniform_and_ends_balanced():
    labels = np.repeat([0, 1, 2], [70, 20, 10])
    strategy = Progressive()
    strategy.prepare(100, 5)
    strategy.set_labels(labels)
    rng, counts = np.random.default_rng(0), []
    for epoch in range(6):
        strategy.begin_epoch(epoch)
        drawn = np.concatenate([strategy.select(None, np.arange(100), 25, rng).indices for _ in range(4)])
        counts.append(np.bincount(labels[drawn], minlength=3))
    assert counts[0].tolist() == [70, 20, 10]
    assert np.abs(counts[2] - (np.array([70, 20, 10]) + 100 / 3) / 2).max() <= 6
    for last in counts[4:]:  # a longer run stays balanced
        assert np.abs(last - 100 / 3).max() <= 6


def test_progressive_follows_the_epoch_of_the_loader():
    data = TensorDataset(torch.randn(103, 6), torch.repeat_interleave(torch.arange(3), torch.tensor([73, 20, 10])))
    loader, skipping = (
        smdl.DataLoader(data, torch.nn.Linear(6, 3), 25, method="progressive", epochs=3, drop_last=True) for _ in "ab"
    )
    epochs = [drawn_in_an_epoch(loader) for _ in range(3)]
    skipping.set_epoch(2)
    assert drawn_in_an_epoch(skipping).tolist() == epochs[2].tolist()
    assert np.bincount(np.repeat([0, 1, 2], [73, 20, 10])[epochs[2]]).min() > 25


def test_a_plan_of_progressive_batches_is_resumed():
    loader, other = (
        smdl.DataLoader(
            Tuples(30),
            Net(),
            4,
            method="progressive",
            candidates=smdl.Full(every=2, replacement=True),
            epochs=3,
        )
        for _ in "ab"
    )
    drawn_in_an_epoch(loader)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    other.load_state_dict(loader.state_dict())
    rest = [loader.selection.indices.tolist() for _ in batches]  # type: ignore[union-attr]
    assert [other.selection.indices.tolist() for _ in other] == rest  # type: ignore[union-attr]


def test_progressive_needs_the_length_of_the_run():
    with pytest.raises(ValueError, match="needs epochs="):
        smdl.DataLoader(Tuples(30), Net(), 4, method="progressive")
