"""Pairs of rows whose cosine similarity reaches a floor: exactly, or among the rows of nearby cells.

Dot products of 64 principal components and the lengths of what they leave out bound a similarity from above, so that
few pairs need all columns. Many rows are divided into cells around random rows, and a row is compared with the rows of
its nearest cells. How many cells is decided by the exact pairs of random rows; the recall is measured on others.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.common.local_engine import Engine, Local
from smdl.engine.blocks import tiles
from smdl.engine.unit_rows import READ, UnitRows

#: Rows up to which every pair is looked at.
EXACT_ROWS = 30_000
#: Principal components that bound a similarity; random rows that they are computed from.
COMPONENTS, COMPONENT_ROWS = 64, 20_000
#: Columns up to which they are exact, and rounds that approach them for more: of 4,096 columns, exact ones take 15 s.
EXACT_COLUMNS, ROUNDS = 1024, 4
#: Rows whose exact pairs decide how many cells a row is compared with, and as many that measure the recall.
SAMPLE = 256
#: The share of the sample's pairs that the cells must hold; the numbers of cells that are tried.
RECALL, PROBES = 0.9995, (4, 8, 16, 32)
#: Most pairs of a row that are kept, and pairs of all rows that are held before longer lists are cut.
LONGEST, HELD = 64, 30_000_000
#: Rows of a block of similarities: of the one side, of the other.
BLOCK, OTHERS = 2048, 8192
#: Fewest similarities of a task.
TASK = 1 << 25
#: Cells of a group, of which only the nearest is compared first; rows whose nearest cells are looked for at once.
GROUP, ASKING = 16, 128
#: How far the similarity of the components may be off, by the size of their type.
SLACK = {4: 1e-4, 2: 4e-3}

Progress = Callable[[str, int, int], None]


class SimilarPairs(NamedTuple):
    """Pairs by their first row: those of row i are at starts[i]:starts[i + 1], the most similar first.

    cut      the smallest similarity in a list that was cut at its longest; -1 where the list is complete
    recall   share of the pairs of random rows that were found; NaN if no random row has a pair
    """

    starts: np.ndarray  # (n + 1,)
    others: np.ndarray  # int64
    similarities: np.ndarray  # float32
    cut: np.ndarray  # (n,) float32
    recall: float


class Components(NamedTuple):
    """All rows in the space of their principal components, and the length of what is left out."""

    values: np.ndarray  # (N, P)
    rest: np.ndarray  # (N,) float32

    def bounds(self, some: np.ndarray, others: np.ndarray) -> Tensor:
        """Return upper bounds of the similarities of some rows and others."""
        one, two = (self._with_rest(rows) for rows in (some, others))
        return one @ two.T

    def _with_rest(self, rows: np.ndarray) -> Tensor:
        values, rest = torch.from_numpy(self.values[rows]).float(), torch.from_numpy(self.rest[rows])
        return torch.cat([values, rest[:, None]], dim=1)


class RowBlock(NamedTuple):
    """Rows that are compared with other rows, and how much of the work is done then."""

    some: np.ndarray
    others: np.ndarray
    done: int
    total: int


def similar_pairs(
    rows: UnitRows,
    first: int,
    floor: float,
    seed: int = 0,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> SimilarPairs:
    """Return the pairs (i, j) of similarity ≥ floor. Row i is at least `first`: earlier rows are not compared with each
    other. The engine changes where the work is done, and no pair."""
    engine, report = engine or Local(), progress or (lambda *_: None)
    held_rows = engine.hold(rows)
    components = _components(rows, held_rows, seed, report, engine)
    held = engine.hold(components)
    recall, blocks = 1.0, _all_pairs(len(rows), first)
    if len(rows) > EXACT_ROWS:
        cells = _Cells(rows, held_rows, components, held, first, floor, seed, report, engine)
        recall, blocks = cells.recall, blocks if cells.probes is None else cells.blocks()
    pairs, cut = _Held(len(rows)), np.full(len(rows), -1.0, np.float32)
    slack = SLACK[components.values.itemsize]
    tasks = ((held, floor, slack, several) for several in _tasks(blocks))
    for found, done, total in engine.in_order(_compare, held_rows, tasks):
        pairs.add(*found)
        if pairs.count > HELD:
            pairs.shorten(cut)
        report("comparing rows, block", done, total)
    pairs.shorten(cut)
    return _symmetric(pairs, cut, first, recall)


def scan(rows: UnitRows, row: int, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return all other rows whose similarity with a row reaches the floor, and the similarities."""
    one, found, similarities = rows[np.array([row])], [], []
    for part in tiles(len(rows), READ):
        values = (rows[part] @ one[0]).numpy()
        inside = np.flatnonzero(values >= floor)
        found.append(inside + part.start)
        similarities.append(values[inside])
    others, values = np.concatenate(found), np.concatenate(similarities)
    return others[others != row], values[others != row]


