"""Greedy among random candidates, for pools in which every gain is too costly to compute.

Facility location goes in stages. A stage lists, for as many candidates as fit into the memory, the samples that each of
them covers better than the batch does, and then picks from these lists alone: coverage only rises, so a list never
misses a sample. The first lists are long and hold few candidates. As the batch grows, lists get short: the last stage
has all candidates, and computes each of their similarities once.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from smdl.engine.blocks import ROWS
from smdl.engine.greedy import kernels
from smdl.engine.objective import Problem
from smdl.engine.randomness import derive, sample_compiled
from smdl.engine.terms.facility_location import FacilityLocation, ListedFacilityLocation

#: Fewest candidates; how many there are for each pick if that is more; and for each pick of a stage before the last.
FEWEST, PER_PICK, PER_EARLY_PICK = 1 << 16, 16, 32

#: Entries of all lists, 8 bytes each. One list always fits.
ENTRIES = 1 << 25


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
    """Maximise facility location and modular scores over candidates in random order."""

    def __init__(self, problem: Problem, candidates: np.ndarray, initial: np.ndarray, key: int) -> None:
        term = next(iter(problem.set_terms.values()))
        assert isinstance(term, FacilityLocation)
        self._problem, self._geometry, self._key = problem, problem.geometry, np.uint64(key)
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

    def _list(self) -> _Lists:
        """List candidates until the memory is full."""
        total, room = len(self._left), max(ENTRIES, len(self._coverage))
        rows = torch.from_numpy(self._left.astype(np.int64)).to(self._coverage.device)
        lengths, samples, similarities = [], [], []
        done, longest = 0, len(self._coverage)
        while done < total:
            self._geometry.report("similarities", done, total)
            step = int(np.clip(ENTRIES // (4 * longest), 1, ROWS))
            length, at, found = self._rises(rows[done : done + step])
            longest = max(1, int(length.max()))
            done = min(done + step, total)
            if len(at) > room:  # as many as fit; at least one in all
                fits = int(np.searchsorted(np.cumsum(length), room, side="right"))
                kept = int(length[:fits].sum())
                length, at, found, done = length[:fits], at[:kept], found[:kept], total
            lengths.append(length)
            samples.append(at)
            similarities.append(found)
            room -= len(at)
        length = np.concatenate(lengths)
        starts = np.concatenate([[0], np.cumsum(length), [length.sum()]]).astype(np.int64)  # and one empty list
        return _Lists(len(length), starts, np.concatenate(samples), np.concatenate(similarities))

    def _rises(self, rows: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the lengths of the lists of some rows, and the lists."""
        blocks, caps = self._geometry.blocks, self._geometry.caps
        side, found = blocks.side(rows), []
        for columns, covered in self._geometry.covered_blocks():
            limits = None if caps is None else caps[columns]
            i, j, similarities = blocks.rises(side, covered, self._coverage[columns], limits)
            found.append((i, j + np.int32(columns.start), similarities))
        i, j, similarities = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = np.argsort(i.astype(np.int16), kind="stable")
        return np.bincount(i, minlength=len(rows)), j[order], similarities[order]
