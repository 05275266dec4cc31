"""Job: what is chosen from what. Its tasks need nothing else, so that they can run in another process."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from smdl.engine.objective import Objective, as_objective
from smdl.engine.plan import PER_PICK
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection, evaluate, select
from smdl.files.file_plan import FilePlan, part_rows, reference_rows
from smdl.files.rows import Rows, numbered

NO_ROWS = np.empty(0, np.int64)


class ChosenPart(NamedTuple):
    """Rows of the source in the order picked, their gains, the recall of the graph of neighbours (NaN: none), and the
    share of each term in the value, in the order of the weights (empty: one term)."""

    rows: np.ndarray  # (k,) int64
    gains: np.ndarray  # (k,) float64
    recall: float = float("nan")
    shares: np.ndarray = np.empty(0)


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

    def run(self, level: int, number: int, candidates: Sequence[np.ndarray] = (), best: int = 0) -> ChosenPart:
        """Choose from a part (level 0), or from the candidates of several results. The result of a merge is not worse
        than the `best` of those."""
        reference = None
        if level == 0:
            among = part_rows(self.seed, len(self.source), self.plan.partitions, number, self.shuffled)
            rows = among = np.setdiff1d(among, self.dropped, assume_unique=True) if len(self.dropped) else among
        else:
            among = np.sort(np.concatenate(candidates))
            least = max(len(among), PER_PICK * self.plan.size)
            reference = reference_rows(self.seed, level, number, len(self.source), least)
            reference = np.setdiff1d(reference, self.not_represented, assume_unique=True)
            rows = np.union1d(among, reference)
        taken = np.union1d(self.exclude, self.initial)
        among = np.setdiff1d(among, taken, assume_unique=True) if len(taken) else among
        rows = np.union1d(rows, self.initial) if len(self.initial) else rows
        if len(among) == 0:
            return ChosenPart(NO_ROWS, np.empty(0))
        objective, pool = objective_of(self.objective), self.pool(rows)
        if reference is not None:
            objective = merge_objective(objective, len(reference), len(self.source))
        if reference is not None and len(reference) < len(rows) and objective.neighbours is None:
            pool.represented = np.searchsorted(rows, reference)  # not the candidates: they would represent themselves
        choose = partial(self._select, pool, objective, rows, level=level, number=number)
        found = choose(among)
        if level and objective.has_value:
            rival = np.setdiff1d(candidates[best], taken, assume_unique=True)
            if self._value(pool, objective, rows, rival) > found.value * (1 + 1e-9):
                found = choose(np.sort(rival))
        recall = float("nan") if found.recall is None else found.recall
        shares = (found.term_shares if len(objective.weights) > 1 else None) or {}
        return ChosenPart(rows[found.indices], found.gains, recall, np.array(list(shares.values())))

    @property
    def is_limited(self) -> bool:
        return self.quotas is not None or self.budget is not None

    @cached_property
    def not_represented(self) -> np.ndarray:
        """Rows that ask for no similar row in the choice, ascending: dropped, or of no importance."""
        if "importance" not in self.source.columns:
            return self.dropped
        return np.union1d(self.dropped, np.flatnonzero(self.source.column("importance") == 0))

    def _value(self, pool: Pool, objective: Objective, rows: np.ndarray, chosen: np.ndarray) -> float:
        """Return what these rows add to those that are chosen already."""
        values = [0.0, 0.0]
        for place, some in enumerate((self.initial, np.union1d(self.initial, chosen))):
            if len(some):
                values[place] = evaluate(pool, objective, np.searchsorted(rows, some)).value
        return values[1] - values[0]

    def _select(
        self, pool: Pool, objective: Objective, rows: np.ndarray, among: np.ndarray, level: int, number: int
    ) -> Selection:
        options: dict[str, Any] = {"seed": (self.seed, level, number), "threads": self.threads}
        if self.progress is not None:
            report, label = self.progress, f"level {level}, part {number + 1}"
            options["progress"] = lambda what, done, total: report(f"{label}: {what}", done, total)
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
            warnings.filterwarnings("ignore", message=".* hardly counts")  # Chooser says so of the last merge
            return select(pool, objective, size, **options)

    def pool(self, rows: np.ndarray, features: np.ndarray | None = None) -> Pool:
        """Read rows as a pool, with their features if those are not given. All rows of one local array are a memory
        map."""
        return Pool(**self.columns(rows, features))

    def columns(self, rows: np.ndarray, features: np.ndarray | None = None) -> dict[str, Any]:
        """Return what `pool` reads, by its name in `Pool`."""
        roles = [role for role in ("labels", "probabilities", "utility", "importance") if role in self.source.columns]
        if features is None:
            features = self.source.whole() if len(rows) == len(self.source) else self.source.features_at(rows)
        found: dict[str, Any] = {"features": features} | {role: self.source.values(role, rows) for role in roles}
        if "labels" in found:
            found["labels"] = class_numbers(found["labels"], self.classes)
        return found | {"query": self.query, "away_from": self.away_from}


def objective_of(given: str | Mapping[str, Any]) -> Objective:
    """Return the objective that a name, or a mapping of weights and options, means."""
    try:
        return as_objective(given) if isinstance(given, str) else Objective(**given)
    except TypeError as error:  # YAML reads nan and inf as text
        raise ValueError(str(error)) from error


def merge_objective(objective: Objective, reference: int, rows: int) -> Objective:
    """Return the objective of a merge that is scored against `reference` of the rows: similarities are summed over
    them alone."""
    if objective.neighbours is not None or not objective.covering or reference == rows:
        return objective
    return objective.changed(sample=reference)


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