def _components(rows: UnitRows, held_rows: Any, seed: int, report: Progress, engine: Engine) -> Components:
    """Project all rows on the first principal components of some."""
    few = np.arange(len(rows))
    if len(rows) > COMPONENT_ROWS:
        few = np.sort(np.random.default_rng([seed, 0]).choice(len(rows), COMPONENT_ROWS, replace=False))
    width = min(COMPONENTS, rows.width)
    axes = _axes(rows[few], width, seed).numpy()
    kind = np.float16 if len(rows) * width * 4 > 1 << 30 else np.float32
    found = Components(np.empty((len(rows), width), kind), np.empty(len(rows), np.float32))
    parts, held = list(tiles(len(rows), READ)), engine.hold(axes)
    projected = engine.in_order(_project, held_rows, ((held, kind, part) for part in parts))
    for part, (values, rest) in zip(parts, projected, strict=True):
        found.values[part], found.rest[part] = values, rest
        report("reading rows, row", part.stop, len(rows))
    return found


def _axes(some: Tensor, width: int, seed: int) -> Tensor:
    """Return directions at right angles, (D, width): the principal components, or nearly."""
    if some.shape[1] <= EXACT_COLUMNS:
        return torch.linalg.eigh((some.T @ some).double())[1][:, -width:].float()
    found = torch.from_numpy(np.random.default_rng([seed, 3]).standard_normal((some.shape[1], width), np.float32))
    for _ in range(ROUNDS):
        found = torch.linalg.qr((some.T @ (some @ found)).double())[0].float()
    return found


def _project(rows: UnitRows, axes: np.ndarray, kind: type, part: slice) -> tuple[np.ndarray, np.ndarray]:
    values = rows[part]
    projected = values @ torch.tensor(axes)
    rest = (values.square().sum(dim=1) - projected.square().sum(dim=1)).clamp_min(0).sqrt()
    return projected.numpy().astype(kind), rest.numpy()


def _all_pairs(count: int, first: int) -> Iterator[RowBlock]:
    """Yield blocks of rows and of the rows before them and among them: every pair once."""
    starts, done = range(first, count, BLOCK), 0
    total = sum(math.ceil(min(count, start + BLOCK) / OTHERS) for start in starts)
    for start in starts:
        some = np.arange(start, min(count, start + BLOCK))
        for part in tiles(int(some[-1]) + 1, OTHERS):
            done += 1
            yield RowBlock(some, np.arange(part.start, part.stop), done, total)


