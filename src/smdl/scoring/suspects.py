"""Suspects: samples whose label disagrees with those of their nearest neighbours, and are probably mislabelled.

A rare sample and a mislabelled one both have a high loss, and both have few neighbours with their label. They differ in
number: if a large share of all labels is contradicted by neighbours that agree with each other, the labels are noisy.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from smdl.engine.pool import host

#: Nearest neighbours that vote, and the most samples among which they are looked for.
NEIGHBOURS, REFERENCE = 20, 10_000
#: Rows that are compared with the reference at once.
BLOCK = 1024
#: The numbers of samples, drawn at random, by which the labels are found noisy or not: the second if the first leaves
#: doubt.
ASKED = (200, 1000)
#: A label is suspect if a smaller share of the neighbours has it.
SUPPORT = 0.1
#: It is contradicted if, besides, this share of the neighbours agrees on another label.
AGREEMENT = 0.6
#: Labels are noisy if more than this share of them is contradicted.
NOISE = 0.07
#: They are doubtful if more than this share of them is suspect.
DOUBT = 0.18


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

    @property
    def doubtful(self) -> bool:
        """Whether so many labels are suspect that they are noisy, or that the features do not show the classes yet."""
        return self.unsupported > DOUBT

    @property
    def unsupported(self) -> float:
        """The share of the labels that are suspect."""
        return float(self.suspect.mean()) if len(self.own) else 0.0

    @property
    def clear(self) -> bool:
        """Whether both shares are so small that asking more samples would hardly find the labels noisy or doubtful."""
        return self.contradicted < NOISE / 2 and self.unsupported < DOUBT / 2


class Suspects(NamedTuple):
    """Samples that are probably mislabelled, the most suspicious first."""

    indices: np.ndarray  # (k,) of the dataset
    support: np.ndarray  # (k,) share of the nearest neighbours with the same label
    losses: np.ndarray  # (k,) by the current head
    contradicted: float  # share of all labels that are contradicted; above 0.07 the labels are probably noisy


def neighbour_votes(
    features: Tensor,
    labels: Tensor,
    rng: np.random.Generator,
    asked: np.ndarray | None = None,
    among: np.ndarray | None = None,
) -> Votes:
    """Let the nearest neighbours of the rows in `asked` vote, by cosine similarity of features, (n, D). Neighbours are
    looked for among the rows in `among`. Both are all rows by default. A FloatingPointError says that the features of
    some row are not finite.

    A row is not judged (own share 1) if its features are all zero, or if the reference holds too few other rows with
    its label to support it. Which of several equally near neighbours vote depends on their places in the reference.
    These are random, because data sets are often sorted by class.
    """
    n, device, labels = len(features), features.device, labels.to(features.device)
    asked, among = (np.arange(n) if rows is None else rows for rows in (asked, among))
    reference = torch.from_numpy(rng.permutation(among)[:REFERENCE]).to(device)
    count = min(NEIGHBOURS, len(reference) - 1)
    if count < 1:
        return Votes(np.ones(len(asked)), np.zeros(len(asked)))
    place = torch.full((n,), -1, device=device)  # of each row in the reference
    place[reference] = torch.arange(len(reference), device=device)
    members = labels[reference].bincount(minlength=int(labels.max()) + 1)
    directions, own, other = _directions(features[reference]), [], []
    for rows in torch.from_numpy(asked).to(device).split(BLOCK):
        mine, at = _directions(features[rows]), place[rows]
        inside = (at >= 0).nonzero()[:, 0]
        similarities = mine @ directions.T
        similarities[inside, at[inside]] = -torch.inf  # no vote for oneself
        nearest = labels[reference[similarities.topk(count, dim=1).indices]]
        same = nearest == labels[rows, None]
        agreeing = (nearest[:, :, None] == nearest[:, None]).sum(dim=2)  # with each neighbour, itself included
        judged = mine.any(dim=1) & (members[labels[rows]] - (at >= 0).long() >= SUPPORT * count)
        own.append(torch.where(judged, same.sum(dim=1), count))
        other.append(agreeing.masked_fill(same, 0).amax(dim=1))
    return Votes(*(host(torch.cat(each)) / count for each in (own, other)))


def _directions(features: Tensor) -> Tensor:
    """Return the rows with length 2048, in whole numbers: float32 holds the sums of their products exactly, so nothing
    depends on the order of summation and hence on the number of threads."""
    if not bool(features.isfinite().all()):
        raise FloatingPointError
    return (2048 * F.normalize(features.float(), dim=1)).round()
