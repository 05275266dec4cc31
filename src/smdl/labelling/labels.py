"""Labels: which rows to label next, and what the answers so far are worth."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from smdl.common.messages import choice, names_checked, number, true_or_false, whole_number
from smdl.common.saved_state import SavedState
from smdl.engine.objective import Objective
from smdl.engine.pool import Pool
from smdl.engine.selection import select
from smdl.labelling.answers import Answer, Answers, Value, as_value, row_numbers
from smdl.labelling.doubtful_answers import DoubtfulAnswer, suspects_among
from smdl.labelling.forecast import CHECKS, POINTS, Accuracy, Forecast, LearningCurve, prefix_sizes, wilson
from smdl.labelling.probe import Fitted, Probe

#: Streams of random numbers.
_CHECKS, _CURVE = 1, 2
_KEYS = ("rows", "features", "seed", "answers", "checks")


def rows_to_label(
    pool: Pool,
    size: int,
    labelled: np.ndarray,
    probabilities: Any = None,
    exclude: np.ndarray | None = None,
    seed: int = 0,
) -> np.ndarray:
    """Return rows by facility location that knows the labelled rows, weighted by how unsure the model is."""
    if probabilities is not None:
        pool = pool.changed(probabilities=probabilities)  # keeps the similarities
    weighted = pool.probabilities is not None and pool.probabilities.shape[1] > 1
    found = select(pool, Objective.labels(weighted), size, initial=labelled, exclude=exclude, seed=seed)
    return found.on_host().indices


@names_checked
class Labels:
    """Choose the rows worth a label, round by round.

    Each row of the pile asks for a similar row with a label, as loudly as a probe on the features is unsure of it:
    F(S) = Σ_i w_i · max_{j ∈ S ∪ labelled} s_ij, with w_i = 1 − (largest − second largest probability of row i). Before
    there are answers of two classes, all weights are 1.

    The rows depend on the answers alone: without a new answer, `next` returns the same rows again.

    Args:
        features: (N, D) array or tensor, one embedding per row. Distances between them should mean something.
        model: An estimator with `fit` and `predict_proba`; by default logistic regression of scikit-learn, whose
            strength is chosen by cross-validation once every class has five answers.
        seed: For the check rows, and for ties.
        train_on_checks: Whether check rows train the probe too. Their accuracy is then cross-validated.

    Raises:
        ValueError: features that are not a matrix of finite numbers.

    Examples:
        >>> import numpy as np, smdl
        >>> X = np.repeat(np.eye(3), 20, axis=0) + np.random.default_rng(0).normal(0, 0.1, (60, 3))
        >>> labels = smdl.Labels(X)
        >>> rows = labels.next(3)
        >>> labels.add(rows, [f"class {row // 20}" for row in rows])
        >>> sorted(labels.classes)
        ['class 0', 'class 1', 'class 2']
        >>> rows = labels.check(20)
        >>> labels.add(rows, [f"class {row // 20}" for row in rows])
        >>> labels.accuracy.value
        1.0
    """

    def __init__(self, features: Any, model: Any = None, *, seed: int = 0, train_on_checks: bool = False) -> None:
        self._pool = Pool(features)
        host = features.detach().cpu().numpy() if isinstance(features, torch.Tensor) else np.asarray(features)
        self.seed = whole_number("seed", seed, least=0)
        self.train_on_checks = true_or_false("train_on_checks", train_on_checks)
        self._probe = Probe(model, host)
        self._answers, self._checks = Answers(), list[int]()
        self._kept: dict[Any, Any] = {}  # what was computed since the last answer

    def __len__(self) -> int:
        """Return how many rows have a class, check rows included."""
        return len(self._answers.settled())

    @property
    def answers(self) -> dict[int, Value]:
        """The class of each row that has one: what most of its annotators say."""
        return self._answers.settled()

    @property
    def classes(self) -> list[Value]:
        """The classes found so far, in the order of their first answer."""
        return self._answers.classes()

    @property
    def checks(self) -> np.ndarray:
        """The rows that were drawn at random to measure by."""
        return np.array(self._checks, np.int64)

    def next(self, size: int, probabilities: Any = None, pending: Any = ()) -> np.ndarray:
        """Return the rows to label next, the most valuable first; fewer if fewer are left.

        Args:
            size: How many rows.
            probabilities: (N, C) from a model of your own, in place of the probe's. Rows sum to one.
            pending: Rows that people have, and have not answered yet. The rows returned complement them.

        Raises:
            ValueError: Every row has an answer, or the probabilities are none.
        """
        whole_number("size", size)
        waiting = set(row_numbers(pending, len(self._pool)))
        gone = np.array(sorted({answer.row for answer in self._answers.log} | set(self._checks) | waiting), np.int64)
        left = len(self._pool) - len(gone)
        if left == 0:
            raise ValueError(
                f"all {len(self._pool)} rows have an answer, are pending or are check rows: there is none left"
            )
        if probabilities is None and (fitted := self._fitted()) is not None:
            probabilities = fitted.probabilities()
        labelled, _ = self._training_rows(checks=self.train_on_checks)
        labelled = np.union1d(labelled, np.array(sorted(waiting), np.int64))
        return rows_to_label(self._pool, min(size, left), labelled, probabilities, gone, self.seed)

    def add(self, rows: Any, answers: Iterable[Any], annotator: str = "") -> None:
        """Record what a person said about rows. A second answer of the same person replaces the first.

        Args:
            rows: Row numbers. Labels that were there before are welcome, too.
            answers: One per row: a text or a whole number; None for "cannot say". Such a row is not asked again, and
                does not count as labelled.
            annotator: Who says so. If several people answer, the most frequent class counts; see `disputed`.
        """
        numbers = row_numbers(rows, len(self._pool))
        values = [as_value(value) for value in answers]
        if len(values) != len(numbers):
            raise ValueError(f"answers must be one per row, got {len(values)} for {len(numbers)} rows")
        if not isinstance(annotator, str):
            raise TypeError(choice("annotator", annotator, "a text"))
        said: dict[int, Value] = {}
        for row, value in zip(numbers, values, strict=True):
            if said.setdefault(row, value) != value:
                raise ValueError(f"row {row} has two answers in one call, {said[row]!r} and {value!r}")
        self._answers.add(Answer(row, value, annotator) for row, value in said.items())
        self._kept.clear()

    def check(self, size: int) -> np.ndarray:
        """Return rows to label that were drawn at random, so that `size` of them measure the accuracy.

        Answers about chosen rows cannot measure it: they are unusual on purpose. Check rows are never chosen, and do
        not train the probe unless `train_on_checks` says so. Rows that have their answer are not returned again.

        Args:
            size: How many check rows there are to be in all. A larger number adds to those drawn before.
        """
        whole_number("size", size)
        if size > len(self._checks):
            taken = {answer.row for answer in self._answers.log} | set(self._checks)
            order = np.random.default_rng([self.seed, _CHECKS]).permutation(len(self._pool)).tolist()
            self._checks += [row for row in order if row not in taken][: size - len(self._checks)]
            self._kept.clear()
        return np.array([row for row in self._checks[:size] if row not in self._answers], np.int64)

    @property
    def accuracy(self) -> Accuracy | None:
        """The probe's accuracy on the check rows, with its 95 % interval; None if there is nothing to measure.

        Without answered check rows it is the cross-validated accuracy on the chosen rows, and `biased` is true: chosen
        rows are not typical of the pile.
        """
        right = self._right_checks()
        if len(right):
            return wilson(int(right.sum()), len(right))
        rows, targets = self._training_rows(checks=False)
        if len(np.unique(targets)) < 2:
            return None
        predicted = self._probe.cross_validated(rows, targets)
        return wilson(int((predicted == targets).sum()), len(rows), biased=True)

    def accuracy_of(self, predictions: Any) -> Accuracy:
        """Return the accuracy of a model of your own on the check rows.

        Args:
            predictions: Its class for every row of the pile, (N,).
        """
        values = list(predictions)
        if len(values) != len(self._pool):
            raise ValueError(f"predictions must be one per row of the pile, {len(self._pool)}, got {len(values)}")
        settled, checks = self.answers, self._answered_checks()
        if not checks:
            raise ValueError("there are no answered check rows to measure by: see `check`")
        return wilson(sum(as_value(values[row]) == settled[row] for row in checks), len(checks))

    def forecast(self, more: int) -> Forecast | None:
        """Return the accuracy to expect after so many more labels, with its interval.

        It continues the accuracies that the probe had on the check rows after fewer labels. None if there are fewer
        than 20 answered check rows, or too few labels for a curve.
        """
        whole_number("more", more)
        curve = self.curve()
        return None if curve is None else curve.forecast(int(curve.sizes[-1]) + more)

    def needed(self, accuracy: float) -> int | None:
        """Return about how many labels reach an accuracy, by the forecast; None if it never does, or is not known."""
        number("accuracy", accuracy, "a share in (0, 1)", low=1e-9, high=1 - 1e-9)
        curve = self.curve()
        return None if curve is None else curve.needed(accuracy)

    def curve(self) -> LearningCurve | None:
        """Return the accuracies on the check rows after fewer labels; None if there are too few of either."""
        rows, targets = self._training_rows(checks=False)
        checks = self._answered_checks()
        sizes = prefix_sizes(len(rows), len(np.unique(targets)))
        if len(checks) < CHECKS or len(sizes) < POINTS:
            return None
        if "curve" not in self._kept:
            wanted = self._numbers(checks)
            strength = self._probe.strength(rows, targets)
            fits = [self._probe.fit(rows[:size], targets[:size], strength) for size in sizes]
            right = [fit.probabilities(np.array(checks)).argmax(axis=1) == wanted for fit in fits]
            self._kept["curve"] = LearningCurve(sizes, np.array(right), self.seed)
        return self._kept["curve"]

    def probabilities(self) -> np.ndarray | None:
        """Return the probe's probabilities, (N, C) in the order of `classes`; None before there are two classes."""
        fitted = self._fitted()
        return None if fitted is None else fitted.probabilities(classes=len(self.classes))

    def disputed(self) -> list[int]:
        """Return the rows whose annotators disagree. In a tie the row counts as not labelled, and is not asked again:
        settle it by `add`."""
        return self._answers.disputed()

    def said(self, row: int) -> dict[str, Value]:
        """Return what each annotator says about a row."""
        return self._answers.of(row)

    def suspects(self) -> list[DoubtfulAnswer]:
        """Return answers to look at again, the most suspicious first: probes that were trained without the answer give
        another class at least 0.5 more probability. Classes with fewer than three answers are not judged."""
        return suspects_among(self._probe, *self._training_rows(checks=True), self.classes)

    def state_dict(self) -> dict[str, Any]:
        """Return the answers and the check rows as plain values, for JSON. The features are not in it."""
        return {
            "rows": len(self._pool),
            "features": _digest(self._probe.features),
            "seed": self.seed,
            "answers": [list(answer) for answer in self._answers.log],
            "checks": list(self._checks),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned for the same features."""
        saved, rows = SavedState("state", state, _KEYS), len(self._pool)
        if (saved["rows"], saved["features"]) != (rows, _digest(self._probe.features)):
            raise ValueError(
                f"state belongs to other features: it has {saved['rows']} rows, these are {rows}"
                " rows with other numbers"
            )
        checks, seed = saved.rows("checks", rows, once=True).tolist(), saved.count("seed")
        answers = Answers()
        answers.add(Answer(int(row), as_value(value), str(name)) for row, value, name in saved["answers"])
        beyond = [answer.row for answer in answers.log if not 0 <= answer.row < rows]
        if beyond:
            raise ValueError(f"state: answers must be about rows in 0..{rows - 1}, got row {beyond[0]}")
        self._answers, self._checks, self.seed = answers, checks, seed
        self._kept.clear()

    def _fitted(self) -> Fitted | None:
        rows, targets = self._training_rows(checks=self.train_on_checks)
        if len(np.unique(targets)) < 2:
            return None
        if "fitted" not in self._kept:
            self._kept["fitted"] = self._probe.fit(rows, targets)
        return self._kept["fitted"]

    def _training_rows(self, checks: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return the labelled rows in the order of their answers, and the numbers of their classes."""
        out = set() if checks else set(self._checks)
        rows = [row for row in self.answers if row not in out]
        return np.array(rows, np.int64), self._numbers(rows)

    def _numbers(self, rows: list[int]) -> np.ndarray:
        number_of = {name: number for number, name in enumerate(self.classes)}
        settled = self.answers
        return np.array([number_of[settled[row]] for row in rows], np.int64)

    def _answered_checks(self) -> list[int]:
        settled = self.answers
        return [row for row in self._checks if row in settled]

    def _right_checks(self) -> np.ndarray:
        """Return which answered check rows are predicted rightly. If they train, by probes that have not seen them."""
        checks = self._answered_checks()
        rows, targets = self._training_rows(checks=False)
        if not checks or len(rows) + self.train_on_checks * len(checks) < 2:
            return np.empty(0, bool)
        return self._probe.right(rows, targets, np.array(checks), self._numbers(checks), self.train_on_checks)


def _digest(features: np.ndarray, rows: int = 64) -> str:
    """Return a checksum of some rows: enough to notice other features."""
    some = np.ascontiguousarray(features[:: max(1, len(features) // rows)], np.float32)
    return hashlib.sha256(repr(features.shape).encode() + some.tobytes()).hexdigest()[:16]
