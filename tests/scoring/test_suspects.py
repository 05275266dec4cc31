"""Suspects: the votes of the nearest neighbours, against plain loops."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from smdl.scoring import suspects
from smdl.scoring.feature_cache import FeatureCache
from smdl.scoring.scorer import NotFiniteError, Scorer
from smdl.scoring.suspects import Votes, neighbour_votes
from tests.toys import Net


def bounds(features: list, labels: list, reference: list, row: int) -> tuple[tuple[int, int], tuple[int, int], int]:
    """The least and the most votes for the row's own label and for the most frequent other one, and the number of
    votes: plain loops. Which of several equally near neighbours vote is left open."""
    others = [one for one in reference if one != row]
    count = min(suspects.NEIGHBOURS, len(reference) - 1)
    near = {one: cosine(features[row], features[one]) for one in others}
    last = sorted(near.values(), reverse=True)[count - 1]
    sure = [labels[one] for one in others if near[one] > last + 2e-3]
    tied = [labels[one] for one in others if abs(near[one] - last) <= 2e-3]
    seats, low, high = count - len(sure), {}, {}
    for label in {*labels}:
        low[label] = sure.count(label) + max(0, seats - (len(tied) - tied.count(label)))
        high[label] = sure.count(label) + min(seats, tied.count(label))
    own = low.pop(labels[row]), high.pop(labels[row])
    if not any(features[row]) or sum(labels[one] == labels[row] for one in others) < suspects.SUPPORT * count:
        own = count, count
    return own, (max(low.values(), default=0), max(high.values(), default=0)), count


def cosine(one: list, other: list) -> float:
    lengths = math.sqrt(sum(x * x for x in one) * sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0


def check(features: list, labels: list, seed: int) -> Votes:
    votes = neighbour_votes(torch.tensor(features), torch.tensor(labels), np.random.default_rng(seed))
    reference = np.random.default_rng(seed).permutation(len(labels))[: suspects.REFERENCE].tolist()
    assert votes.own.shape == votes.other.shape == (len(labels),)
    for row, (own, other) in enumerate(zip(votes.own, votes.other, strict=True)):
        own_bounds, other_bounds, count = bounds(features, labels, reference, row)
        assert own_bounds[0] <= round(own * count, 9) <= own_bounds[1]
        assert other_bounds[0] <= round(other * count, 9) <= other_bounds[1]
    return votes


@st.composite
def grids(draw) -> tuple[list, list]:
    n = draw(st.integers(2, 40))
    coordinate = st.integers(-2, 2).map(float)
    features = draw(st.lists(st.lists(coordinate, min_size=2, max_size=2), min_size=n, max_size=n))
    return features, draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))


@given(grids(), st.integers(0, 5), st.sampled_from([3, 20]), st.sampled_from([7, 10_000]), st.sampled_from([5, 1024]))
def test_votes_are_those_of_the_plain_loops(grid, seed, neighbours, reference, block):
    """Grids are full of ties and zero vectors; a small reference lacks some classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspects, "NEIGHBOURS", neighbours)
        patch.setattr(suspects, "REFERENCE", reference)
        patch.setattr(suspects, "BLOCK", block)
        features, labels = grid
        check(features, labels, seed)


