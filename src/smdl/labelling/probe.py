"""The probe: a classifier on frozen features, trained on the answers given so far."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from smdl.common.messages import MissingPackagesError, choice, install

#: Inverse strength of the penalty, for features of unit mean square: chosen on small sets of labels, where it is as
#: good as any larger one, and better than smaller ones.
STRENGTH = 10.0
#: Strengths to choose from by cross-validation.
STRENGTHS = (1.0, 10.0, 100.0)
#: Cross-validation chooses once every class has this many labels, and all together this many.
PER_CLASS, ENOUGH = 5, 50
#: Rows that are predicted at once.
BLOCK = 65_536
FOLDS = 5


class Probe:
    """Logistic regression of scikit-learn, or a copy of an estimator of the user.

    model     None, or an estimator with `fit` and `predict_proba`: it sees the features as they are
    features  (N, D); the default probe divides them by their root mean square distance to their mean
    """

    def __init__(self, model: Any, features: np.ndarray) -> None:
        if find_spec("sklearn") is None:
            raise MissingPackagesError(f"labelling needs scikit-learn. Run {install('label')}")
        if model is not None and not (hasattr(model, "fit") and hasattr(model, "predict_proba")):
            raise TypeError(choice("model", type(model).__name__, "an estimator with fit and predict_proba"))
        self.model, self.features = model, features
        self.centre, self.scale = (0.0, 1.0) if model is not None else _scale(features)

    def at(self, rows: np.ndarray) -> np.ndarray:
        """Return the inputs of the probe at rows."""
        found = np.asarray(self.features[rows], np.float32)
        return found if self.model is not None else (found - self.centre) / self.scale

    def fit(self, rows: np.ndarray, targets: np.ndarray, strength: float | None = None) -> "Fitted":
        """Train on rows and their classes, numbers from 0. One class alone is always predicted."""
        if len(np.unique(targets)) < 2:
            return Fitted(self, None, targets[:1])
        if self.model is None:
            estimator = _regression(strength or self.strength(rows, targets))
        else:
            from sklearn.base import clone

            estimator: Any = clone(self.model)
        with _quiet_and_exact():
            return Fitted(self, estimator.fit(self.at(rows), targets))

    def strength(self, rows: np.ndarray, targets: np.ndarray) -> float:
        """Choose the strength by cross-validation if there are enough labels."""
        counts = np.unique(targets, return_counts=True)[1]
        if self.model is not None or len(rows) < ENOUGH or counts.min() < PER_CLASS:
            return STRENGTH
        right = {each: (self.cross_validated(rows, targets, each) == targets).mean() for each in STRENGTHS}
        return max(STRENGTHS, key=lambda each: (right[each], each == STRENGTH))

    def cross_validated(self, rows: np.ndarray, targets: np.ndarray, strength: float = STRENGTH) -> np.ndarray:
        """Return the class that is predicted for each row by a probe that was trained without it."""
        return self.held_out(rows, targets, strength)[1]

    def held_out(
        self, rows: np.ndarray, targets: np.ndarray, strength: float = STRENGTH
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return for each row the probability of its own class, the class that is predicted, and its probability, by
        probes that were trained without the row. Folds take the rows in turn, class by class."""
        fold = np.empty(len(rows), int)
        fold[np.argsort(targets, kind="stable")] = np.arange(len(rows)) % FOLDS
        own, predicted, best = np.zeros(len(rows)), np.full(len(rows), -1), np.zeros(len(rows))
        for number in range(min(FOLDS, len(rows))):
            out = fold == number
            found = self.fit(rows[~out], targets[~out], strength).probabilities(rows[out], int(targets.max()) + 1)
            own[out] = found[np.arange(len(found)), targets[out]]
            predicted[out], best[out] = found.argmax(axis=1), found.max(axis=1)
        return own, predicted, best

    def right(
        self, rows: np.ndarray, targets: np.ndarray, asked: np.ndarray, wanted: np.ndarray, with_others: bool
    ) -> np.ndarray:
        """Return whether the rows asked for get the class that is wanted, by a probe that was trained on other rows;
        with `with_others` by one per fold, which the rows asked for in the other folds train, too."""
        if not with_others:
            return self.fit(rows, targets).probabilities(asked).argmax(axis=1) == wanted
        found = np.zeros(len(asked), bool)
        for number in range(min(FOLDS, len(asked))):
            out = np.arange(len(asked)) % FOLDS == number
            more_rows, more = np.append(rows, asked[~out]), np.append(targets, wanted[~out])
            if len(more_rows):
                fitted = self.fit(more_rows, more, STRENGTH)
                found[out] = fitted.probabilities(asked[out]).argmax(axis=1) == wanted[out]
        return found


class Fitted:
    """A trained probe."""

    def __init__(self, probe: Probe, estimator: Any, only: np.ndarray | None = None) -> None:
        self.probe, self.estimator = probe, estimator
        self.classes = only if only is not None else np.asarray(estimator.classes_, int)

    def probabilities(self, rows: np.ndarray | None = None, classes: int = 0) -> np.ndarray:
        """Return the probabilities of rows, all by default, as float32. Classes that the probe has not seen have 0."""
        rows = np.arange(len(self.probe.features)) if rows is None else rows
        found = np.zeros((len(rows), max(classes, int(self.classes.max()) + 1)), np.float32)
        if self.estimator is None:
            found[:, self.classes] = 1.0
            return found
        with _quiet_and_exact():
            for start in range(0, len(rows), BLOCK):
                part = rows[start : start + BLOCK]
                found[start : start + BLOCK, self.classes] = self.estimator.predict_proba(self.probe.at(part))
        return found


def _regression(strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=strength, max_iter=500, tol=1e-3)


@cache
def _thread_pools() -> Any:
    """Return the thread pools of this process. Looking for them takes milliseconds, which counts per fit."""
    import sklearn.linear_model  # noqa: F401  it loads the last of them
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def _quiet_and_exact() -> Iterator[None]:
    """One thread, so that the sums do not depend on how many there are; no warning of a fit that stops early, or of
    many classes for few labels."""
    with _thread_pools().limit(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


def _scale(features: np.ndarray, most: int = 20_000) -> tuple[np.ndarray, float]:
    """Return the mean, and the root mean square distance to it; of evenly spread rows if there are many."""
    some = np.asarray(features[:: -(-len(features) // most)], np.float64)
    centre = some.mean(axis=0)
    scale = float(np.sqrt(np.square(some - centre).sum(axis=1).mean()))
    return centre.astype(np.float32), scale or 1.0
