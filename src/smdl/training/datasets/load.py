"""Load the data sets that a DataConfig describes."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch.nn import functional as F
from torch.utils.data import Dataset

from smdl.common.messages import unknown
from smdl.training.config import DataConfig
from smdl.training.datasets import formats, user_dataset
from smdl.training.datasets.augment import Augmentation
from smdl.training.datasets.catalogue import diagnosis, find
from smdl.training.datasets.dominoes import put_below
from smdl.training.datasets.folder import folder
from smdl.training.datasets.human_labels import human_labels
from smdl.training.datasets.in_memory import InMemory, add_noise, mean_and_std
from smdl.training.datasets.perfect_draws import perfect_draws
from smdl.training.datasets.problems import DamagedError, DataError
from smdl.training.datasets.subsets import generator, make_subsets, merged, stratified_subset
from smdl.training.datasets.user_dataset import labelled_subset
from smdl.training.groups import Groups

READERS = {
    "cifar10": formats.cifar10,
    "cifar100": formats.cifar100,
    "fashion-mnist": formats.fashion_mnist,
    "mnist": formats.mnist,
    "svhn": formats.svhn,
}
NAMES = ("digits", "folder", *READERS)
AUGMENTED = ("cifar10", "cifar100")  # by default
MIRRORED = ("cifar10", "cifar100", "fashion-mnist", "folder")  # digits have no mirror images


@dataclass
class Splits:
    """The parts of a data set. `shape` is the shape of one input. `validation` is None unless the config sets it."""

    train: Dataset
    test: Dataset
    validation: Dataset | None
    classes: list[str]
    shape: tuple[int, ...]
    groups: Groups
    draws: np.ndarray | None = None  # how often perfect knowledge would draw each training sample; None: all alike


def load(config: DataConfig) -> Splits:
    """Load a data set. In this order: take a subset, hold out a validation set, thin classes, replace samples by
    copies, add label noise or take labels by people, put second images below.

    Images of built-in sets and folders are resized, then copies get their noise, then all are normalised by the mean
    and deviation of each channel of the training set. Copies are exact in a data set of the user that is not InMemory.
    """
    name, built_in = config.name, ":" not in config.name
    train, test = _read(config) if built_in else user_dataset.make_datasets(config)
    labels, test_labels = user_dataset.labels_of(train, name), user_dataset.labels_of(test, name)
    classes = user_dataset.classes_of(train, (labels, test_labels), name)
    rows, targets, copies, held = make_subsets(labels, len(classes), config)
    if config.human_labels is not None:
        targets = human_labels(config, len(labels))[rows]
    test_rows = np.arange(len(test_labels))
    if config.test_size is not None:
        rng = generator(config.seed, "test subset")
        test_rows = stratified_subset(test_labels, config.test_size, rng, "data.test_size")
    groups = labels[rows], test_labels[test_rows]
    if config.hidden_imbalance > 1:
        classes = ["/".join(classes[first : first + 2]) for first in range(0, len(classes), 2)]
        labels, test_labels = merged(labels), merged(test_labels)
    parts = [labelled_subset(train, rows, targets), labelled_subset(test, test_rows, test_labels[test_rows])]
    if held is not None:
        plain = train.plain() if isinstance(train, InMemory) else train
        parts.append(labelled_subset(plain, held, labels[held]))
    in_memory = [part for part in parts if isinstance(part, InMemory)]
    for part in in_memory:
        part.classes = classes
    if built_in and config.resolution is not None:
        _resize(in_memory, config.resolution)
    if isinstance(parts[0], InMemory) and copies.any():  # its images are its own, since `rows` repeats some
        add_noise(parts[0].images, np.flatnonzero(copies), generator(config.seed, "noise of duplicates"))
    if config.dominoes:
        groups = put_below(parts, groups, config)
    if built_in:
        _prepare_images(in_memory, config)
    validation = parts[2] if held is not None else None
    grouped = Groups(test_labels[test_rows], groups[1], groups[0])
    hidden_groups = config.imbalance > 1 or config.hidden_imbalance > 1 or config.dominoes > 0
    draws = perfect_draws(rows, groups[0], targets != labels[rows], hidden_groups)
    return Splits(parts[0], parts[1], validation, classes, user_dataset.shape_of(parts[0], name), grouped, draws)


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
        raise DataError(f"{unknown('data set', config.name, NAMES)}, or package.module:factory")
    return InMemory(*source.train, classes=source.classes), InMemory(*source.test, classes=source.classes)


def _resize(parts: list[InMemory], side: int) -> None:
    for part in parts:
        if part.images.shape[2:] != (side, side):
            part.images = F.interpolate(part.images, (side, side), mode="bilinear", antialias=True)


def _prepare_images(parts: list[InMemory], config: DataConfig) -> None:
    """Normalise all parts by the first, the training set; augment the training set."""
    mean, std = mean_and_std(parts[0].images)
    for part in parts:
        part.mean, part.std = mean, std
    if config.augment if config.augment is not None else config.name in AUGMENTED:
        side = min(parts[0].images.shape[2:])
        parts[0].augmentation = Augmentation(max(1, side // 8), config.name in MIRRORED)  # 4 pixels for the 32 of CIFAR
