"""FilePlan: how rows of files are chosen.

Facility location alone chooses among random candidates, scored against random rows: nothing else is read but once.
Everything else goes by random partitions, one selection per part, and merges in levels until one selection is left.
This is RandGreeDi (Barbosa et al., 2015) in levels: each merge returns the best of its selection and those it merges.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from smdl.engine.plan import PER_PICK
from smdl.engine.randomness import derive, draws, stream

#: Rows that one selection takes. More rows are split into parts: one part is what an interruption can lose.
PART_ROWS = 250_000
#: Random rows that the candidates of a merge are scored against; as many as the candidates, or 16 per pick, if those
#: are more.
REFERENCE_ROWS = 20_000
#: Streams of random numbers below the seed.
_PARTS, _REFERENCE = 100, 101


@dataclass(frozen=True)
class FilePlan:
    """Number of selections per level: (16, 4, 1) chooses in 16 parts, merges four results at a time, then four.
    With candidates there is one selection, among so many random rows, scored against `represented` random rows."""

    rows: int
    size: int
    levels: tuple[int, ...]
    candidates: int = 0
    represented: int = 0

    @property
    def partitions(self) -> int:
        return self.levels[0]

    def sources(self, level: int, number: int) -> range:
        """Return which results of the level before a merge takes."""
        before, now = self.levels[level - 1], self.levels[level]
        return range(number * before // now, (number + 1) * before // now)

    def pool_rows(self, level: int) -> int:
        """Return about how many rows a selection of this level looks at."""
        if level == 0:
            return math.ceil(self.rows / self.partitions)
        return min(self.rows, self.merged(level) + self.reference(level))

    def reference(self, level: int) -> int:
        """Return about how many random rows a merge of this level is scored against."""
        return min(self.rows, max(REFERENCE_ROWS, self.merged(level), PER_PICK * self.size))

    def merged(self, level: int) -> int:
        """Return about how many candidates a merge of this level has."""
        return math.ceil(self.levels[level - 1] / self.levels[level]) * self.size

    def lines(self) -> list[str]:
        """Describe the plan."""
        parts = self.partitions
        if self.candidates:
            return [
                f"one selection: {self.size:,} of {self.rows:,} rows, among {self.candidates:,} random candidates,"
                f" scored against {self.represented:,} random rows"
            ]
        if parts == 1:
            return [f"one selection: {self.size:,} of {self.rows:,} rows"]
        lines = [f"{parts:,} random parts of about {self.rows // parts:,} rows: {self.size:,} rows chosen from each"]
        for level, count in enumerate(self.levels[1:], start=1):
            what = "the last merge" if count == 1 else f"{count:,} merges"
            lines.append(
                f"{what}: {self.size:,} of {self.merged(level):,} candidates, scored against"
                f" {self.reference(level):,} random rows"
            )
        return lines


def make_plan(rows: int, size: int, partitions: int | None = None, part_rows: int = PART_ROWS) -> FilePlan:
    """Return the plan for choosing `size` of `rows`. By default a part has at most `part_rows` rows, or 2 × size."""
    if partitions is None:
        partitions = math.ceil(rows / max(part_rows, 2 * size))
    together = max(2, part_rows // size)  # results whose candidates fit one selection
    levels = [partitions]
    while levels[-1] > 1:
        levels.append(math.ceil(levels[-1] / together))
    return FilePlan(rows, size, tuple(levels))


def part_rows(seed: int, rows: int, partitions: int, number: int, shuffled: bool = False) -> np.ndarray:
    """Return the rows of a part, ascending. Each row draws its part by itself, so no permutation is held. If the rows
    are shuffled already, a part is a range of them."""
    if shuffled or partitions == 1:
        return np.arange(number * rows // partitions, (number + 1) * rows // partitions)
    key, found = stream(seed, _PARTS), []
    for start in range(0, rows, 1 << 22):
        numbers = np.arange(start, min(rows, start + (1 << 22)))
        drawn = draws(key, start, len(numbers), partitions)
        found.append(numbers[drawn == number])
    return np.concatenate(found)


def reference_rows(seed: int, level: int, number: int, rows: int, least: int = 0) -> np.ndarray:
    """Return about REFERENCE_ROWS random rows, or `least` if that is more, ascending: all rows if there are no more."""
    count = max(REFERENCE_ROWS, least)
    if rows <= count:
        return np.arange(rows)
    key = derive(derive(stream(seed, _REFERENCE), level), number)
    return np.unique(draws(key, 0, count, rows))


def check_rows(name: str, rows: Any, total: int) -> np.ndarray:
    """Return row numbers as a sorted array, if each is a row of the source and none is given twice."""
    found = np.asarray(rows)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be row numbers, got {found.dtype} of shape {found.shape}")
    if found.size and not 0 <= int(found.min()) <= int(found.max()) < total:
        wrong = found.min() if found.min() < 0 else found.max()
        raise ValueError(f"{name} must be rows in 0..{total - 1}, got {wrong}")
    unique, counts = np.unique(found, return_counts=True)
    if len(unique) < len(found):
        raise ValueError(f"{name} must name each row once, got row {unique[counts.argmax()]} {counts.max()} times")
    return unique.astype(np.int64)
