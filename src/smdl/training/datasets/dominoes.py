"""Dominoes: a second image below each one. It tells the class in training, and nothing in the test set."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from smdl.training.config import DataConfig
from smdl.training.datasets.in_memory import InMemory
from smdl.training.datasets.problems import DataError
from smdl.training.datasets.subsets import generator


def put_below(
    parts: Sequence[Any], classes: tuple[np.ndarray, np.ndarray], config: DataConfig
) -> tuple[np.ndarray, np.ndarray]:
    """Put a second image below every image of (train, test, …), in place. Return the group of each training sample and
    of each test sample: 2 · class, and one more if the image below is of another class.

    classes   of the training samples and of the test samples, as they are in the images
    """
    if not all(isinstance(part, InMemory) and part.images.ndim == 4 for part in parts):
        raise DataError("data.dominoes needs images in memory, as the built-in sets have them")
    groups = []
    for place, part in enumerate(parts):
        purpose = "dominoes" if place == 0 else "dominoes of the test set"
        mine = classes[place] if place < 2 else part.labels.numpy()  # a validation set has its own labels
        share = 1 / len(np.unique(mine)) if place == 1 else config.dominoes
        below = partners(mine, share, generator(config.seed, purpose))
        part.images = torch.cat([part.images, part.images[torch.from_numpy(below)]], dim=2)
        groups.append(2 * mine + (mine[below] != mine))
    return groups[0], groups[1]


def partners(classes: np.ndarray, share: float, rng: Generator) -> np.ndarray:
    """Return which sample lies below each one, (N,): in round(share · n) of the samples one of the same class, in the
    others one of another class, each drawn uniformly."""
    n = len(classes)
    if len(np.unique(classes)) < 2:
        raise DataError("data.dominoes needs samples of two classes or more")
    same = np.zeros(n, bool)
    same[rng.permutation(n)[: round(share * n)]] = True
    below = np.empty(n, np.int64)
    for label in np.unique(classes):
        members = classes == label
        below[members & same] = rng.choice(np.flatnonzero(members), (members & same).sum())
        below[members & ~same] = rng.choice(np.flatnonzero(~members), (members & ~same).sum())
    return below
