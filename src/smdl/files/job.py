"""Job: what is chosen from what. Its tasks need nothing else, so that they can run in another process."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from smdl.engine.objective import Objective, as_objective
from smdl.engine.plan import PER_PICK
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection, select
from smdl.files.file_plan import REFERENCE_ROWS, FilePlan, part_rows, reference_rows
from smdl.files.rows import Rows, numbered

#: Rows of a merge up to which facility location looks at all pairs.
EXACT_ROWS = 8192
NO_ROWS = np.empty(0, np.int64)


class ChosenPart(NamedTuple):
    """Rows of the source in the order picked, their gains, and the recall of the graph of neighbours (NaN: none)."""

    rows: np.ndarray  # (k,) int64
    gains: np.ndarray  # (k,) float64
    recall: float = float("nan")


@dataclass(frozen=True)
class Job:
    """A selection of rows.

    dropped   rows that take no part at all: not finite
    exclude   rows that may not be chosen; they are scored against like all others
    initial   rows that are chosen already: gains count from there
    quotas    the most rows per group, by the text of its name
    query     features that the choice is to be about, (Q, D)
    away_from features that are there already: the choice is to add to them, (P, D)
    classes   names of the labels, if those are text
    progress  called as progress(what, done, total) during a selection
    """

    source: Rows
    plan: FilePlan
    objective: str | Mapping[str, Any]
    seed: int = 0
    dropped: np.ndarray = field(default_factory=lambda: NO_ROWS)
    exclude: np.ndarray = field(default_factory=lambda: NO_ROWS)
    initial: np.ndarray = field(default_factory=lambda: NO_ROWS)
    quotas: Mapping[str, int] | None = None
    budget: float | None = None
    query: np.ndarray | None = None
    away_from: np.ndarray | None = None
    classes: tuple[str, ...] = ()
    threads: int | None = None
    shuffled: bool = False
    progress: Callable[[str, int, int], None] | None = None

    def run(self, level: int, number: int, candidates: Sequence[np.ndarray] = ()) -> ChosenPart:
        """Choose from a part (level 0), or from the candidates of several results."""
        if level == 0:
            among = part_rows(self.seed, len(self.source), self.plan.partitions, number, self.shuffled)
            rows = among = np.setdiff1d(among, self.dropped, assume_unique=True) if len(self.dropped) else among
        else:
            among = np.sort(np.concatenate(candidates))
            reference = reference_rows(self.seed, level, number, len(self.source), len(among))
            rows = np.union1d(among, np.setdiff1d(reference, self.dropped, assume_unique=True))
        taken = np.union1d(self.exclude, self.initial)
        among = np.setdiff1d(among, taken, assume_unique=True) if len(taken) else among
        rows = np.union1d(rows, self.initial) if len(self.initial) else rows
        if len(among) == 0:
            return ChosenPart(NO_ROWS, np.empty(0))
        found = self._select(rows, among, level, number)
        return ChosenPart(rows[found.indices], found.gains, float("nan") if found.recall is None else found.recall)

    def _select(self, rows: np.ndarray, among: np.ndarray, level: int, number: int) -> Selection:
        options: dict[str, Any] = {"seed": (self.seed, level, number), "threads": self.threads}
        if self.progress is not None:
            options["progress"] = partial(self._report, f"level {level}, part {number + 1}")
        size: int | None = min(self.plan.size, len(among))
        if len(among) < len(rows):
            options["among"] = np.searchsorted(rows, among)
        if len(self.initial):
            options["initial"] = np.searchsorted(rows, self.initial)
        if self.quotas is not None:
            names, groups = numbered(self.source.values("groups", rows))
            most = np.array([self.quotas.get(str(name), 0) for name in names])
            options |= {"groups": groups, "per_group": dict(enumerate(most.tolist()))}
            counts = np.bincount(groups[np.searchsorted(rows, among)], minlength=len(names))
            size = min(self.plan.size, int(np.minimum(counts, most).sum()))
            if size == 0:
                return Selection(NO_ROWS, np.empty(0), 0.0)
        if self.budget is not None:
            costs = self.source.values("costs", rows)
            if costs[np.searchsorted(rows, among)].min() > self.budget:
                return Selection(NO_ROWS, np.empty(0), 0.0)
            options |= {"costs": costs, "budget": self.budget}
            size = None
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="this selection takes a while")  # the plan has said so
            return select(self.pool(rows), self._objective(level, len(rows)), size, **options)

    def _report(self, label: str, what: str, done: int, total: int) -> None:
        assert self.progress is not None
        self.progress(f"{label}: {what}", done, total)

    def _objective(self, level: int, rows: int) -> Objective:
        objective = objective_of(self.objective)
        return objective if level == 0 else merge_objective(objective, rows, self.plan.size)

    def pool(self, rows: np.ndarray, features: np.ndarray | None = None) -> Pool:
        """Read rows as a pool, with their features if those are not given. All rows of one local array are a memory
        map."""
        roles = [role for role in ("labels", "probabilities", "utility") if role in self.source.columns]
        if features is None:
            features = self.source.whole() if len(rows) == len(self.source) else self.source.features_at(rows)
        found: dict[str, Any] = {"features": features} | {role: self.source.values(role, rows) for role in roles}
        if "labels" in found:
            found["labels"] = class_numbers(found["labels"], self.classes)
        return Pool(**found, query=self.query, away_from=self.away_from)


def objective_of(given: str | Mapping[str, Any]) -> Objective:
    """Return the objective that a name, or a mapping of weights and options, means."""
    try:
        return as_objective(given) if isinstance(given, str) else Objective(**given)
    except TypeError as error:  # YAML reads nan and inf as text
        raise ValueError(str(error)) from error


def merge_objective(objective: Objective, rows: int, size: int) -> Objective:
    """Return the objective of a merge that looks at this many rows. Facility location does not hold the similarities of
    all their pairs, because only a few of the rows are candidates."""
    decided = objective.neighbours is not None or objective.sample is not None
    if rows <= EXACT_ROWS or decided or "facility_location" not in objective.weights:
        return objective
    return objective.changed(sample=min(rows - 1, max(REFERENCE_ROWS, PER_PICK * size)))


def class_numbers(labels: np.ndarray, classes: Sequence[str]) -> np.ndarray:
    """Return labels as whole numbers: text by its place among the classes."""
    if labels.dtype.kind == "U":
        return np.searchsorted(np.array(classes), labels)
    wrong = (labels < 0) | (labels % 1 != 0)  # NaN % 1 is NaN
    if wrong.any():
        raise ValueError(
            f"labels must be whole class numbers ≥ 0 or text, got {labels[wrong][0]} in row {wrong.argmax()}"
        )
    return labels.astype(np.int64)
