"""Answers to look at again: probes that have not seen them are for another class."""

from typing import Any, NamedTuple

import numpy as np

from smdl.labelling.answers import Value
from smdl.labelling.probe import Probe

#: A suspect answer: probes that have not seen it give another class at least this much more probability.
CONTRADICTION = 0.5
#: Fewest answers of a class whose answers can be suspect.
JUDGED = 3


class DoubtfulAnswer(NamedTuple):
    """An answer to look at again: probes that have not seen it are for another class."""

    row: int
    answer: Value
    instead: Value
    probability: float


def suspects_among(probe: Probe, rows: np.ndarray, targets: np.ndarray, names: list[Any]) -> list[DoubtfulAnswer]:
    """Return the suspect answers, the most suspicious first."""
    if len(np.unique(targets)) < 2:
        return []
    own, predicted, best = probe.held_out(rows, targets)
    judged = np.bincount(targets)[targets] >= JUDGED
    found = np.flatnonzero(judged & (predicted != targets) & (best - own >= CONTRADICTION))
    order = found[np.argsort(own[found] - best[found], kind="stable")]
    return [DoubtfulAnswer(int(rows[i]), names[targets[i]], names[predicted[i]], float(best[i])) for i in order]
