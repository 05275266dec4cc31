"""Load data sets from a config."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import chisquare

from smdl.training.config import DataConfig
from smdl.training.datasets.augment import Augmentation
from smdl.training.datasets.in_memory import InMemory, add_noise
from smdl.training.datasets.load import load
from smdl.training.datasets.problems import DataError
from tests.training.datasets import made


def parts(splits) -> list[Any]:
    found = [part for part in (splits.train, splits.test, splits.validation) if part is not None]
    assert all(isinstance(part, InMemory) for part in found)
    return found


def test_digits_need_no_download():
    splits = load(DataConfig())
    assert (len(splits.train), len(splits.test), splits.validation) == (1197, 600, None)
    assert splits.shape == (1, 8, 8)
    assert splits.classes == [str(digit) for digit in range(10)]


@pytest.mark.parametrize(
    ("name", "make", "sizes", "shape", "classes"),
    [
        ("cifar10", made.cifar10, (100, 20), (3, 32, 32), 10),
        ("cifar100", made.cifar100, (200, 200), (3, 32, 32), 100),
        ("svhn", made.svhn, (20, 20), (3, 32, 32), 10),
        ("fashion-mnist", made.fashion_mnist, (20, 20), (1, 28, 28), 10),
        ("mnist", made.fashion_mnist, (20, 20), (1, 28, 28), 10),
    ],
)
def test_each_known_set_is_read_from_its_folder(tmp_path, name, make, sizes, shape, classes):
    make(tmp_path)
    splits = load(DataConfig(name=name, root=str(tmp_path)))
    assert (len(splits.train), len(splits.test)) == sizes
    assert splits.shape == shape
    assert len(splits.classes) == classes
    train, test = parts(splits)
    assert train.augmentation == (Augmentation(4, flip=True) if name.startswith("cifar") else None)
    assert test.augmentation is None


def test_all_parts_are_normalised_by_the_training_images(tmp_path):
    made.cifar10(tmp_path)
    splits = load(DataConfig(name="cifar10", root=str(tmp_path), validation=0.2))
    train, test, validation = parts(splits)
    inputs, _ = train.plain().__getitems__(range(len(train)))
    assert torch.allclose(inputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)
    for other in (test, validation):
        assert torch.equal(other.mean, train.mean)
        assert torch.equal(other.std, train.std)
        assert other.augmentation is None
    assert not torch.allclose(test.__getitems__(range(20))[0].mean((0, 2, 3)), torch.zeros(3), atol=1e-4)


def test_sizes_splits_and_noise_follow_the_config():
    config = DataConfig(train_size=500, test_size=100, validation=0.1, label_noise=0.2)
    train, test, validation = parts(load(config))
    clean, _, _ = parts(load(DataConfig(train_size=500, test_size=100, validation=0.1)))
    assert (len(train), len(test), len(validation)) == (450, 100, 50)
    assert torch.equal(train.images, clean.images)
    assert int((train.labels != clean.labels).sum()) == 90
    assert int(validation.labels.bincount().min()) >= 4


def test_the_same_seed_gives_the_same_data_and_another_does_not():
    config = {"train_size": 100, "test_size": 50, "label_noise": 0.5}
    one, same, other = (load(DataConfig(**config, seed=seed)) for seed in (1, 1, 2))
    for a, b, c in zip(parts(one), parts(same), parts(other), strict=True):
        assert torch.equal(a.images, b.images)
        assert torch.equal(a.labels, b.labels)
        assert not torch.equal(a.images, c.images)


def test_imbalance_thins_the_training_set_alone():
    train, test = parts(load(DataConfig(imbalance=10)))
    counts = train.labels.bincount()
    assert counts[0] == 119
    assert counts[9] == 12
    assert len(test) == 600


def test_a_hidden_tail_is_trained_and_evaluated_on_merged_classes():
    plain, hidden = load(DataConfig(validation=0.2)), load(DataConfig(validation=0.2, hidden_imbalance=25))
    assert hidden.classes == ["0/1", "2/3", "4/5", "6/7", "8/9"]
    (train, test, validation), (_, test_before, validation_before) = parts(hidden), parts(plain)
    assert len(set(train.labels.bincount().tolist())) == 1
    assert train.classes == hidden.classes
    for merged, before in ((test, test_before), (validation, validation_before)):
        assert torch.equal(merged.images, before.images), "nothing is thinned"
        assert torch.equal(merged.labels, before.labels // 2)


def near(copy: torch.Tensor, originals: torch.Tensor) -> int:
    """Return how many originals differ from the copy by at most 8 in every pixel."""
    return int(((originals.int() - copy.int()).abs().flatten(1).amax(dim=1) <= 8).sum())


def test_duplicates_are_near_copies_of_samples_that_stay():
    (plain, _), (train, _) = parts(load(DataConfig())), parts(load(DataConfig(duplicates=0.9)))
    assert torch.equal(train.labels, plain.labels), "class sizes and order stay"
    stays = (train.images == plain.images).flatten(1).all(dim=1)
    assert int((~stays).sum()) == round(0.9 * 1197)
    kept = train.images[stays]
    copies = train.images[~stays]
    assert all(near(copy, kept) >= 1 for copy in copies)
    difference = torch.stack([(copy.int() - kept.int()).flatten(1).abs().sum(1).min() for copy in copies])
    assert int(difference.min()) > 0, "no copy is exact"
    assert len(torch.unique(copies, dim=0)) == len(copies), "each copy has noise of its own"


def test_duplicates_get_their_noise_after_resizing_and_the_mean_includes_them(tmp_path):
    made.cifar10(tmp_path)
    config = {"name": "cifar10", "root": str(tmp_path), "resolution": 4, "augment": False}
    (plain, _), (train, _) = (parts(load(DataConfig(**config, duplicates=share))) for share in (0.0, 0.8))
    stays = (train.images == plain.images).flatten(1).all(dim=1)
    assert int((~stays).sum()) == 80
    difference = torch.stack(
        [(copy.int() - train.images[stays].int()).flatten(1).abs().amax(1).min() for copy in train.images[~stays]]
    )
    assert int(difference.max()) == 8, "averaging would have made the noise smaller"
    inputs, _ = train.__getitems__(range(len(train)))
    assert torch.allclose(inputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-4)


def test_copies_may_get_different_wrong_labels():
    (clean, _), (noisy, _) = (parts(load(DataConfig(duplicates=0.9, label_noise=share))) for share in (0.0, 0.3))
    assert torch.equal(clean.images, noisy.images)
    assert int((clean.labels != noisy.labels).sum()) == round(0.3 * 1197)


def test_noise_of_bytes_is_uniform_from_minus_8_to_8_and_stays_in_range():
    images = torch.tensor([100, 2, 253], dtype=torch.uint8).repeat(4, 5000)
    add_noise(images, np.array([1, 3]), np.random.default_rng(0))
    assert torch.equal(images[0], images[2])
    for column, low, high in ((0, 92, 108), (1, 0, 10), (2, 245, 255)):
        values = images[1::2, column::3].flatten().long()
        assert (int(values.min()), int(values.max())) == (low, high)
    assert chisquare((images[1::2, ::3].flatten().long() - 92).bincount().numpy()).pvalue > 1e-3


def test_noise_of_float_vectors_is_one_percent_of_each_columns_deviation():
    values = torch.randn(2000, 2) * torch.tensor([1.0, 100.0])
    changed = values.clone()
    add_noise(changed, np.arange(1000), np.random.default_rng(0))
    assert torch.equal(changed[1000:], values[1000:])
    noise = (changed - values)[:1000].std(dim=0) / values.std(dim=0)
    assert torch.allclose(noise, torch.full((2,), 0.01), rtol=0.1)


def test_resolution_averages_and_scales_the_padding(tmp_path):
    made.cifar10(tmp_path)
    full, _ = parts(load(DataConfig(name="cifar10", root=str(tmp_path))))
    train, test = parts(load(DataConfig(name="cifar10", root=str(tmp_path), resolution=16)))
    assert train.images.shape == (100, 3, 16, 16)
    assert test.images.shape == (20, 3, 16, 16)
    assert train.images.dtype == torch.uint8
    assert train.augmentation == Augmentation(2, flip=True)
    assert abs(float(train.images.float().mean() - full.images.float().mean())) < 1
    assert float(train.images.float().std()) < 0.6 * float(full.images.float().std())  # noise, averaged


@pytest.mark.parametrize(
    ("name", "make", "expected"),
    [
        ("digits", None, Augmentation(1)),
        ("svhn", made.svhn, Augmentation(4)),
        ("fashion-mnist", made.fashion_mnist, Augmentation(3, flip=True)),
        ("cifar10", made.cifar10, Augmentation(4, flip=True)),
    ],
)
def test_augmentation_follows_the_config_and_digits_are_never_mirrored(tmp_path, name, make, expected):
    if make:
        make(tmp_path)
    config = {"name": name, "root": str(tmp_path)}
    assert parts(load(DataConfig(**config, augment=True)))[0].augmentation == expected
    assert parts(load(DataConfig(**config, augment=False)))[0].augmentation is None


def test_a_folder_of_images_is_loaded(tmp_path):
    for number in range(20):
        path = tmp_path / ("ant" if number % 2 else "bee") / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        Image.new("RGB", (12, 10 + number % 3), (number, 0, 0)).save(path)
    splits = load(DataConfig(name="folder", root=str(tmp_path), resolution=8, augment=True))
    assert splits.shape == (3, 8, 8)
    assert splits.classes == ["ant", "bee"]
    assert (len(splits.train), len(splits.test)) == (16, 4)
    assert parts(splits)[0].augmentation == Augmentation(1, flip=True)
    with pytest.raises(DataError, match=r"data\.root must name the folder of the images"):
        load(DataConfig(name="folder"))


def test_a_damaged_file_is_reported_with_its_checksum_and_a_remedy(tmp_path):
    made.cifar10(tmp_path)
    (tmp_path / "data_batch_5").write_bytes(b"cut")
    with pytest.raises(DataError, match=r"data_batch_5 is damaged: .*published: sha256:d918") as caught:
        load(DataConfig(name="cifar10", root=str(tmp_path)))
    assert "run `smdl data get cifar10`" in str(caught.value)


def test_a_missing_set_says_how_to_get_it():
    with pytest.raises(DataError, match="smdl data get cifar100"):
        load(DataConfig(name="cifar100"))


def test_an_unknown_name_suggests_similar_names_and_a_factory():
    with pytest.raises(DataError, match=r"did you mean 'cifar10'\? .*, or package\.module:factory"):
        load(DataConfig(name="cifar-10"))


@pytest.mark.parametrize("option", ["train_size", "test_size"])
def test_a_size_above_the_number_of_samples_is_refused(option):
    with pytest.raises(ValueError, match=f"data.{option} must be .* the number of samples, got 5000"):
        load(DataConfig(**{option: 5000}))
