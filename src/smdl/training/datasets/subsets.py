"""Which samples, and under which labels: subset, split, imbalance and noise, decided from the labels alone.

Every purpose draws from a stream of its own, so that asking for noise does not change who is in the subset.
"""

import numpy as np
from numpy.random import Generator

from smdl.errors import choice
from smdl.training.config import DataConfig

PURPOSES = ("train subset", "test subset", "validation", "imbalance", "label noise", "folder", "digits")


def generator(seed: int, purpose: str) -> Generator:
    """The stream of one purpose."""
    return np.random.default_rng([seed, PURPOSES.index(purpose)])


def arrange(labels: np.ndarray, classes: int, config: DataConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """What the config makes of a training set: (its samples, their labels, the samples held out if any)."""
    train, validation = np.arange(len(labels)), None
    if config.train_size is not None:
        train = subset(labels, config.train_size, generator(config.seed, "train subset"), "data.train_size")
    if config.validation:
        rest, held = split(labels[train], config.validation, generator(config.seed, "validation"))
        train, validation = train[rest], train[held]
    if config.imbalance > 1:
        train = train[imbalanced(labels[train], config.imbalance, classes, generator(config.seed, "imbalance"))]
    return train, noisy(labels[train], config.label_noise, classes, generator(config.seed, "label noise")), validation


def subset(labels: np.ndarray, size: int, rng: Generator, option: str = "size") -> np.ndarray:
    """Exactly `size` samples in the proportions of the classes; each class has one if there is room for all."""
    if not 1 <= size <= len(labels):
        raise ValueError(choice(option, size, f"a whole number from 1 to the {len(labels)} samples there are"))
    return _some(labels, _quotas(np.bincount(labels), size), rng)


def split(labels: np.ndarray, fraction: float, rng: Generator) -> tuple[np.ndarray, np.ndarray]:
    """(rest, held out) by class: the fraction rounded to whole samples, at least one on either side."""
    n = len(labels)
    if n < 2:
        raise ValueError(f"a split takes at least 2 samples, got {n}")
    held = subset(labels, min(max(round(fraction * n), 1), n - 1), rng)
    return np.setdiff1d(np.arange(n), held), held


def imbalanced(labels: np.ndarray, factor: float, classes: int, rng: Generator) -> np.ndarray:
    """Class c keeps the share factor^(−c / (classes − 1)), and at least one sample: all of the first class,
    1 / factor of the last."""
    counts = np.bincount(labels, minlength=classes)
    shares = factor ** (-np.arange(len(counts)) / max(classes - 1, 1))
    return _some(labels, np.minimum(counts, np.maximum(np.round(counts * shares), 1)), rng)


def noisy(labels: np.ndarray, fraction: float, classes: int, rng: Generator) -> np.ndarray:
    """A copy in which round(fraction · n) labels are those of another class, each as likely as the others."""
    labels = labels.copy()
    wrong = rng.choice(len(labels), round(fraction * len(labels)), replace=False)
    if len(wrong):
        if classes < 2:
            raise ValueError("data.label_noise takes at least 2 classes, got 1")
        labels[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return labels


def _quotas(counts: np.ndarray, size: int) -> np.ndarray:
    """`size` seats for classes of these sizes, by largest remainder; none goes without if seats suffice."""
    n = counts.sum()
    seats, remainders = np.divmod(size * counts, n)
    seats[np.argsort(-remainders, kind="stable")[: size - seats.sum()]] += 1
    if size >= (counts > 0).sum():
        for absent in np.flatnonzero((counts > 0) & (seats == 0)):
            surplus = seats * n - size * counts  # from the class farthest above its share that can spare one
            seats[np.where(seats > 1, surplus, surplus.min() - 1).argmax()] -= 1
            seats[absent] = 1
    return seats


def _some(labels: np.ndarray, quotas: np.ndarray, rng: Generator) -> np.ndarray:
    """quotas[c] random samples of each class c, in ascending order."""
    order = rng.permutation(len(labels))
    grouped = order[np.argsort(labels[order], kind="stable")]
    counts = np.bincount(labels, minlength=len(quotas))
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)  # within its class
    return np.sort(grouped[rank < np.repeat(quotas, counts)])
