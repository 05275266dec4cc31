"""Subset, split, imbalance, duplicates and label noise. All of them depend on the labels only.

Every purpose has its own random stream, so label noise does not change which samples are in the subset.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from smdl.common.messages import choice
from smdl.training.config import DataConfig

#: A new purpose goes to the end: its place is part of the seed.
PURPOSES = (
    "train subset", "test subset", "validation", "imbalance", "label noise", "folder", "digits",
    "hidden imbalance", "duplicates", "noise of duplicates", "zipf", "dominoes", "dominoes of the test set",
)  # fmt: skip


def generator(seed: int, purpose: str) -> Generator:
    """Return the random generator of one purpose."""
    return np.random.default_rng([seed, PURPOSES.index(purpose)])


class Subsets(NamedTuple):
    """Parts of a training set, as rows of it. A row that is in `train` several times has copies there."""

    train: np.ndarray
    targets: np.ndarray  # labels of `train`
    copies: np.ndarray  # which of `train` are copies
    validation: np.ndarray | None


def make_subsets(labels: np.ndarray, classes: int, config: DataConfig) -> Subsets:
    """Return the training and the validation samples of a training set with these labels."""
    train, validation, rng = np.arange(len(labels)), None, partial(generator, config.seed)
    if config.train_size is not None:
        train = stratified_subset(labels, config.train_size, rng("train subset"), "data.train_size")
    if config.validation:
        rest, held = stratified_split(labels[train], config.validation, rng("validation"))
        train, validation = train[rest], train[held]
    if config.imbalance > 1:
        train = train[imbalanced_subset(labels[train], config.imbalance, classes, rng("imbalance"))]
    if config.hidden_imbalance > 1:
        train = train[hidden_tail(labels[train], config.hidden_imbalance, classes, rng("hidden imbalance"))]
    if config.zipf_duplicates:
        rows, copies = with_duplicates(labels[train], config.zipf_duplicates, rng("zipf"), "zipf_duplicates")
    else:
        rows, copies = with_duplicates(labels[train], config.duplicates, rng("duplicates"))
    train = train[rows]
    targets = labels[train]
    if config.hidden_imbalance > 1:
        targets, classes = merged(targets), (classes + 1) // 2
    targets = noisy_labels(targets, config.label_noise, classes, rng("label noise"))
    return Subsets(train, targets, copies, validation)


def stratified_subset(labels: np.ndarray, size: int, rng: Generator, option: str = "size") -> np.ndarray:
    """Draw exactly `size` samples in the proportions of the classes, with at least one per class if possible."""
    if not 1 <= size <= len(labels):
        raise ValueError(choice(option, size, f"a whole number from 1 to {len(labels)}, the number of samples"))
    return _draw(labels, _quotas(np.bincount(labels), size), rng)


def stratified_split(labels: np.ndarray, fraction: float, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """Split by class into (rest, held out). Hold out round(fraction · n) samples, at least one on either side."""
    n = len(labels)
    if n < 2:
        raise ValueError(f"a split needs at least 2 samples, got {n}")
    held = stratified_subset(labels, min(max(round(fraction * n), 1), n - 1), rng)
    return np.setdiff1d(np.arange(n), held), held


def imbalanced_subset(labels: np.ndarray, factor: float, classes: int, rng: Generator) -> np.ndarray:
    """Keep the share factor^(−c / (classes − 1)) of class c, and at least one sample: all samples of the first class,
    1 / factor of the last class."""
    counts = np.bincount(labels, minlength=classes)
    shares = factor ** (-np.arange(len(counts)) / max(classes - 1, 1))
    return _draw(labels, np.minimum(counts, np.maximum(np.round(counts * shares), 1)), rng)


def merged(labels: np.ndarray) -> np.ndarray:
    """Return the superclass of each label: classes 0 and 1 are superclass 0, classes 2 and 3 are superclass 1, …"""
    return labels // 2


def hidden_tail(labels: np.ndarray, factor: float, classes: int, rng: Generator) -> np.ndarray:
    """Thin the two classes of each superclass. The first then has `factor` times the samples of the second, as nearly
    as whole numbers allow, and the second has at least one. All superclasses have the same, largest possible size.

    With an odd number of classes the last one is a superclass of its own, without a tail.
    """
    if classes < 3:
        raise ValueError(f"data.hidden_imbalance needs at least 3 classes, to merge them in pairs, got {classes}")
    counts = np.bincount(labels, minlength=classes)
    paired = classes - classes % 2
    sizes = np.arange(2, 2 * counts.max() + 1)  # of a superclass
    rare = np.maximum(np.round(sizes / (factor + 1)), 1).astype(np.int64)
    possible = (rare <= counts[1::2].min()) & (sizes - rare <= counts[:paired:2].min())
    possible &= sizes <= counts[paired:].min(initial=sizes[-1])
    if not possible.any():
        fewest = int(counts.argmin())
        raise ValueError(
            "data.hidden_imbalance needs training samples of every class, and at least 2 per merged class:"
            f" class {fewest} has {counts[fewest]}"
        )
    size, tail = sizes[possible][-1], rare[possible][-1]
    quotas = np.where(np.arange(classes) % 2, tail, size - tail)
    quotas[paired:] = size
    return _draw(labels, quotas, rng)


def with_duplicates(
    labels: np.ndarray, fraction: float, rng: Generator, option: str = "duplicates"
) -> tuple[np.ndarray, np.ndarray]:
    """Replace round(fraction · n) samples by copies of the others. Return the rows and which of them are copies.

    The samples that stay are stratified by class. Each of the others becomes a copy of one that stays in its class,
    drawn with replacement, so the size of every class stays the same. They are drawn uniformly, or by Zipf's law if
    that is the option: the sample of rank r of its class, in random order, with a probability proportional to 1 / r.
    """
    rows, copies = np.arange(len(labels)), np.zeros(len(labels), bool)
    size, present = len(labels) - round(fraction * len(labels)), len(np.unique(labels))
    if size == len(labels):
        return rows, copies
    if size < present:
        raise ValueError(
            f"data.{option} must leave at least one sample per class, got {fraction}: {size} of {len(labels)} samples"
            f" would stay, for {present} classes"
        )
    copies[:] = True
    copies[stratified_subset(labels, size, rng)] = False
    for label in np.unique(labels[copies]):
        members = labels == label
        kept = rows[members & ~copies]
        shares = None
        if option == "zipf_duplicates":
            kept = rng.permutation(kept)
            shares = 1 / np.arange(1, len(kept) + 1)
            shares /= shares.sum()
        rows[members & copies] = rng.choice(kept, (members & copies).sum(), p=shares)
    return rows, copies


def noisy_labels(labels: np.ndarray, fraction: float, classes: int, rng: Generator) -> np.ndarray:
    """Return a copy in which round(fraction · n) labels are replaced by another class, drawn uniformly."""
    labels = labels.copy()
    wrong = rng.choice(len(labels), round(fraction * len(labels)), replace=False)
    if len(wrong):
        if classes < 2:
            raise ValueError("data.label_noise needs at least 2 classes, got 1")
        labels[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return labels


def _quotas(counts: np.ndarray, size: int) -> np.ndarray:
    """Divide `size` seats among classes of these sizes by largest remainder. Every class gets one if seats suffice."""
    n = counts.sum()
    seats, remainders = np.divmod(size * counts, n)
    seats[np.argsort(-remainders, kind="stable")[: size - seats.sum()]] += 1
    if size >= (counts > 0).sum():
        for absent in np.flatnonzero((counts > 0) & (seats == 0)):
            surplus = seats * n - size * counts  # take it from the class that is farthest above its share
            seats[np.where(seats > 1, surplus, surplus.min() - 1).argmax()] -= 1
            seats[absent] = 1
    return seats


def _draw(labels: np.ndarray, quotas: np.ndarray, rng: Generator) -> np.ndarray:
    """Draw quotas[c] random samples of each class c. Return them in ascending order."""
    order = rng.permutation(len(labels))
    grouped = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels, minlength=len(quotas))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)  # within its class
    return np.sort(grouped[rank < np.repeat(quotas, counts)])
