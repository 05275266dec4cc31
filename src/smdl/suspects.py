"""Suspects: samples whose label disagrees with those of their nearest neighbours, and are probably mislabelled.

A rare sample and a mislabelled one both have a high loss, and both have few neighbours with their label. They differ in
number: if a large share of all labels is contradicted by neighbours that agree with each other, the labels are noisy.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from smdl.pool import host

#: Nearest neighbours that vote, and the most samples among which they are looked for.
NEIGHBOURS, REFERENCE = 20, 10_000
#: The number of samples, drawn at random, by which the labels are found noisy or not.
ASKED = 500
#: A label is suspect if a smaller share of the neighbours has it.
SUPPORT = 0.1
#: It is contradicted if, besides, this share of the neighbours agrees on another label.
AGREEMENT = 0.6
#: Labels are noisy if more than this share of them is contradicted.
NOISE = 0.07


class Votes(NamedTuple):
    """How the nearest neighbours of each sample are labelled."""

    own: np.ndarray  # (n,) share of the neighbours with the sample's own label
    other: np.ndarray  # (n,) share of the most frequent other label

    @property
    def suspect(self) -> np.ndarray:
        """Which labels hardly any neighbour has."""
        return self.own < SUPPORT

    @property
    def contradicted(self) -> float:
        """The share of the labels that are suspect and whose neighbours agree on another label."""
        return float((self.suspect & (self.other >= AGREEMENT)).mean()) if len(self.own) else 0.0

    @property
    def noisy(self) -> bool:
        """Whether the labels are noisy."""
        return self.contradicted > NOISE


class Suspects(NamedTuple):
    """Samples that are probably mislabelled, the most suspicious first."""

    indices: np.ndarray  # (k,) of the dataset
    support: np.ndarray  # (k,) share of the nearest neighbours with the same label
    losses: np.ndarray  # (k,) by the current head
    contradicted: float  # share of all labels that are contradicted; above 0.07 the labels are probably noisy


def neighbour_votes(
    features: Tensor, labels: Tensor, rng: np.random.Generator, asked: np.ndarray | None = None
) -> Votes:
    """Let the nearest neighbours of the rows in `asked` vote, by default of all, by cosine similarity of the features,
    (n, D)."""
    n, classes = len(features), int(labels.max()) + 1 if len(labels) else 0
    asked = np.arange(n) if asked is None else asked
    places = np.arange(n) if n <= REFERENCE else np.sort(rng.choice(n, REFERENCE, replace=False))
    count = min(NEIGHBOURS, len(places) - 1)
    if count < 1:
        return Votes(np.ones(len(asked)), np.zeros(len(asked)))
    directions = F.normalize(features.float(), dim=1)
    reference = torch.from_numpy(places).to(features.device)
    labels, own, other = labels.to(features.device), [], []
    for part in torch.from_numpy(asked).to(features.device).split(1024):
        similarities = directions[part] @ directions[reference].T
        similarities.masked_fill_(part[:, None] == reference[None], -torch.inf)  # no vote for oneself
        nearest = labels[reference[similarities.topk(count, dim=1).indices]]
        votes = F.one_hot(nearest, classes).sum(dim=1)  # (part, classes)
        mine = labels[part, None]
        own.append(votes.gather(1, mine)[:, 0])
        other.append(votes.scatter(1, mine, 0).max(dim=1).values)
    return Votes(*(host(torch.cat(each)) / count for each in (own, other)))