class _Cells:
    """Rows by the cells that they are nearest to, and how many cells a row is compared with; none if cells miss too
    many pairs."""

    def __init__(
        self, rows: UnitRows, held_rows: Any, components: Components, held: Any, first: int, floor: float, seed: int,
        report: Progress, engine: Engine,
    ) -> None:  # fmt: skip
        rng, count = np.random.default_rng([seed, 1]), len(rows)
        self.first, self.count = first, GROUP * math.ceil(4 * math.sqrt(count) / GROUP)
        centres = engine.hold(components.values[rng.choice(count, self.count, replace=False)])
        self.nearest = np.empty((count, min(PROBES[-1], self.count // GROUP)), np.int32)
        parts = list(tiles(count, READ))
        found = engine.in_order(_nearest_cells, held, ((centres, self.nearest.shape[1], part) for part in parts))
        for part, nearest in zip(parts, found, strict=True):
            self.nearest[part] = nearest
            report("dividing rows into cells, row", part.stop, count)
        drawn = rng.permutation(np.arange(first, count))[: 2 * SAMPLE]
        one, two, held_drawn = [], [], engine.hold((drawn, rows[drawn].numpy()))
        pairs = engine.in_order(_pairs_of_some, held_rows, ((held_drawn, floor, part) for part in parts))
        for part, (places, others) in zip(parts, pairs, strict=True):
            one.append(places)
            two.append(others)
            report("measuring the recall, row", part.stop, count)
        places, others = np.concatenate(one), np.concatenate(two)
        tried, measured = ((drawn[places[side]], others[side]) for side in (places < SAMPLE, places >= SAMPLE))
        self.probes = next((number for number in PROBES if self._share(*tried, number) >= RECALL), None)
        self.recall = 1.0
        if self.probes is not None:
            self.recall = self._share(*measured, self.probes) if len(measured[0]) else float("nan")

    def _share(self, one: np.ndarray, two: np.ndarray, probes: int) -> float:
        """Return the share of pairs that are compared, from either side, if a row looks into so many cells."""
        if not len(one):
            return 1.0 if probes >= PROBES[-2] else 0.0  # nothing to decide by: not the fewest
        found = (self.nearest[one, :probes] == self.nearest[two, :1]).any(axis=1)
        found |= (two >= self.first) & (self.nearest[two, :probes] == self.nearest[one, :1]).any(axis=1)
        return float(found.mean())

    def blocks(self) -> Iterator[RowBlock]:
        """Yield the rows that are compared with a cell, and the rows of the cell."""
        home, homes = self._by_cell(0, 0)
        asking, edges = zip(*(self._by_cell(self.first, place) for place in range(self.probes or 0)), strict=True)
        del self.nearest  # as large as what was made of it
        for cell in range(self.count):
            some = np.concatenate([rows[at[cell] : at[cell + 1]] for rows, at in zip(asking, edges, strict=True)])
            others = home[homes[cell] : homes[cell + 1]]
            for low in tiles(len(some), BLOCK):
                for left in tiles(len(others), OTHERS):
                    yield RowBlock(some[low], others[left], cell + 1, self.count)

    def _by_cell(self, start: int, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows from `start` on by the cell that is the nearest, the second nearest, ... to them, and where
        the rows of each cell begin."""
        cells = self.nearest[start:, place]
        order = np.argsort(cells, kind="stable")
        starts = np.searchsorted(cells[order], np.arange(self.count + 1))
        return (order + start).astype(np.int32 if start + len(order) < 1 << 31 else np.int64), starts


def _nearest_cells(components: Components, centres: np.ndarray, count: int, part: slice) -> np.ndarray:
    """Return the nearest cells of each row, the nearest first."""
    axes = torch.from_numpy(centres.astype(np.float32)).T
    found = np.empty((part.stop - part.start, count), np.int32)
    for few in tiles(len(found), ASKING):
        rows = components.values[part.start + few.start : part.start + few.stop]
        found[few] = _largest(torch.from_numpy(rows).float() @ axes, count).numpy()
    return found


def _largest(values: Tensor, count: int) -> Tensor:
    """Return the places of the largest values of each row, the largest first. They are in the groups with the largest
    maxima, so the others are not looked at again."""
    groups = values.view(len(values), GROUP, -1)  # group g holds the columns g, g + n, g + 2n, ... of n groups
    best = groups.amax(dim=1).topk(count, dim=1, sorted=False).indices
    inside = groups.gather(2, best[:, None].expand(-1, GROUP, -1)).flatten(1)
    found = inside.topk(count, dim=1).indices
    return found // count * groups.shape[2] + best.gather(1, found % count)


def _pairs_of_some(
    rows: UnitRows, some: tuple[np.ndarray, np.ndarray], floor: float, part: slice
) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of some rows, by their places, with other rows of a part."""
    drawn, ones = some
    one, two = (torch.tensor(ones) @ rows[part].T >= floor).numpy().nonzero()
    two += part.start
    differ = drawn[one] != two
    return one[differ], two[differ]


def _tasks(blocks: Iterator[RowBlock]) -> Iterator[list[RowBlock]]:
    """Join small blocks."""
    joined: list[RowBlock] = []
    for block in blocks:
        joined.append(block)
        if sum(len(each.some) * len(each.others) for each in joined) >= TASK:
            yield joined
            joined = []
    if joined:
        yield joined


def _compare(
    rows: UnitRows, components: Components, floor: float, slack: float, blocks: list[RowBlock]
) -> tuple[tuple[np.ndarray, np.ndarray, np.ndarray], int, int]:
    """Return the pairs of some blocks, of each row at most one more than are kept in the end."""
    found = zip(*(_above(rows, components, *block[:2], floor, slack) for block in blocks), strict=True)
    one, two, values = (np.concatenate(arrays) for arrays in found)
    if len(one) > LONGEST:
        one, two, values, place = _sorted(one, two, values)
        one, two, values = (array[place <= LONGEST] for array in (one, two, values))
    return (one, two, values), blocks[-1].done, blocks[-1].total


def _above(
    rows: UnitRows, components: Components, some: np.ndarray, others: np.ndarray, floor: float, slack: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs of some rows with others whose exact similarity reaches the floor."""
    bounds = components.bounds(some, others)
    near = (bounds.amax(dim=1) >= floor - slack).nonzero()[:, 0]  # most rows have no pair
    one, two = (places.numpy() for places in (bounds[near] >= floor - slack).nonzero(as_tuple=True))
    one = near.numpy()[one]
    if 16 * len(one) > len(some) * len(others):  # a block of copies: all columns of all rows at once
        similarities = rows[some] @ rows[others].T
        one, two = (places.numpy() for places in (similarities >= floor).nonzero(as_tuple=True))
        values = similarities.numpy()[one, two]
    else:
        left, first = np.unique(some[one], return_inverse=True)
        right, second = np.unique(others[two], return_inverse=True)
        ones, twos = rows[left], rows[right]
        parts = range(0, len(one), 1 << 16)
        found = [(ones[first[at : at + (1 << 16)]] * twos[second[at : at + (1 << 16)]]).sum(dim=1) for at in parts]
        values = torch.cat(found).numpy() if found else np.empty(0, np.float32)
    keep = (values >= floor) & (some[one] != others[two])
    return some[one[keep]], others[two[keep]], np.minimum(values[keep], 1.0)


class _Held:
    """Pairs that were found so far. The lists of rows with very many are cut."""

    def __init__(self, rows: int) -> None:
        self.rows, self.count = rows, 0
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, one: np.ndarray, two: np.ndarray, values: np.ndarray) -> None:
        self._parts.append((one, two, values))
        self.count += len(one)

    def all(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        one, two, values = zip(*self._parts, strict=True) if self._parts else ([[]], [[]], [[]])
        return (
            np.concatenate(one).astype(np.int64),
            np.concatenate(two).astype(np.int64),
            np.concatenate(values).astype(np.float32),
        )

    def shorten(self, cut: np.ndarray) -> None:
        """Keep the most similar pairs of each row, at most LONGEST; note in `cut` how similar the last of them is."""
        one, two, values, place = _sorted(*self.all())
        last = np.flatnonzero(place == LONGEST)
        cut[one[last]] = np.maximum(cut[one[last]], values[last - 1]) if len(last) else cut[one[last]]
        keep = place < LONGEST
        self._parts, self.count = [(one[keep], two[keep], values[keep])], int(keep.sum())


def _sorted(
    one: np.ndarray, two: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs by their first row, the most similar first, and the place of each among those of its row."""
    order = np.lexsort((two, -values, one))
    one = one[order]
    return one, two[order], values[order], np.arange(len(one)) - np.searchsorted(one, one)


def _symmetric(held: _Held, cut: np.ndarray, first: int, recall: float) -> SimilarPairs:
    """Return the pairs of both directions, each once."""
    one, two, values = held.all()
    back = two >= first
    one, two = np.concatenate([one, two[back]]), np.concatenate([two, one[back]])
    values = np.concatenate([values, values[back]])
    _, places = np.unique(one * held.rows + two, return_index=True)
    one, two, values = one[places], two[places], values[places]
    order = np.lexsort((two, -values, one))
    starts = np.searchsorted(one[order], np.arange(held.rows + 1))
    return SimilarPairs(starts, two[order], values[order], cut, recall)
