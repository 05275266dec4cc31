"""Rows that are compared by their direction: read block by block from arrays or files, and scaled to length 1."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from smdl.common.local_engine import Engine
from smdl.engine.blocks import tiles

#: Rows that are read at once; rows whose numbers are held as uint64 at once.
READ, HASHED = 1 << 14, 1 << 10
#: Lengths of rows whose squares neither overflow nor underflow in float32.
SAFE = (1e-15, 1e15)


class RowArray(Protocol):
    """An array (n, D), or what reads its rows from files."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def __len__(self) -> int: ...
    def __getitem__(self, rows: Any, /) -> np.ndarray: ...


class UnitRows:
    """The rows of one or several arrays, scaled to length 1 where they are read."""

    def __init__(self, arrays: Sequence[RowArray]) -> None:
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

    def __getitem__(self, rows: np.ndarray | slice) -> Tensor:
        found = torch.from_numpy(self.raw(np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows))
        lengths = found.norm(dim=1, keepdim=True)
        if len(found) and not SAFE[0] < float(lengths.min()) <= float(lengths.max()) < SAFE[1]:
            found = _scaled(found)  # by powers of two: the unit rows have the same bits
            lengths = found.norm(dim=1, keepdim=True)
        return found / lengths


def _scaled(rows: Tensor) -> Tensor:
    """Return rows times powers of two, so that the largest number of each is between ½ and 1."""
    exponents = torch.frexp(rows.abs().amax(dim=1, keepdim=True)).exponent
    half = -exponents // 2  # the whole power may be no float32
    return torch.ldexp(torch.ldexp(rows, half), -exponents - half)


class SomeRows(UnitRows):
    """Some of the rows, numbered from 0."""

    def __init__(self, rows: UnitRows, some: np.ndarray) -> None:
        self.all, self.some, self.width = rows, some, rows.width

    def __len__(self) -> int:
        return len(self.some)

    def raw(self, rows: np.ndarray) -> np.ndarray:
        return self.all.raw(self.some[rows])


def same_rows(rows: UnitRows, first: int, prefer: np.ndarray | None, engine: Engine) -> np.ndarray:
    """Return for each row the preferred one of those with the same numbers: of the rows before `first` at best."""
    parts = list(tiles(len(rows), READ))
    keys = np.concatenate([*engine.in_order(_keys, rows, ((part,) for part in parts))])
    value = np.full(len(rows), np.inf)
    value[first:] = 0.0 if prefer is None else prefer
    order = np.lexsort((np.arange(len(rows)), -value, keys))
    heads = np.flatnonzero(np.diff(keys[order], prepend=keys[order[:1]] ^ np.uint64(1)) != 0)
    same = np.empty(len(rows), np.int64)
    same[order] = order[heads[np.searchsorted(heads, np.arange(len(rows)), side="right") - 1]]
    copies = np.flatnonzero(same != np.arange(len(rows)))
    for place in tiles(len(copies), READ):
        part = copies[place]
        differ = (rows.raw(part) != rows.raw(same[part])).any(axis=1)
        same[part[differ]] = part[differ]  # two rows of one key
    return same


def _keys(rows: UnitRows, part: slice) -> np.ndarray:
    """Return a number per row. Equal rows have equal numbers."""
    weights = np.random.default_rng(0).integers(1, 1 << 62, size=rows.width, dtype=np.uint64) | np.uint64(1)
    found = np.empty(part.stop - part.start, np.uint64)
    for few in tiles(len(found), HASHED):
        raw = rows.raw(np.arange(part.start + few.start, part.start + few.stop))
        with np.errstate(over="ignore"):
            bits = (raw + np.float32(0)).view(np.uint32).astype(np.uint64)  # -0 becomes 0
            bits = (bits ^ (bits >> np.uint64(15))) * np.uint64(0x9E3779B97F4A7C15)
            found[few] = ((bits ^ (bits >> np.uint64(31))) * weights).sum(axis=1, dtype=np.uint64)
    return found


def unusable(rows: np.ndarray) -> np.ndarray:
    """Return the rows without a direction: not finite as float32, or all zeros."""
    found = [np.empty(0, np.int64)]
    for part in tiles(len(rows), READ):
        with np.errstate(over="ignore"):
            block = np.asarray(rows[part], np.float32)
        lengths = np.abs(block).max(axis=1)
        found.append(part.start + np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0))))
    return np.concatenate(found)
