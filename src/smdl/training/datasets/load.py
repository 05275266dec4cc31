"""From a DataConfig to data sets that are ready to train on."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch.nn import functional as F
from torch.utils.data import Dataset

from smdl.errors import unknown
from smdl.training.config import DataConfig
from smdl.training.datasets import formats, user_dataset
from smdl.training.datasets.augment import Augmentation
from smdl.training.datasets.catalogue import diagnosis, find
from smdl.training.datasets.errors import DamagedError, DataError
from smdl.training.datasets.folder import folder
from smdl.training.datasets.in_memory import InMemory, moments
from smdl.training.datasets.subsets import arrange, generator, subset

READERS = {
    "cifar10": formats.cifar10,
    "cifar100": formats.cifar100,
    "fashion-mnist": formats.fashion_mnist,
    "svhn": formats.svhn,
}
NAMES = ("digits", "folder", *READERS)
AUGMENTED = ("cifar10", "cifar100")  # unless the config says otherwise
MIRRORED = ("cifar10", "cifar100", "fashion-mnist", "folder")  # a mirrored digit is none


@dataclass
class Splits:
    """The parts of a data set: `shape` is that of one input, `validation` None unless asked for."""

    train: Dataset
    test: Dataset
    validation: Dataset | None
    classes: list[str]
    shape: tuple[int, ...]


def load(config: DataConfig) -> Splits:
    """The data set of a config: a subset, less the validation set, made imbalanced, then mislabelled, as it says.

    Built-in sets and folders are normalised by the mean and deviation of the training images, channel by channel.
    """
    name, built_in = config.name, ":" not in config.name
    train, test = _read(config) if built_in else user_dataset.make(config)
    labels, test_labels = user_dataset.labels_of(train, name), user_dataset.labels_of(test, name)
    classes = user_dataset.classes_of(train, (labels, test_labels), name)
    chosen, named, held = arrange(labels, len(classes), config)
    tested = np.arange(len(test_labels))
    if config.test_size is not None:
        tested = subset(test_labels, config.test_size, generator(config.seed, "test subset"), "data.test_size")
    parts = [user_dataset.take(train, chosen, named), user_dataset.take(test, tested, test_labels[tested])]
    if held is not None:
        parts.append(user_dataset.take(train.plain() if isinstance(train, InMemory) else train, held, labels[held]))
    if built_in:
        _finish([part for part in parts if isinstance(part, InMemory)], config)
    return Splits(
        parts[0], parts[1], parts[2] if held is not None else None, classes, user_dataset.shape_of(parts[0], name)
    )


def _read(config: DataConfig) -> tuple[InMemory, InMemory]:
    if config.name == "digits":
        source = formats.digits()
    elif config.name == "folder":
        if config.root is None:
            raise DataError("data.root must name the folder of the images, got None")
        source = folder(Path(config.root).expanduser(), config.resolution, config.seed)
    elif config.name in READERS:
        place = find(config.name, config.root)
        try:
            source = READERS[config.name](place)
        except DamagedError as error:
            raise diagnosis(config.name, error) from error
    else:
        raise DataError(f"{unknown('data set', config.name, NAMES)}, or package.module:factory of your own")
    return InMemory(*source.train, classes=source.classes), InMemory(*source.test, classes=source.classes)


def _finish(parts: list[InMemory], config: DataConfig) -> None:
    """Resize all of them, normalise them by the first, and augment the first: the training set."""
    for part in parts:
        if config.resolution is not None and part.images.shape[2:] != (config.resolution,) * 2:
            part.images = F.interpolate(part.images, (config.resolution,) * 2, mode="bilinear", antialias=True)
    mean, std = moments(parts[0].images)
    for part in parts:
        part.mean, part.std = mean, std
    if config.augment if config.augment is not None else config.name in AUGMENTED:
        side = min(parts[0].images.shape[2:])
        parts[0].augmentation = Augmentation(max(1, side // 8), config.name in MIRRORED)  # 4 of CIFAR's 32 pixels