@pytest.mark.parametrize("reference", [60, 10_000])
def test_without_ties_votes_are_exact(monkeypatch, reference):
    monkeypatch.setattr(suspects, "REFERENCE", reference)
    angles = np.random.default_rng(0).permutation(150) * (2 * math.pi / 151.3)  # 2.4 degrees apart
    labels = (angles // 1.1).astype(int)
    features = np.stack([np.cos(angles), np.sin(angles)], 1) * np.linspace(0.1, 9, 150)[:, None]
    votes = check(features.tolist(), labels.tolist(), 1)
    assert len(set(votes.own)) > 5


def test_one_sample_has_no_neighbours_and_two_have_one():
    one = neighbour_votes(torch.ones(1, 3), torch.tensor([4]), np.random.default_rng(0))
    assert (one.own.tolist(), one.other.tolist(), one.contradicted) == ([1.0], [0.0], 0.0)
    none = neighbour_votes(torch.ones(0, 3), torch.zeros(0, dtype=torch.int64), np.random.default_rng(0))
    assert len(none.own) == none.contradicted == 0
    agree = neighbour_votes(torch.eye(2), torch.tensor([4, 4]), np.random.default_rng(0))
    assert (agree.own.tolist(), agree.other.tolist()) == ([1.0, 1.0], [0.0, 0.0])
    differ = neighbour_votes(torch.eye(2), torch.tensor([4, 0]), np.random.default_rng(0))
    assert differ.other.tolist() == [1.0, 1.0]
    assert not differ.suspect.any(), "no other sample has the label: nothing can be said"


def test_a_label_that_nothing_could_support_is_not_suspect():
    """All in one place. Two other samples of the class are needed: one is 5 % of the votes."""
    labels = torch.tensor([0] * 60 + [1] * 2 + [2])
    votes = neighbour_votes(torch.ones(63, 2), labels, np.random.default_rng(0))
    assert votes.own[60:].tolist() == [1.0, 1.0, 1.0]
    labels[62] = 1
    angles = torch.linspace(0, 1, 63)
    angles[60:] = torch.tensor([0.1, 0.5, 0.9])  # apart, within class 0
    features = torch.stack([angles.cos(), angles.sin()], dim=1)
    votes = neighbour_votes(features, labels, np.random.default_rng(0))
    assert votes.suspect.nonzero()[0].tolist() == [60, 61, 62]


def test_a_sample_without_features_is_not_suspect():
    features = torch.ones(100, 2)
    features[7] = 0
    labels = torch.zeros(100, dtype=torch.int64)
    labels[7:10] = 1
    votes = neighbour_votes(features, labels, np.random.default_rng(0))
    assert votes.own[7] == 1
    assert votes.suspect[8:10].all()


def test_equally_near_neighbours_vote_whatever_the_order_of_the_dataset():
    """Data sets are often sorted by class. Here every sample is at the same place."""
    labels = torch.arange(400) // 100
    votes = neighbour_votes(torch.ones(400, 3), labels, np.random.default_rng(0))
    assert not votes.suspect.any()
    assert votes.other.max() < 0.6


@pytest.mark.parametrize("width", [3, 64, 2048])
def test_similarities_are_exact_so_that_threads_cannot_change_them(width):
    rows = suspects._directions(torch.randn(300, width, generator=torch.Generator().manual_seed(0)))
    assert torch.equal((rows @ rows.T).double(), rows.double() @ rows.double().T)
    assert bool((rows.norm(dim=1) / 2048 - 1).abs().max() < 0.01)


def test_votes_need_no_memory_per_class():
    """One entry per neighbour and class would be 160 GB here."""
    labels = torch.tensor([0, 10**6] * 500)
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0]] * 500)
    assert (neighbour_votes(features, labels, np.random.default_rng(0)).own == 1).all()


def test_a_float16_matrix_gives_the_votes_of_its_float32_copy():
    features = 6e4 * torch.rand(200, 5, generator=torch.Generator().manual_seed(0)).half()  # their squares overflow
    labels = torch.arange(200) % 3
    one, other = (neighbour_votes(each, labels, np.random.default_rng(0)) for each in (features, features.float()))
    assert (one.own == other.own).all()
    assert len(set(one.own)) > 3


@pytest.mark.parametrize(
    ("own", "other", "suspect", "contradicted"),
    [(0.05, 0.6, True, 1.0), (0.05, 0.55, True, 0.0), (0.1, 0.9, False, 0.0), (2 / 20, 12 / 20, False, 0.0)],
)
def test_a_label_is_suspect_below_a_tenth_and_contradicted_from_three_fifths(own, other, suspect, contradicted):
    votes = Votes(np.array([own]), np.array([other]))
    assert votes.suspect.tolist() == [suspect]
    assert votes.contradicted == contradicted


@pytest.mark.parametrize(("wrong", "noisy"), [(0, False), (7, False), (8, True)])
def test_labels_are_noisy_above_seven_per_cent(wrong, noisy):
    own = np.where(np.arange(100) < wrong, 0.0, 1.0)
    assert Votes(own, 1 - own).noisy == noisy


def test_features_of_a_diverged_model_are_an_error():
    cache, scorer, found = FeatureCache(30, "float16", "cpu", None), Scorer(Net()), torch.ones(30, dtype=torch.bool)
    features, labels = torch.ones(30, 6), torch.zeros(30, dtype=torch.int64)
    features[3, 2] = math.nan
    cache.write(scorer, np.arange(30), found, features, torch.zeros(30, 3), labels)
    with pytest.raises(NotFiniteError, match="features must be finite: has training diverged"):
        cache.votes(scorer, np.random.default_rng(0))
