"""Pairs of rows whose cosine similarity reaches a floor: exactly, or among the rows of nearby cells.

Dot products of 64 principal components and the lengths of what they leave out bound a similarity from above, so that
few pairs need all columns. Many rows are divided into cells around random rows, and a row is compared with the rows of
its nearest cells. How many cells is decided by the exact pairs of random rows; the recall is measured on others.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

#: Rows up to which every pair is looked at.
EXACT_ROWS = 30_000
#: Principal components that bound a similarity; random rows that they are computed from.
COMPONENTS, COMPONENT_ROWS = 64, 20_000
#: Rows whose exact pairs decide how many cells a row is compared with, and as many that measure the recall.
SAMPLE = 256
#: The share of the sample's pairs that the cells must hold; the numbers of cells that are tried.
RECALL, PROBES = 0.9995, (4, 8, 16, 32)
#: Most pairs of a row that are kept, and pairs of all rows that are held before longer lists are cut.
LONGEST, HELD = 64, 30_000_000
#: Rows of a block of similarities: of the one side, of the other.
BLOCK, OTHERS = 2048, 8192
#: How far the similarity of the components may be off, by the size of their type.
SLACK = {4: 1e-4, 2: 4e-3}

Progress = Callable[[str, int, int], None]


class UnitRows:
    """The rows of one or several arrays, scaled to length 1 where they are read."""

    def __init__(self, arrays: Sequence[np.ndarray]) -> None:
        self.arrays = arrays
        self.offsets = np.cumsum([0, *(len(array) for array in arrays)])
        self.width = int(arrays[0].shape[1])

    def __len__(self) -> int:
        return int(self.offsets[-1])

    def raw(self, rows: np.ndarray) -> np.ndarray:
        """Return rows as float32."""
        found = np.empty((len(rows), self.width), np.float32)
        places = np.searchsorted(self.offsets, rows, side="right") - 1
        for number, array in enumerate(self.arrays):
            inside = places == number
            if inside.any():
                found[inside] = array[rows[inside] - self.offsets[number]]
        return found

    def __getitem__(self, rows: np.ndarray) -> Tensor:
        found = torch.from_numpy(self.raw(rows))
        return found / found.norm(dim=1, keepdim=True)

    def blocks(self, size: int = 16_384) -> Iterator[np.ndarray]:
        """Yield the numbers of all rows, block by block."""
        for start in range(0, len(self), size):
            yield np.arange(start, min(len(self), start + size))


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

    values: Tensor  # (N, P)
    rest: Tensor  # (N,)

    def bounds(self, some: np.ndarray, others: np.ndarray) -> Tensor:
        """Return upper bounds of the similarities of some rows and others."""
        one, two = (self.values[torch.from_numpy(rows)].float() for rows in (some, others))
        first, second = (self.rest[torch.from_numpy(rows)] for rows in (some, others))
        return torch.addmm(first[:, None] * second, one, two.T)


def similar_pairs(
    rows: UnitRows, first: int, floor: float, seed: int = 0, progress: Progress | None = None
) -> SimilarPairs:
    """Return the pairs (i, j) of similarity ≥ floor. Row i is at least `first`: earlier rows are not compared with each
    other."""
    components = _components(rows, seed)
    slack = SLACK[components.values.element_size()]
    recall, tasks = 1.0, _all_pairs(len(rows), first)
    if len(rows) > EXACT_ROWS:
        recall, found = _cell_pairs(rows, components, first, floor, seed)
        tasks = tasks if found is None else found
    held, cut = _Held(len(rows)), np.full(len(rows), -1.0, np.float32)
    for done, (some, others, total) in enumerate(tasks):
        held.add(*_above(rows, components, some, others, floor, slack))
        if held.count > HELD:
            held.shorten(cut)
        if progress is not None:
            progress("comparing rows, block", done + 1, total)
    held.shorten(cut)
    return _symmetric(held, cut, first, recall)


def scan(rows: UnitRows, row: int, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return all other rows whose similarity with a row reaches the floor, and the similarities."""
    one, found, similarities = rows[np.array([row])], [], []
    for block in rows.blocks():
        values = (rows[block] @ one[0]).numpy()
        inside = (values >= floor) & (block != row)
        found.append(block[inside])
        similarities.append(values[inside])
    return np.concatenate(found), np.concatenate(similarities)


def _components(rows: UnitRows, seed: int) -> Components:
    """Project all rows on the first principal components of some."""
    few = np.arange(len(rows))
    if len(rows) > COMPONENT_ROWS:
        few = np.sort(np.random.default_rng([seed, 0]).choice(len(rows), COMPONENT_ROWS, replace=False))
    width, some = min(COMPONENTS, rows.width), rows[few]
    axes = torch.linalg.eigh((some.T @ some).double())[1][:, -width:].float()
    half = len(rows) * width * 4 > 1 << 30
    values, rest = torch.empty(len(rows), width, dtype=torch.half if half else torch.float), torch.empty(len(rows))
    for block in rows.blocks():
        part, place = rows[block], slice(int(block[0]), int(block[-1]) + 1)
        projected = part @ axes
        values[place] = projected
        rest[place] = (part.square().sum(dim=1) - projected.square().sum(dim=1)).clamp_min(0).sqrt()
    return Components(values, rest)


