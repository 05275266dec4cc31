"""A choice among random candidates, scored against random rows: facility location over many rows.

Only the drawn rows are read, by tasks where the files are. Other tasks compare candidates with the rows to be
represented and return lists. This process keeps the lists and picks from them, so that the engine, the number of
workers and the division into files change no pick.
"""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.common.local_engine import Engine
from smdl.common.messages import choice
from smdl.common.progress import Display
from smdl.engine.greedy.subset import Lists, Staged, rises
from smdl.engine.objective import Problem
from smdl.engine.pool import Pool
from smdl.engine.randomness import draws, sample_compiled, stream
from smdl.files.job import ChosenPart, Job, objective_of
from smdl.files.rows import Rows

#: Streams of random numbers below the seed. The rows to be represented are the same for every seed.
_CANDIDATES, _REPRESENTED, _PICKS = 110, 111, 112


class DrawnRows(NamedTuple):
    """Rows of the source that are read, and places among them."""

    rows: np.ndarray  # ascending
    represented: np.ndarray
    candidates: np.ndarray  # in random order
    initial: np.ndarray


@dataclass(frozen=True)
class SampledPool:
    """What the tasks share: the features of the drawn rows, and which of them are to be represented."""

    key: str
    objective: Any
    columns: dict[str, Any]  # of `Pool`
    represented: np.ndarray

    def problem(self) -> Problem:
        """Return the problem. A process makes it once."""
        if self.key not in _held:
            _held.clear()
            pool = Pool(**self.columns)
            pool.represented = self.represented
            objective = objective_of(self.objective).changed(sample=len(self.represented))
            _held[self.key] = objective.on(pool, "sample")
        return _held[self.key]


#: The problem that this process works on.
_held: dict[str, Problem] = {}


def choose_sampled(job: Job, stamps: Sequence[Any], engine: Engine, display: Display) -> ChosenPart:
    """Return the picks. `stamps` are those of the files when the command started."""
    drawn = draw(job)
    display.phase("reading the drawn rows")
    features = _read(job.source, drawn.rows, stamps, engine, display)
    shared = SampledPool(
        f"{id(job)}-{time.monotonic_ns()}", job.objective, job.columns(drawn.rows, features), drawn.represented
    )
    display.phase("choosing")
    try:
        problem = shared.problem()
        if problem.set_terms["facility_location"].unit == 0:  # all rows are the same point
            first = np.sort(drawn.candidates[: job.plan.size])
            return ChosenPart(drawn.rows[first], np.zeros(len(first)))
        problem.geometry.report = display.step
        held = engine.hold(shared)

        def lister(coverage: Tensor, parts: Iterator[np.ndarray]) -> Generator[Lists]:
            covered = engine.hold(coverage.numpy(force=True))
            yield from engine.in_order(_list, held, ((covered, part) for part in parts))

        key = stream((job.seed, _PICKS), 0)
        staged = Staged(problem, drawn.candidates.astype(np.int32), drawn.initial, key, lister)
        picks, gains = staged.run(min(job.plan.size, len(drawn.candidates)))
        return ChosenPart(drawn.rows[picks], gains)
    finally:
        _held.clear()


def draw(job: Job) -> DrawnRows:
    """Draw the rows to be represented and the candidates."""
    total, taken = len(job.source), np.union1d(job.exclude, job.initial)
    represented = random_rows(stream(0, _REPRESENTED), total, job.plan.represented, job.not_represented)
    without = np.union1d(job.dropped, taken)
    candidates = random_rows(stream(job.seed, _CANDIDATES), total, job.plan.candidates, without)
    rows = np.unique(np.concatenate([represented, candidates, job.initial]))
    place = partial(np.searchsorted, rows)
    return DrawnRows(rows, np.sort(place(represented)), place(candidates), place(job.initial))


def random_rows(key: int, total: int, count: int, without: np.ndarray) -> np.ndarray:
    """Return random rows of 0..total-1 that are not among `without` (ascending), in random order. Their number is
    `count`, or all that there are."""
    if total >= 1 << 32:
        raise ValueError(choice("the number of rows", total, "below 2³². Choose from some of the files at a time"))
    count = min(count, total - len(without))
    if 4 * (count + len(without)) >= total:  # few draws would be new
        order = np.setdiff1d(np.arange(total, dtype=np.int64), without, assume_unique=True)
        sample_compiled(order, len(order), count, np.uint64(key))
        return order[:count]
    found, start = np.empty(0, np.int64), 0
    while len(found) < count:
        more = draws(key, start, count, total)
        start += count
        found = np.concatenate([found, more[~np.isin(more, without)]])
        found = found[np.sort(np.unique(found, return_index=True)[1])]
    return found[:count]


def _read(source: Rows, rows: np.ndarray, stamps: Sequence[Any], engine: Engine, display: Display) -> np.ndarray:
    """Return the features of rows, (N, D), read by one task per file."""
    numbers = source.place(rows)[0]
    tasks = {number: (number, rows[numbers == number], stamps[number]) for number in np.unique(numbers).tolist()}
    found: dict[int, np.ndarray] = {}
    for number, features in engine.run(_read_file, source, tasks):
        found[number] = features
        display.step("reading the drawn rows, file", len(found), len(tasks))
    return np.concatenate([found[number] for number in sorted(found)])


def _read_file(source: Rows, number: int, rows: np.ndarray, stamp: Any) -> np.ndarray:
    source.check_stamp(number, stamp)
    found = source.features_at(rows)
    source.check_stamp(number, stamp)
    return found


def _list(shared: SampledPool, coverage: np.ndarray, candidates: np.ndarray) -> Lists:
    problem = shared.problem()
    best = torch.from_numpy(np.array(coverage)).to(problem.pool.device)
    return rises(problem.geometry, best, candidates)
