"""Greedy among random candidates, for pools in which every gain is too costly to compute.

Facility location goes in stages. A stage lists, for as many candidates as fit into the memory, the samples that each of
them covers better than the batch does, and then picks from these lists alone: coverage only rises, so a list never
misses a sample. The first lists are long and hold few candidates. As the batch grows, lists get short: the last stage
has all candidates, and computes each of their similarities once.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smdl.engine.blocks import ROWS, tiles
from smdl.engine.geometry import Geometry
from smdl.engine.greedy import kernels
from smdl.engine.objective import Problem
from smdl.engine.randomness import derive, sample_compiled
from smdl.engine.terms.facility_location import FacilityLocation, ListedFacilityLocation

#: Fewest candidates; how many there are for each pick if that is more; and for each pick of a stage before the last.
FEWEST, PER_PICK, PER_EARLY_PICK = 1 << 16, 16, 32

#: Entries of all lists, 8 bytes each. One list always fits.
ENTRIES = 1 << 25

#: Lengths of the lists of some candidates, and the lists: samples and similarities.
Lists = tuple[np.ndarray, np.ndarray, np.ndarray]

#: (coverage, parts of the candidates) -> the lists of each part, in order
Lister = Callable[[Tensor, Iterator[np.ndarray]], Generator[Lists]]


def candidates_for(size: int, n: int) -> int:
    """Return among how many of n candidates `size` samples are picked."""
    return min(n, max(FEWEST, PER_PICK * size))


def draw(part: np.ndarray, size: int, key: int) -> np.ndarray:
    """Return random candidates of a part, in random order."""
    order, count = part.copy(), candidates_for(size, len(part))
    sample_compiled(order, len(order), count, np.uint64(derive(key, 1)))
    return order[:count]


@dataclass
class _Lists:
    """The first `count` candidates with their lists."""

    count: int
    starts: np.ndarray
    samples: np.ndarray
    similarities: np.ndarray


class Staged:
    """Maximise facility location and modular scores over candidates in random order. A `lister` makes the lists
    elsewhere: in other processes."""

    def __init__(
        self, problem: Problem, candidates: np.ndarray, initial: np.ndarray, key: int, lister: Lister | None = None
    ) -> None:
        term = next(iter(problem.set_terms.values()))
        assert isinstance(term, FacilityLocation)
        self._problem, self._geometry, self._key = problem, problem.geometry, np.array([key], np.uint64)
        self._lister = lister or self._lists_here
        self._left, self._begun = candidates, len(initial) > 0
        self._coefficient, self._weights = problem.coefficient("facility_location") / term.grid, term.weights
        self._coverage = term.empty_coverage()
        for row in torch.from_numpy(initial.astype(np.int64)).to(term.pool.device):
            self._coverage = torch.maximum(self._coverage, term.similarities(row))

    def run(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the picks and their gains."""
        picked, gains = np.empty(size, np.int32), np.empty(size)
        done = 0
        while done < size:
            places, found = self._stage(size - done)
            now = slice(done, done + len(places))
            picked[now], gains[now] = self._left[places], found
            self._left, done = np.delete(self._left, places), now.stop
            self._geometry.report("picks", done, size)
        return picked, gains

    def _stage(self, missing: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of the next picks, and their gains."""
        lists = self._list()
        if lists.count == len(self._left):
            return self._pick(lists, missing)
        return self._pick(lists, min(missing, max(1, lists.count // PER_EARLY_PICK)))

    def _pick(self, lists: _Lists, count: int) -> tuple[np.ndarray, np.ndarray]:
        coverage = self._coverage.cpu().numpy()
        lists_of = (lists.starts, lists.samples, lists.similarities)
        term = ListedFacilityLocation(*lists_of, self._weights, coverage, self._coefficient)
        modular = self._problem.modular[self._left[: lists.count]]
        members = np.arange(lists.count, dtype=np.int32)
        before = np.full(int(self._begun), lists.count, np.int32)  # an empty list stands for the batch so far
        places, gains = np.empty(len(before) + count, np.int32), np.empty(count)
        kernels.exact(term, modular, members, count, -np.inf, True, self._key, before, places, gains, None)
        places, self._begun = places[len(before) :], True
        for place in places:
            mine = slice(lists.starts[place], lists.starts[place + 1])
            at = lists.samples[mine]
            coverage[at] = np.maximum(coverage[at], lists.similarities[mine])
        self._coverage = torch.from_numpy(coverage).to(self._coverage.device)
        return places, gains

    def _lists_here(self, coverage: Tensor, parts: Iterator[np.ndarray]) -> Generator[Lists]:
        for part in parts:
            yield rises(self._geometry, coverage, part)

    def _list(self) -> _Lists:
        """List candidates until the memory is full."""
        total, room, filled = len(self._left), max(ENTRIES, len(self._coverage)), 0
        samples, similarities = np.empty(room, np.int32), np.empty(room, np.float32)
        lengths: list[np.ndarray] = []
        self._longest, done = len(self._coverage), 0
        with closing(self._lister(self._coverage, self._parts())) as lists:
            for length, at, found in lists:
                self._longest, done = max(1, int(length.max())), done + len(length)
                fits = int(np.searchsorted(np.cumsum(length), room - filled, side="right"))  # at least one in all
                now = slice(filled, filled + int(length[:fits].sum()))
                samples[now], similarities[now] = at[: now.stop - now.start], found[: now.stop - now.start]
                lengths.append(length[:fits])
                filled = now.stop
                self._geometry.report("similarities", done, total)
                if fits < len(length):
                    break
        length = np.concatenate(lengths)
        starts = np.concatenate([[0], np.cumsum(length), [length.sum()]]).astype(np.int64)  # and one empty list
        return _Lists(len(length), starts, samples[:filled], similarities[:filled])

    def _parts(self) -> Iterator[np.ndarray]:
        """Yield the candidates that are left, so many at once that their lists fit into a part of the memory."""
        done = 0
        while done < len(self._left):
            step = int(np.clip(ENTRIES // (8 * self._longest), 1, 4 * ROWS))
            yield self._left[done : done + step]
            done += step


def rises(geometry: Geometry, coverage: Tensor, candidates: np.ndarray) -> Lists:
    """Return the samples that each candidate covers better than the batch does, in one array, and their numbers."""
    found = [_rises_of_few(geometry, coverage, candidates[part]) for part in tiles(len(candidates), ROWS)]
    length, samples, similarities = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return length, samples, similarities


def _rises_of_few(geometry: Geometry, coverage: Tensor, candidates: np.ndarray) -> Lists:
    blocks, caps = geometry.blocks, geometry.caps
    side, found = blocks.side(torch.from_numpy(candidates.astype(np.int64)).to(coverage.device)), []
    for columns, covered in geometry.covered_blocks():
        limits = None if caps is None else caps[columns]
        i, j, similarities = blocks.rises(side, covered, coverage[columns], limits)
        found.append((i, j + np.int32(columns.start), similarities))
    i, j, similarities = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    order = np.argsort(i.astype(np.int16), kind="stable")
    return np.bincount(i, minlength=len(candidates)), j[order], similarities[order]