def _all_pairs(count: int, first: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield blocks of rows and of the rows before them and among them: every pair once."""
    starts = range(first, count, BLOCK)
    total = sum(math.ceil(min(count, start + BLOCK) / OTHERS) for start in starts)
    for start in starts:
        some = np.arange(start, min(count, start + BLOCK))
        for before in range(0, int(some[-1]) + 1, OTHERS):
            yield some, np.arange(before, min(int(some[-1]) + 1, before + OTHERS)), total


def _cell_pairs(
    rows: UnitRows, components: Components, first: int, floor: float, seed: int
) -> tuple[float, Iterator[tuple[np.ndarray, np.ndarray, int]] | None]:
    """Return the recall and the blocks of rows to compare, cell by cell; no blocks if cells miss too many pairs."""
    rng, count = np.random.default_rng([seed, 1]), len(rows)
    cells = int(4 * math.sqrt(count))
    centres = components.values[torch.from_numpy(rng.choice(count, cells, replace=False))].float()
    nearest = torch.empty(count, min(PROBES[-1], cells), dtype=torch.int32)
    for block in rows.blocks(4096):
        place = slice(int(block[0]), int(block[-1]) + 1)
        nearest[place] = (components.values[place].float() @ centres.T).topk(nearest.shape[1], dim=1).indices.int()
    drawn = rng.permutation(np.arange(first, count))[: 2 * SAMPLE]
    tried, measured = (_exact_pairs(rows, some, floor) for some in (drawn[:SAMPLE], drawn[SAMPLE:]))
    probes = next((number for number in PROBES if _share(nearest, *tried, number, first) >= RECALL), None)
    if probes is None:
        return 1.0, None
    recall = _share(nearest, *measured, probes, first) if len(measured[0]) else float("nan")
    return recall, _cell_blocks(nearest[:, :probes].numpy(), first, cells)


def _cell_blocks(nearest: np.ndarray, first: int, cells: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    """Yield the rows that are compared with a cell, and the rows of the cell."""
    home = np.argsort(nearest[:, 0], kind="stable")
    homes = np.searchsorted(nearest[home, 0], np.arange(cells + 1))
    asking = nearest[first:].ravel()
    order = np.argsort(asking, kind="stable")
    edges, order = np.searchsorted(asking[order], np.arange(cells + 1)), order // nearest.shape[1] + first
    for cell in range(cells):
        some, others = order[edges[cell] : edges[cell + 1]], home[homes[cell] : homes[cell + 1]]
        for low in range(0, len(some), BLOCK):
            for left in range(0, len(others), OTHERS):
                yield some[low : low + BLOCK], others[left : left + OTHERS], cells


def _exact_pairs(rows: UnitRows, some: np.ndarray, floor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of some rows with any other row."""
    ones, firsts, seconds = rows[some], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    if not len(some):
        return firsts[0], seconds[0]
    for block in rows.blocks():
        one, two = (places.numpy() for places in (ones @ rows[block].T >= floor).nonzero(as_tuple=True))
        firsts.append(some[one])
        seconds.append(block[two])
    one, two = np.concatenate(firsts), np.concatenate(seconds)
    return one[one != two], two[one != two]


def _share(nearest: Tensor, one: np.ndarray, two: np.ndarray, probes: int, first: int) -> float:
    """Return the share of pairs that are compared, from either side, if a row looks into so many cells."""
    if not len(one):
        return 1.0 if probes >= PROBES[-2] else 0.0  # nothing to decide by: not the fewest
    cells = nearest.numpy()
    found = (cells[one, :probes] == cells[two, :1]).any(axis=1)
    found |= (two >= first) & (cells[two, :probes] == cells[one, :1]).any(axis=1)
    return float(found.mean())


def _above(
    rows: UnitRows, components: Components, some: np.ndarray, others: np.ndarray, floor: float, slack: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the pairs of some rows with others whose exact similarity reaches the floor."""
    one, two = (places.numpy() for places in (components.bounds(some, others) >= floor - slack).nonzero(as_tuple=True))
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
        one, two, values = self.all()
        order = np.lexsort((two, -values, one))
        one, two, values = one[order], two[order], values[order]
        place = np.arange(len(one)) - np.searchsorted(one, one)
        last = np.flatnonzero(place == LONGEST)
        cut[one[last]] = np.maximum(cut[one[last]], values[last - 1]) if len(last) else cut[one[last]]
        keep = place < LONGEST
        self._parts, self.count = [(one[keep], two[keep], values[keep])], int(keep.sum())


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
