"""Subset, split, imbalance and label noise. All of them depend on the labels only.

Every purpose has its own random stream, so label noise does not change which samples are in the subset.
"""

import numpy as np
from numpy.random import Generator

from smdl.errors import choice
from smdl.training.config import DataConfig

PURPOSES = ("train subset", "test subset", "validation", "imbalance", "label noise", "folder", "digits")


def generator(seed: int, purpose: str) -> Generator:
    """Return the random generator of one purpose."""
    return np.random.default_rng([seed, PURPOSES.index(purpose)])


def make_subsets(
    labels: np.ndarray, classes: int, config: DataConfig
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Return (training samples, their labels, validation samples or None) of a training set with these labels."""
    train, validation = np.arange(len(labels)), None
    if config.train_size is not None:
        train = stratified_subset(labels, config.train_size, generator(config.seed, "train subset"), "data.train_size")
    if config.validation:
        rest, held = stratified_split(labels[train], config.validation, generator(config.seed, "validation"))
        train, validation = train[rest], train[held]
    if config.imbalance > 1:
        train = train[imbalanced_subset(labels[train], config.imbalance, classes, generator(config.seed, "imbalance"))]
    targets = noisy_labels(labels[train], config.label_noise, classes, generator(config.seed, "label noise"))
    return train, targets, validation


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
