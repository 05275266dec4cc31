"""Dominoes, Zipf's copies, labels by people, and combined regimes."""

import numpy as np
import pytest
import torch

from smdl.experiments.regimes import data_options
from smdl.training.config import DataConfig
from smdl.training.datasets.dominoes import partners
from smdl.training.datasets.human_labels import human_labels
from smdl.training.datasets.load import load
from smdl.training.datasets.problems import DataError
from smdl.training.datasets.subsets import with_duplicates


def test_the_image_below_tells_the_class_in_training_only():
    plain, found = load(DataConfig()), load(DataConfig(dominoes=0.9))
    for part, whole in ((found.train, plain.train), (found.test, plain.test)):
        assert tuple(part.images.shape[1:]) == (1, 16, 8)  # type: ignore[attr-defined]
        assert torch.equal(part.images[:, :, :8], whole.images)  # type: ignore[attr-defined]
        assert torch.equal(part.labels, whole.labels)  # type: ignore[attr-defined]
    groups = found.groups
    assert abs((groups.train_groups % 2 == 0).mean() - 0.9) < 0.001
    assert abs((groups.groups % 2 == 0).mean() - 0.1) < 0.01
    assert (groups.train_groups // 2 == plain.groups.train_groups).all()
    errors = groups.errors(groups.groups % 2 == 1)
    assert errors["test_rare_error"] == 1, "the rare groups are those with an image of another class below"
    assert found.draws is not None
    shares = np.bincount(groups.train_groups, weights=found.draws)
    assert np.allclose(shares, shares[0]), "the oracle draws both groups of a class equally often"


def test_partners_are_of_the_wanted_class():
    classes = np.arange(300) % 3
    below = partners(classes, 0.8, np.random.default_rng(0))
    assert (classes[below] == classes).sum() == 240
    with pytest.raises(DataError, match="two classes"):
        partners(np.zeros(5, int), 0.8, np.random.default_rng(0))


def test_a_few_samples_have_most_of_zipfs_copies():
    labels = np.arange(2000) % 2
    even, _ = with_duplicates(labels, 0.9, np.random.default_rng(0))
    rows, copies = with_duplicates(labels, 0.9, np.random.default_rng(0), "zipf_duplicates")
    assert copies.sum() == 1800
    assert (labels[rows] == labels).all()
    assert np.bincount(rows).max() > 5 * np.bincount(even).max()
    draws = load(DataConfig(zipf_duplicates=0.9)).draws
    assert draws is not None
    assert draws.min() < 0.05


def test_labels_by_people(tmp_path):
    labels = np.arange(50) % 10
    np.savez(tmp_path / "cifar-10n.npz", worse_label=labels)
    config = DataConfig("cifar10", root=str(tmp_path), human_labels="worse_label")
    assert human_labels(config, 50).tolist() == labels.tolist()
    with pytest.raises(DataError, match="must hold 60 class numbers"):
        human_labels(config, 60)
    with pytest.raises(DataError, match="no array aggre_label"):
        human_labels(DataConfig("cifar10", root=str(tmp_path), human_labels="aggre_label"), 50)
    with pytest.raises(DataError, match="was looked for in"):
        human_labels(DataConfig("cifar10", root=str(tmp_path / "none"), human_labels="worse_label"), 50)
    with pytest.raises(ValueError, match=r"exist for data\.name cifar10"):
        DataConfig("svhn", human_labels="worse_label")
    with pytest.raises(ValueError, match="human_labels"):
        DataConfig("cifar10", human_labels="worst")


def test_regimes_are_combined():
    both = data_options("long-tail=50+noisy")
    assert (both["imbalance"], both["label_noise"]) == (50.0, 0.2)
    assert data_options("human=worse_label")["human_labels"] == "worse_label"
    with pytest.raises(ValueError, match="twice"):
        data_options("noisy+noisy=0.4")
    with pytest.raises(ValueError, match="cannot be combined"):
        DataConfig(duplicates=0.5, zipf_duplicates=0.5)
