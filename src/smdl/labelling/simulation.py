"""What would have been saved? Rounds of labelling on data whose labels are known, method by method."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from smdl.common.messages import one_of
from smdl.engine.pool import Pool
from smdl.engine.selection import select
from smdl.labelling.labels import rows_to_label
from smdl.labelling.probe import STRENGTH, Probe

#: Most rows to choose from, and to test on.
PILE, TEST = 5000, 2000


@dataclass
class Pile:
    """What a method may see of a round: all rows, which ones have labels, and what a probe makes of them."""

    features: np.ndarray  # (N, D)
    seed: int
    classes: int
    labelled: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # in the order chosen
    targets: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # of the labelled rows
    probabilities: np.ndarray | None = None  # (N, C); None before there are two classes
    kept: dict[str, Any] = field(default_factory=dict)  # for what a method needs once

    @property
    def pool(self) -> Pool:
        return self.kept.setdefault("pool", Pool(self.features))

    @property
    def rng(self) -> np.random.Generator:
        """Random numbers of this round."""
        return np.random.default_rng([self.seed, len(self.labelled)])

    @property
    def free(self) -> np.ndarray:
        """The rows without a label."""
        return np.setdiff1d(np.arange(len(self.features)), self.labelled)


Choose = Callable[[Pile, int], np.ndarray]


def random(pile: Pile, size: int) -> np.ndarray:
    return pile.rng.permutation(pile.free)[:size]


def labels(pile: Pile, size: int) -> np.ndarray:
    """What `smdl.Labels` does."""
    return rows_to_label(pile.pool, size, pile.labelled, pile.probabilities, seed=pile.seed)


def facility_location(pile: Pile, size: int) -> np.ndarray:
    return rows_to_label(pile.pool, size, pile.labelled, seed=pile.seed)


def k_center(pile: Pile, size: int) -> np.ndarray:
    """The row farthest from all labelled ones, again and again."""
    found = select(pile.pool, "redundancy", size, initial=pile.labelled, seed=pile.seed)
    return found.on_host().indices


def margin(pile: Pile, size: int) -> np.ndarray:
    return _greatest(pile, size, lambda p: -np.diff(np.partition(p, -2, axis=1)[:, -2:], axis=1)[:, 0])


def entropy(pile: Pile, size: int) -> np.ndarray:
    return _greatest(pile, size, lambda p: -(p * np.log(np.maximum(p, 1e-12))).sum(axis=1))


def least_sure_first(pile: Pile, size: int) -> np.ndarray:
    """Facility location among the ten batches with the smallest margins."""
    if pile.probabilities is None:
        return facility_location(pile, size)
    among = margin(pile, min(10 * size, len(pile.free)))
    found = select(pile.pool, "facility_location", size, initial=pile.labelled, among=among, seed=pile.seed)
    return found.on_host().indices


def _greatest(pile: Pile, size: int, score: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the free rows with the greatest scores. Without probabilities, begin as facility location does."""
    if pile.probabilities is None:
        return facility_location(pile, size)
    free = pile.free
    return free[np.argsort(-score(pile.probabilities[free].astype(np.float64)), kind="stable")[:size]]


METHODS: dict[str, Choose] = {
    "random": random,
    "labels": labels,
    "facility_location": facility_location,
    "margin": margin,
    "entropy": entropy,
    "k_center": k_center,
    "least_sure_first": least_sure_first,
}


class SimulatedCurve(NamedTuple):
    """A method on one draw of the data: labels and accuracy (%) after each round, and the seconds of the choice."""

    method: str
    seed: int
    labels: list[int]
    accuracy: list[float]
    seconds: list[float]


class Draw(NamedTuple):
    """One draw of rows to choose from and rows to test on."""

    features: np.ndarray
    targets: np.ndarray
    test: np.ndarray
    test_targets: np.ndarray


def draw(features: np.ndarray, targets: np.ndarray, seed: int, most: int = PILE) -> Draw:
    """Draw a pile of at most `most` rows, and other rows to test on: a quarter of all, at most TEST."""
    order = np.random.default_rng([seed, 3]).permutation(len(features))
    test = order[: min(TEST, len(features) // 4)]
    pile = np.sort(order[len(test) : len(test) + most])
    return Draw(
        np.asarray(features[pile], np.float32), targets[pile], np.asarray(features[test], np.float32), targets[test]
    )


def run_rounds(
    data: Draw,
    method: str,
    seed: int,
    size: int,
    rounds: int,
    methods: Mapping[str, Choose] = METHODS,
    answer: Callable[[np.ndarray], np.ndarray] | None = None,
    first: np.ndarray | None = None,
) -> SimulatedCurve:
    """Label `size` rows per round as the method says. `answer` gives the classes of rows, in place of the true ones;
    `first` are the rows of the first round."""
    choose = methods[one_of("method", method, methods)]
    classes = int(max(data.targets.max(), data.test_targets.max())) + 1
    pile, probe = Pile(data.features, seed, classes), Probe(None, np.concatenate([data.features, data.test]))
    at_test = np.arange(len(data.features), len(data.features) + len(data.test))
    found = SimulatedCurve(method, seed, [], [], [])
    for number in range(rounds):
        if len(pile.free) < size:
            break
        started = time.process_time()
        rows = first if first is not None and number == 0 else np.asarray(choose(pile, size))
        found.seconds.append(time.process_time() - started)
        pile.labelled = np.append(pile.labelled, rows)
        pile.targets = np.append(pile.targets, data.targets[rows] if answer is None else answer(rows))
        fitted = probe.fit(pile.labelled, pile.targets, STRENGTH)
        right = fitted.probabilities(at_test).argmax(axis=1) == data.test_targets
        found.labels.append(len(pile.labelled))
        found.accuracy.append(100.0 * float(right.mean()))
        if len(np.unique(pile.targets)) > 1:
            pile.probabilities = fitted.probabilities(np.arange(len(data.features)))
    return found


def savings(curve: Sequence[float], labels: Sequence[int], target: float) -> float | None:
    """Return how many labels reach an accuracy, by linear interpolation; None if the curve stays below it."""
    for place, value in enumerate(curve):
        if value >= target:
            if place == 0:
                return float(labels[0])
            before, step = curve[place - 1], labels[place] - labels[place - 1]
            return labels[place - 1] + step * (target - before) / (value - before)
    return None
