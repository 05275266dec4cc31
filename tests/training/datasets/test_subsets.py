"""Subsets, splits, imbalance, duplicates and label noise, for any labels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdl.training.config import DataConfig
from smdl.training.datasets.subsets import (
    PURPOSES,
    generator,
    hidden_tail,
    imbalanced_subset,
    make_subsets,
    merged,
    noisy_labels,
    stratified_split,
    stratified_subset,
    with_duplicates,
)

labels_ = st.lists(st.integers(0, 6), min_size=1, max_size=120).map(np.array)
seeds = st.integers(0, 2**32)


def rng(seed=0):
    return np.random.default_rng(seed)


@given(labels_, st.data(), seeds)
def test_a_subset_has_exactly_its_size_and_the_proportions(labels, data, seed):
    size = data.draw(st.integers(1, len(labels)))
    chosen = stratified_subset(labels, size, rng(seed))
    assert len(np.unique(chosen)) == len(chosen) == size
    assert chosen.tolist() == sorted(chosen)
    counts, kept = np.bincount(labels, minlength=7), np.bincount(labels[chosen], minlength=7)
    shares = size * counts / len(labels)
    if size >= (counts > 0).sum():
        assert (kept[counts > 0] >= 1).all()
    if not (shares[counts > 0] < 1).any():  # otherwise a class gave up a seat
        assert (np.abs(kept - shares) < 1).all()


def test_rare_classes_get_a_sample_of_the_most_frequent_class():
    labels = np.repeat([0, 1, 2], [1000, 1, 1])
    assert np.bincount(labels[stratified_subset(labels, 10, rng())]).tolist() == [8, 1, 1]


def test_with_fewer_samples_than_classes_the_largest_classes_get_them():
    labels = np.repeat([0, 1, 2], [5, 50, 45])
    assert np.unique(labels[stratified_subset(labels, 2, rng())]).tolist() == [1, 2]


def test_another_seed_gives_other_samples():
    labels = np.repeat(np.arange(10), 100)
    assert stratified_subset(labels, 100, rng(0)).tolist() == stratified_subset(labels, 100, rng(0)).tolist()
    assert stratified_subset(labels, 100, rng(0)).tolist() != stratified_subset(labels, 100, rng(1)).tolist()


@pytest.mark.parametrize("size", [0, 6])
def test_a_subset_of_more_than_all_is_refused(size):
    with pytest.raises(ValueError, match=f"data.train_size must be .* from 1 to 5, the number of samples, got {size}"):
        stratified_subset(np.zeros(5, np.int64), size, rng(), "data.train_size")


@given(labels_.filter(lambda labels: len(labels) > 1), st.floats(0.01, 0.99), seeds)
def test_a_split_contains_every_sample_once(labels, fraction, seed):
    rest, held = stratified_split(labels, fraction, rng(seed))
    assert sorted([*rest, *held]) == list(range(len(labels)))
    assert len(held) == min(max(round(fraction * len(labels)), 1), len(labels) - 1)


def test_a_split_keeps_the_proportions():
    labels = np.repeat([0, 1, 2], [60, 30, 10])
    assert np.bincount(labels[stratified_split(labels, 0.2, rng())[1]]).tolist() == [12, 6, 2]


def test_one_sample_cannot_be_split():
    with pytest.raises(ValueError, match="at least 2 samples, got 1"):
        stratified_split(np.zeros(1, np.int64), 0.5, rng())


def test_imbalance_falls_exponentially_from_all_to_one_in_factor():
    labels = np.repeat(np.arange(5), 1000)
    kept = np.bincount(labels[imbalanced_subset(labels, 16, 5, rng())])
    assert kept.tolist() == [1000, 500, 250, 125, 62]


@given(labels_, st.floats(1, 1e6), seeds)
def test_imbalance_leaves_no_class_empty_and_adds_nothing(labels, factor, seed):
    kept = imbalanced_subset(labels, factor, 7, rng(seed))
    before, after = np.bincount(labels, minlength=7), np.bincount(labels[kept], minlength=7)
    assert after[0] == before[0]
    assert ((after >= 1) == (before >= 1)).all()
    assert (after <= before).all()


@given(labels_, st.floats(0, 1), seeds)
def test_noise_changes_exactly_its_share_to_other_classes(labels, fraction, seed):
    before = labels.copy()
    changed = noisy_labels(labels, fraction, 7, rng(seed))
    assert (changed != labels).sum() == round(fraction * len(labels))
    assert ((changed >= 0) & (changed < 7)).all()
    assert (labels == before).all()


def test_noise_is_uniform_over_the_other_classes():
    counts = np.bincount(noisy_labels(np.full(9000, 3), 1.0, 10, rng()), minlength=10)
    assert counts[3] == 0
    assert np.delete(counts, 3).min() > 900  # of 1000


def test_noise_with_one_class_is_refused():
    with pytest.raises(ValueError, match="label_noise needs at least 2 classes"):
        noisy_labels(np.zeros(5, np.int64), 0.5, 1, rng())
    assert noisy_labels(np.zeros(5, np.int64), 0.0, 1, rng()).tolist() == [0] * 5


def test_every_purpose_has_its_own_random_stream():
    draws = [int(generator(0, purpose).integers(2**62)) for purpose in PURPOSES]
    assert len(set(draws)) == len(PURPOSES)
    assert [draws[4], draws[6]] == [4072450498707775888, 1900440517273845727], "the streams of published results"


def test_noise_imbalance_and_duplicates_do_not_change_the_validation_set():
    labels = np.repeat(np.arange(4), 50)
    plain = make_subsets(labels, 4, DataConfig(train_size=100, validation=0.2)).validation
    assert plain is not None
    for change in ({"imbalance": 5}, {"hidden_imbalance": 5}):
        config = DataConfig(train_size=100, validation=0.2, label_noise=0.3, duplicates=0.5, **change)
        spoiled = make_subsets(labels, 4, config)
        assert spoiled.validation is not None
        assert plain.tolist() == spoiled.validation.tolist()
        assert not set(spoiled.train) & set(spoiled.validation)


def test_steps_come_in_order():
    """Take 100 of 200, hold out 20, keep a fifth of class 3, replace half by copies, then change 30 % of the labels."""
    labels = np.repeat(np.arange(4), 50)
    config = DataConfig(train_size=100, validation=0.2, label_noise=0.3, imbalance=5, duplicates=0.5)
    train, named, copies, held = make_subsets(labels, 4, config)
    assert held is not None
    assert np.bincount(labels[held]).tolist() == [5] * 4
    assert np.bincount(labels[train]).tolist() == [20, 12, 7, 4]
    assert copies.sum() == round(0.5 * 43)
    assert len(np.unique(train)) == 43 - copies.sum()
    assert (named != labels[train]).sum() == round(0.3 * 43)


def test_the_default_config_changes_nothing():
    labels = np.array([1, 0, 1])
    train, named, copies, held = make_subsets(labels, 2, DataConfig())
    assert not copies.any()
    assert train.tolist() == [0, 1, 2]
    assert named.tolist() == [1, 0, 1]
    assert held is None


def test_a_hidden_tail_thins_the_second_of_each_pair_and_keeps_merged_classes_equal():
    labels = np.repeat(np.arange(10), 5000)
    kept = labels[hidden_tail(labels, 25, 10, rng())]
    assert np.bincount(kept).tolist() == [5000, 200] * 5
    assert np.bincount(merged(kept)).tolist() == [5200] * 5


def test_a_hidden_tail_gives_all_merged_classes_the_size_that_the_smallest_allows():
    labels = np.repeat(np.arange(5), [100, 100, 60, 100, 100])
    assert np.bincount(labels[hidden_tail(labels, 4, 5, rng())]).tolist() == [60, 15, 60, 15, 75]
    labels = np.repeat(np.arange(5), [100, 100, 60, 100, 10])
    assert np.bincount(labels[hidden_tail(labels, 4, 5, rng())]).tolist() == [8, 2, 8, 2, 10]
    labels = np.repeat(np.arange(4), [100, 5, 100, 100])
    assert np.bincount(labels[hidden_tail(labels, 4, 4, rng())]).tolist() == [22, 5, 22, 5]  # 21.6 to 5.4 of 27


@given(labels_, st.floats(1.001, 1e6), st.integers(3, 7), seeds)
def test_a_hidden_tail_has_equal_merged_classes_and_the_ratio_up_to_rounding(labels, factor, classes, seed):
    labels = labels % classes
    counts = np.bincount(labels, minlength=classes)
    if counts.min() == 0 or (classes % 2 and counts[-1] < 2):
        with pytest.raises(ValueError, match="needs training samples of every class"):
            hidden_tail(labels, factor, classes, rng(seed))
        return
    kept = hidden_tail(labels, factor, classes, rng(seed))
    after = np.bincount(labels[kept], minlength=classes)
    assert len(np.unique(kept)) == len(kept)
    assert len(set(np.bincount(merged(labels[kept])))) == 1
    size, rare = after[0] + after[1], after[1]
    assert rare == 1 or abs(rare - size / (factor + 1)) <= 0.5
    assert set(after[1::2]) == {rare}


@pytest.mark.parametrize("classes", [1, 2])
def test_a_hidden_tail_needs_two_merged_classes(classes):
    with pytest.raises(ValueError, match=f"hidden_imbalance needs at least 3 classes, .* got {classes}"):
        hidden_tail(np.arange(classes), 5, classes, rng())


def test_a_hidden_tail_without_samples_of_a_class_is_refused():
    with pytest.raises(ValueError, match=r"needs training samples of every class, .* class 2 has 0"):
        hidden_tail(np.array([0, 0, 1, 1, 3, 3]), 5, 4, rng())


def test_labels_of_a_hidden_tail_are_merged_and_noise_stays_among_them():
    labels = np.repeat(np.arange(5), 60)
    clean = make_subsets(labels, 5, DataConfig(hidden_imbalance=5))
    assert clean.targets.tolist() == (labels[clean.train] // 2).tolist()
    noisy = make_subsets(labels, 5, DataConfig(hidden_imbalance=5, label_noise=0.9))
    assert noisy.train.tolist() == clean.train.tolist()
    assert set(noisy.targets) == {0, 1, 2}
    assert (noisy.targets != clean.targets).sum() == round(0.9 * len(clean.train))


@given(labels_, st.floats(0, 0.999), seeds)
def test_duplicates_replace_exactly_their_share_within_each_class(labels, fraction, seed):
    number = round(fraction * len(labels))
    if number and len(labels) - number < len(np.unique(labels)):
        with pytest.raises(ValueError, match=r"data\.duplicates must leave at least one sample per class, got"):
            with_duplicates(labels, fraction, rng(seed))
        return
    rows, copies = with_duplicates(labels, fraction, rng(seed))
    assert copies.sum() == number
    assert labels[rows].tolist() == labels.tolist(), "the same class at every place"
    assert rows[~copies].tolist() == np.flatnonzero(~copies).tolist(), "the others stay"
    assert set(rows[copies]) <= set(rows[~copies])


def test_copies_are_spread_evenly_over_the_samples_that_stay():
    rows, copies = with_duplicates(np.repeat([0, 1], [6000, 4000]), 0.9, rng())
    times = np.bincount(rows, minlength=len(rows))[~copies]
    assert times.mean() == 10
    assert 8 < times.var() < 10  # 9 in a binomial distribution; equal shares would have 0
