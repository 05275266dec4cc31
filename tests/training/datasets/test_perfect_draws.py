"""What perfect knowledge draws: groups equally, no wrong labels, one copy of each image."""

import numpy as np

from smdl.experiments.arms import with_overrides
from smdl.training.config import DataConfig
from smdl.training.datasets.load import load
from smdl.training.datasets.perfect_draws import perfect_draws
from smdl.training.loop import TrainingRun
from tests.experiments.base import BASE


def shares(weights: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    found = np.bincount(kinds, weights=weights)
    return found / found.sum()


def test_copies_groups_and_wrong_labels_together():
    """Group 0: image 0 with three copies, one of them mislabelled, and image 1. Group 1: image 2."""
    images, groups = np.array([0, 0, 0, 1, 2]), np.array([0, 0, 0, 0, 1])
    weights = perfect_draws(images, groups, np.array([False, True, False, False, False]), hidden_groups=True)
    assert weights is not None
    assert (weights / weights.sum()).tolist() == [0.125, 0, 0.125, 0.25, 0.5]
    plain = perfect_draws(images, groups, np.zeros(5, bool), hidden_groups=False)
    assert plain is not None
    assert np.allclose(shares(plain, images), 1 / 3)


def test_nothing_hidden_draws_all_alike():
    assert perfect_draws(np.arange(4), np.zeros(4, int), np.zeros(4, bool), hidden_groups=False) is None
    assert load(DataConfig()).draws is None


def test_each_regime_is_drawn_by_what_it_hides():
    for option in ({"imbalance": 20.0}, {"hidden_imbalance": 25.0}):
        splits = load(DataConfig(**option))
        assert splits.draws is not None
        assert np.allclose(shares(splits.draws, splits.groups.train_groups), 0.1)
    clean, noisy = load(DataConfig()), load(DataConfig(label_noise=0.2))
    wrong = clean.train.labels.numpy() != noisy.train.labels.numpy()  # type: ignore[attr-defined]
    assert noisy.draws is not None
    assert ((noisy.draws == 0) == wrong).all()
    copied = load(DataConfig(duplicates=0.9)).draws
    assert copied is not None
    assert copied.min() < 1 / 10 < copied.max()


def test_a_run_of_the_oracle_never_trains_on_a_wrong_label():
    run = TrainingRun(with_overrides(BASE, {"method": "oracle", "data": {"label_noise": 0.5}}))
    for _ in run.steps():
        pass
    assert run.splits.draws is not None
    assert int(run.counts.sum()) == 80
    assert not run.counts.numpy()[run.splits.draws == 0].any()
