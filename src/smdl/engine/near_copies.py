"""Near-copies: groups of rows by cosine similarity, of which one each is kept.

Rows are visited in an order of preference. A row is kept unless a row that was kept before is similar enough: so a row
is a copy only of a kept row, and never because of a chain of rows that are similar pair by pair.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch

from smdl.common.local_engine import Engine, Local
from smdl.common.messages import choice, names_checked, number, one_of, whole_number
from smdl.common.names import KeptRow
from smdl.engine.blocks import tiles
from smdl.engine.jit import compiled
from smdl.engine.pool import Array
from smdl.engine.similar_pairs import Progress, SimilarPairs, scan, similar_pairs
from smdl.engine.unit_rows import RowArray, SomeRows, UnitRows, same_rows, unusable

KEEP = get_args(KeptRow)
#: How far a similarity may be below the threshold: what float32 loses in rows of up to about 4,096 columns.
TOLERANCE = 2.0**-20
#: Rows that are compared with rows of `against` at once.
BLOCK = 4096


@dataclass(frozen=True)
class Deduplication:
    """Which rows are kept, and what the others are copies of.

    Attributes:
        kept: the rows that are kept, ascending, (k,)
        copy_of: the kept row that a row is a copy of, (n,); a kept row itself; -1: a row of `against`
        against: the row of `against` that a row is a copy of, (n,); -1: none
        similarity: the cosine similarity with that row, (n,); NaN for kept rows
        threshold: similarity from which on a row counts as a copy
        floor: the lowest threshold that `at` takes
        recall: share of the similar pairs of random rows that the search has found; NaN if they have none
        search: the pairs that were found: what `at` and `pairs` read.

    Examples:
        >>> import numpy as np, smdl
        >>> found = smdl.deduplicate(np.array([[1.0, 0.0], [0.0, 1.0], [0.98, 0.2]]), 0.95)
        >>> found.kept.tolist(), found.at(0.999).kept.tolist()
        ([0, 1], [0, 1, 2])
    """

    kept: np.ndarray
    copy_of: np.ndarray
    against: np.ndarray
    similarity: np.ndarray
    threshold: float
    search: "CopySearch"

    @property
    def floor(self) -> float:
        return self.search.floor

    @property
    def recall(self) -> float:
        return self.search.pairs.recall

    def __len__(self) -> int:
        return len(self.copy_of)

    def at(self, similarity: float) -> "Deduplication":
        """Return the result of another threshold, without another search.

        Args:
            similarity: a threshold of at least `floor`.

        Raises:
            ValueError: the threshold is below the floor of the search, or above 1.
        """
        return self.search.resolve(similarity)

    def curve(self, points: int = 21) -> tuple[np.ndarray, np.ndarray]:
        """Return thresholds from the floor to 1, and how many rows each of them keeps."""
        thresholds = np.linspace(self.floor, 1.0, points)
        return thresholds, np.array([self.search.count(float(value)) for value in thresholds])

    def pairs(self, count: int = 8) -> tuple[np.ndarray, np.ndarray]:
        """Return pairs of rows just above the threshold and just below it, (count, 2) each, the nearest to it first."""
        return self.search.pairs_near(self.threshold, count)


@names_checked
def deduplicate(
    features: Array,
    similarity: float = 0.95,
    *,
    keep: KeptRow = "central",
    keep_by: Array | None = None,
    against: Array | None = None,
    floor: float | None = None,
    seed: int = 0,
) -> Deduplication:
    """Find groups of near-copies by cosine similarity, and keep one row of each.

    Args:
        features: the rows, (n, D): an array, a memory map or a tensor.
        similarity: cosine similarity from which on a row is a copy, in (0, 1].
        keep: "central" keeps the row with the most similar rows, "first" the one with the lowest number.
        keep_by: one number per row, (n,); the row with the highest number is kept, whatever `keep` says.
        against: other rows, (m, D), that count as kept: a test set, or what was kept of earlier shards.
        floor: lowest threshold that `at` will take; by default as far below `similarity` as 1 is above it.
        seed: seed of the random rows that the search is tuned and measured with.

    Returns:
        A Deduplication. Its method `at` gives the result of another threshold at once.

    Raises:
        ValueError: rows that are not finite or all zeros, another width in `against`, a threshold outside (0, 1].

    Examples:
        >>> import numpy as np, smdl
        >>> found = smdl.deduplicate(np.array([[1.0, 0.0], [0.0, 1.0], [0.999, 0.001]]), 0.95)
        >>> found.kept.tolist(), found.copy_of.tolist()
        ([0, 1], [0, 1, 0])
    """
    one_of("keep", keep, KEEP)
    rows = matrix("features", features)
    best = None if keep_by is None else _values(keep_by, len(rows))
    others = None if against is None else matrix("against", against, rows.shape[1])
    search = CopySearch.run(rows, threshold(similarity), floor, others, keep, best, seed)
    return search.resolve(similarity)


def threshold(value: Any, name: str = "similarity") -> float:
    """Return a similarity in (0, 1]."""
    allowed = "a number in (0, 1]"
    found = number(name, value, allowed, low=0.0, high=1.0)
    if found == 0:
        raise ValueError(choice(name, value, allowed))
    return found


@dataclass(frozen=True)
class CopySearch:
    """Rows, and those of their pairs whose similarity reaches the floor.

    rows      the rows of `against` and the features, in this order; `first` is the first of the features
    same      for each row, the row that holds the same numbers and is preferred to it; itself if there is none
    prefer    one number per feature row: the highest is kept; None: the most central
    """

    rows: UnitRows
    first: int
    floor: float
    same: np.ndarray
    pairs: SimilarPairs
    prefer: np.ndarray | None

    @classmethod
    def run(
        cls, features: RowArray, similarity: float, floor: float | None, against: np.ndarray | None, keep: str,
        keep_by: np.ndarray | None, seed: int = 0, progress: Progress | None = None, pairs: SimilarPairs | None = None,
        engine: Engine | None = None,
    ) -> "CopySearch":  # fmt: skip
        """Search, unless the pairs are given. The tasks of the search run on the engine, by default in this process."""
        whole_number("seed", seed, least=0)
        lowest = max(2 * similarity - 1, 0.5 * similarity) if floor is None else threshold(floor)
        if lowest > similarity:
            raise ValueError(choice("floor", floor, f"at most the similarity, {similarity}"))
        arrays: list[RowArray] = [features] if against is None else [against, features]
        engine = engine or Local()
        rows, first = UnitRows(arrays), 0 if against is None else len(against)
        prefer = np.arange(len(features), 0, -1.0) if keep == "first" else None
        prefer = prefer if keep_by is None else keep_by
        same = same_rows(rows, first, prefer, engine)
        unique = np.flatnonzero(same == np.arange(len(rows)))
        if pairs is None:
            some = rows if len(unique) == len(rows) else SomeRows(rows, unique)
            before = int(np.searchsorted(unique, first))
            found = similar_pairs(some, before, lowest - TOLERANCE, seed, progress, engine)
            pairs = _in_all_rows(found, unique, len(rows))
        return cls(rows, first, lowest, same, pairs, prefer)

    def resolve(self, similarity: float) -> Deduplication:
        """Keep rows at a threshold."""
        limit = threshold(similarity)
        if limit < self.floor:
            raise ValueError(choice("similarity", similarity, f"at least the floor of the search, {self.floor:g}"))
        keeper, value = self._visit(limit - TOLERANCE)
        self._assign(limit - TOLERANCE, keeper, value)
        rows = np.arange(len(self.rows))
        copies = self.same != rows
        keeper[copies], value[copies] = keeper[self.same[copies]], value[self.same[copies]]
        value[copies & (keeper == self.same)] = 1.0
        mine, values = keeper[self.first :], np.minimum(value[self.first :], 1.0).astype(np.float64)
        leaks = mine < self.first
        own = np.where(leaks, -1, mine - self.first)
        kept = np.flatnonzero(own == np.arange(len(own)))
        values[kept] = np.nan
        return Deduplication(kept, own, np.where(leaks, mine, -1), values, limit, self)

    def count(self, similarity: float) -> int:
        """Return how many rows a threshold keeps. Which kept row the others are copies of does not change it."""
        keeper, _ = self._visit(similarity - TOLERANCE)
        return int((keeper == np.arange(len(keeper)))[self.first :].sum())

    def pairs_near(self, similarity: float, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of feature rows just above and just below a threshold."""
        starts, others, values, *_ = self.pairs
        limit = similarity - TOLERANCE
        one = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
        once = (one < others) & (one >= self.first)
        one, two, values = one[once] - self.first, others[once] - self.first, values[once]
        above, below = (np.flatnonzero(found) for found in (values >= limit, values < limit))
        above = above[np.argsort(values[above], kind="stable")][:count]
        below = below[np.argsort(-values[below], kind="stable")][:count]
        return np.column_stack([one, two])[above], np.column_stack([one, two])[below]

    def _visit(self, limit: float) -> tuple[np.ndarray, np.ndarray]:
        """Return a kept row that each row is a copy of, itself if it is kept, and the similarities that scans found.
        Rows with the same numbers are visited once."""
        starts, others, values, cut, _ = self.pairs
        keeper, value = np.full(len(self.rows), -1, np.int64), np.zeros(len(self.rows), np.float32)
        keeper[: self.first] = np.arange(self.first)
        unique = np.flatnonzero(self.same[self.first :] == np.arange(self.first, len(self.rows))) + self.first
        counts = np.bincount(self.same, minlength=len(self.rows))
        if self.prefer is None:
            prefer = _degrees(starts, others, values, counts, limit)[unique]
        else:
            prefer = self.prefer[unique - self.first]
        order = unique[np.argsort(-prefer, kind="stable")]
        at = 0
        while at < len(order):
            at = _keep(order, at, starts, others, values, limit, keeper, cut >= limit)
            if at < len(order):
                self._scan(int(order[at]), limit, keeper, value)
                at += 1
        return keeper, value

    def _assign(self, limit: float, keeper: np.ndarray, value: np.ndarray) -> None:
        """Make each row that is not kept a copy of the most similar row of `against`, else of the most similar kept
        row. A list that is cut may lack that row of `against`."""
        starts, others, values, cut, _ = self.pairs
        _nearest_kept(starts, others, values, limit, keeper, value, self.first)
        if self.first:
            rows = np.flatnonzero((cut >= limit) & (keeper >= self.first) & (keeper != np.arange(len(keeper))))
            nearest, similarity = self._nearest_of_against(rows)
            leaks = similarity >= limit
            keeper[rows[leaks]], value[rows[leaks]] = nearest[leaks], similarity[leaks]

    def _scan(self, row: int, limit: float, keeper: np.ndarray, value: np.ndarray) -> None:
        """Look for all copies of a kept row whose list is cut. A copy of a row of `against` is not kept after all."""
        found, similarities = scan(self.rows, row, limit)
        if len(found) and found.min() < self.first:
            best = np.where(found < self.first, similarities, -1.0).argmax()
            keeper[row], value[row] = found[best], similarities[best]
            return
        free = keeper[found] == -1
        keeper[found[free]], value[found[free]] = row, similarities[free]

    @cached_property
    def _compared(self) -> tuple[np.ndarray, np.ndarray]:
        """The most similar row of `against` for each row, and the similarity; -1 for rows that no result needed yet."""
        return np.full(len(self.rows), -1, np.int64), np.full(len(self.rows), -1.0, np.float32)

    def _nearest_of_against(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the most similar row of `against` for each of some rows, and the similarity. Each row is compared
        once: the threshold does not matter."""
        nearest, similarity = self._compared
        new = rows[nearest[rows] == -1]
        for part in tiles(self.first if len(new) else 0, BLOCK):
            others = self.rows[part].T
            for some in (new[few] for few in tiles(len(new), BLOCK)):
                best, place = (each.numpy() for each in (self.rows[some] @ others).max(dim=1))
                better = (nearest[some] == -1) | (best > similarity[some])
                nearest[some[better]], similarity[some[better]] = place[better] + part.start, best[better]
        return nearest[rows], similarity[rows]


def _in_all_rows(found: SimilarPairs, unique: np.ndarray, rows: int) -> SimilarPairs:
    """Return pairs of unique rows as pairs of all rows."""
    lengths, cut = np.zeros(rows, np.int64), np.full(rows, -1.0, np.float32)
    lengths[unique], cut[unique] = np.diff(found.starts), found.cut
    return found._replace(starts=np.concatenate([[0], np.cumsum(lengths)]), others=unique[found.others], cut=cut)


@compiled
def _degrees(starts, others, values, counts, limit):
    found = np.zeros(len(starts) - 1)
    for i in range(len(found)):
        found[i] = counts[i]
        for at in range(starts[i], starts[i + 1]):
            if values[at] < limit:
                break
            found[i] += counts[others[at]]
    return found


@compiled
def _keep(order, at, starts, others, values, limit, keeper, is_cut):
    """Keep the rows that no kept row is similar to, in this order from `at` on. Stop at one whose list is cut."""
    for place in range(at, len(order)):
        i = order[place]
        if keeper[i] != -1:
            continue
        keeper[i] = i
        for t in range(starts[i], starts[i + 1]):
            j = others[t]
            if values[t] >= limit and keeper[j] == j and j != i:
                keeper[i] = j
                break
        if keeper[i] == i and is_cut[i]:
            return place
    return len(order)


@compiled
def _nearest_kept(starts, others, values, limit, keeper, value, first):
    """Make each row that is not kept a copy of the most similar row of `against`, else of the most similar kept row."""
    for i in range(first, len(starts) - 1):
        if keeper[i] == i:
            continue
        best = -1
        for t in range(starts[i], starts[i + 1]):
            j = others[t]
            if values[t] < limit:
                break
            if keeper[j] == j and (best == -1 or j < first):
                best = t
                if j < first:
                    break
        if best != -1 and (others[best] < first or (keeper[i] >= first and values[best] > value[i])):
            keeper[i], value[i] = others[best], values[best]


def matrix(name: str, given: Array, width: int | None = None) -> np.ndarray:
    """Return rows as an array of finite numbers, none of them all zeros."""
    found = _array(given)
    if found.ndim != 2 or not found.size or found.dtype.kind not in "fiub":
        raise ValueError(choice(name, f"{found.dtype} of shape {found.shape}", "numbers of shape (rows, columns)"))
    if width is not None and found.shape[1] != width:
        raise ValueError(choice(f"the width of {name}", found.shape[1], f"that of the features, {width}"))
    bad = unusable(found)
    if len(bad):
        rule = f"{name} must be rows that, as float32, are finite and not all zeros"
        raise ValueError(f"{rule}, got row {bad[0]} and {len(bad) - 1} more")
    return found


def _array(given: Array) -> np.ndarray:
    """Return an array, or the values of a tensor: those of bfloat16, which NumPy does not have, as float32."""
    if not isinstance(given, torch.Tensor):
        return np.asanyarray(given)
    found = given.detach().cpu()
    return (found.float() if found.dtype == torch.bfloat16 else found).numpy()


def _values(given: Array, rows: int) -> np.ndarray:
    found = _array(given)
    if found.shape != (rows,) or found.dtype.kind not in "fiub":
        raise ValueError(choice("keep_by", f"{found.dtype} of shape {found.shape}", f"{rows} finite numbers"))
    if not np.isfinite(found).all():
        row = int(np.isfinite(found).argmin())
        raise ValueError(f"keep_by must be {rows} finite numbers, got {found[row]} for row {row}")
    return found.astype(np.float64)
