"""Rows: the rows of one or several files, numbered through, with the columns that a selection reads."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from smdl.common.messages import unknown
from smdl.files.file_paths import UnreadableError, is_url, readable, shard_paths, short_stamp_of, stamp_of, suffix_of
from smdl.files.json_lines import JsonLinesFile
from smdl.files.row_files import NpyFile, NpzFile, RowFile, SafetensorsFile
from smdl.files.tables import CsvFile, ParquetFile

FORMATS: dict[str, Callable[[str], RowFile]] = {
    ".npy": NpyFile,
    ".npz": NpzFile,
    ".safetensors": SafetensorsFile,
    ".parquet": ParquetFile,
    ".csv": CsvFile,
    ".jsonl": JsonLinesFile,
}
#: Names of the features if a file has several matrices.
USUAL = ("features", "embeddings", "embedding")
#: Columns besides the features. A role is the name of a column, or a file with one row per row of the source.
ROLES = ("labels", "probabilities", "groups", "costs", "ids", "utility", "importance")
#: Roles whose values are kept to the letter.
EXACT = ("groups", "ids", "text")


@dataclass(frozen=True)
class Rows:
    """Shards of one width and type. Row i of the source is row i − offsets[s] of shard s."""

    shards: tuple[RowFile, ...]
    features: tuple[str, ...]
    columns: Mapping[str, tuple[str, ...] | RowFile]  # by role

    @cached_property
    def offsets(self) -> np.ndarray:
        return np.cumsum([0, *(shard.rows for shard in self.shards)])

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def width(self) -> int:
        return self.shape_of(self.shards[0])[0]

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(self.shape_of(self.shards[0])[1])

    def features_at(self, rows: np.ndarray) -> np.ndarray:
        """Return the features of rows in any order, (N, D)."""
        if (np.diff(rows) <= 0).any():
            unique, where = np.unique(rows, return_inverse=True)
            return self.features_at(unique)[where]
        return self._gather(self.features, rows).reshape(-1, self.width)

    def shape_of(self, shard: RowFile) -> tuple[int, str]:
        """Return the width and the type of the features of a shard."""
        columns = [shard.columns[name] for name in self.features]
        kind = np.result_type(*(column.dtype for column in columns)) if len(columns) > 1 else columns[0].dtype
        return sum(max(1, column.width) for column in columns), np.dtype(kind).str

    def place(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the shard and the row within the shard of each row."""
        shards = np.searchsorted(self.offsets, rows, side="right") - 1
        return shards, rows - self.offsets[shards]

    def whole(self) -> np.ndarray:
        """Return all features: a memory map if the source is one local array, else a copy."""
        shard, name = self.shards[0], self.features[0]
        if self.is_mapped and isinstance(shard, NpyFile | SafetensorsFile):
            return shard.mapped(name).reshape(-1, self.width)
        return self.features_at(np.arange(len(self)))

    @property
    def is_mapped(self) -> bool:
        """Whether the source is one local array, so that all rows need no memory."""
        shard, name = self.shards[0], self.features[0]
        alone = len(self.shards) == len(self.features) == 1 and not is_url(shard.path)
        return alone and isinstance(shard, NpyFile | SafetensorsFile) and not shard.is_widened(name)

    def values(self, role: str, rows: np.ndarray) -> np.ndarray:
        """Return the column of a role at rows that ascend. Ids and groups are as they are written."""
        found = self.columns[role]
        if isinstance(found, RowFile):
            (name,) = found.columns
            return found.exact(name, rows) if role in EXACT else found.take([name], rows)[name]
        if role not in EXACT:
            return self._gather(found, rows)
        parts = [shard.exact(found[0], inside) for shard, inside in self._by_shard(rows)]
        kinds = {part.dtype for part in parts}
        return np.concatenate([part.astype(object) for part in parts] if len(kinds) > 1 else parts)

    def left_out(self) -> list[str]:
        """Describe the columns of tables that no option names and that are no features."""
        named = {
            *self.features,
            *(name for names in self.columns.values() if isinstance(names, tuple) for name in names),
        }
        found = {name: why for shard in self.shards for name, why in shard.unread.items() if name not in named}
        return [f"{name or 'the column without a name'} ({why})" for name, why in found.items()]

    def column(self, role: str) -> np.ndarray:
        """Return a column of all rows, without the features."""
        return self.values(role, np.arange(len(self)))

    def blocks(self, number: int) -> Iterator[np.ndarray]:
        """Yield the features of a shard in blocks."""
        shard = self.shards[number]
        with readable(shard.path):
            for block in shard.blocks(list(self.features)):
                yield _joined(block, self.features).reshape(-1, self.width)

    def fingerprint(self) -> list[Any]:
        """Return what changes if a file changes: columns, path, size, time, a checksum of some of its content."""
        beside = [found for found in self.columns.values() if isinstance(found, RowFile)]
        names = [self.features, {role: found for role, found in self.columns.items() if isinstance(found, tuple)}]
        return [names, *([file.path, file.rows, stamp_of(file.path)] for file in (*self.shards, *beside))]

    def stamps(self) -> list[Any]:
        """Return the size and the time of every shard, or what its store says of it."""
        return [short_stamp_of(shard.path) for shard in self.shards]

    def check_stamps(self, stamps: Sequence[Any]) -> None:
        """Raise an error if a shard is not what it was when `stamps` were taken."""
        for number, stamp in enumerate(stamps):
            self.check_stamp(number, stamp)

    def check_stamp(self, number: int, stamp: Any) -> None:
        """Raise an error if a shard is gone, or is not what it was."""
        path = self.shards[number].path
        if short_stamp_of(path) != stamp:
            raise UnreadableError(f"{path} has changed since the command started: start it again")

    def _gather(self, names: tuple[str, ...], rows: np.ndarray) -> np.ndarray:
        parts = [_joined(shard.take(names, inside), names) for shard, inside in self._by_shard(rows)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _by_shard(self, rows: np.ndarray) -> Iterator[tuple[RowFile, np.ndarray]]:
        """Yield each shard that has some of these rows, and their places within it."""
        edges = np.searchsorted(rows, self.offsets)
        for shard, offset, low, high in zip(self.shards, self.offsets, edges, edges[1:], strict=False):
            if low < high:
                yield shard, rows[low:high] - offset


def open_rows(
    paths: Sequence[str], features: Sequence[str] = (), roles: Mapping[str, str | None] | None = None
) -> Rows:
    """Open the files and check that they fit together: found columns, one width, one type, no empty shard.

    paths      files or URLs, patterns such as shards/*.npy, or folders, whose files count in the order of their names
    features   names of the columns; by default the only matrix, or else every column of numbers without a role
    roles      role -> names of columns separated by commas, or a file with one row per row of the source
    """
    shards, columns = open_columns(paths, roles or {})
    taken = {name for names in columns.values() if isinstance(names, tuple) for name in names}
    for name in features:
        check_column("features", name, shards)
    if len(set(features)) < len(features):
        raise ValueError(f"features must name each column once, got {', '.join(features)}")
    source = Rows(shards, tuple(features) or _guess(shards[0], taken), columns)
    for shard in shards:
        if not features and set(found := _guess(shard, taken)) != set(source.features):
            differ = sorted(set(found) ^ set(source.features))
            raise ValueError(
                f"shards must have the same columns of numbers: {shards[0].path} and {shard.path} differ in"
                f" {', '.join(differ)}. Name the features by --features"
            )
        _check_shard(source, shard)
    return source


def open_columns(
    paths: Sequence[str], roles: Mapping[str, str | None]
) -> tuple[tuple[RowFile, ...], dict[str, tuple[str, ...] | RowFile]]:
    """Open the files, and find the columns besides the features. Each file has rows, and each column all of them."""
    shards = tuple(open_file(path) for path in shard_paths(paths, FORMATS))
    columns = {role: _resolve(role, text, shards) for role, text in roles.items() if text is not None}
    for shard in shards:
        if shard.rows == 0:
            raise ValueError(f"{shard.path} has no rows: leave it out")
    rows = sum(shard.rows for shard in shards)
    for role, found in columns.items():
        if isinstance(found, RowFile) and found.rows != rows:
            raise ValueError(f"{role}: {found.path} must have as many rows as the input, {rows}, got {found.rows}")
    return shards, columns


def open_file(path: str) -> RowFile:
    """Open one file by its suffix."""
    if suffix_of(path) not in FORMATS:
        raise ValueError(f"{path} cannot be read: choose a file of the kind {', '.join(FORMATS)}")
    return FORMATS[suffix_of(path)](path)


def _resolve(role: str, text: str, shards: tuple[RowFile, ...]) -> tuple[str, ...] | RowFile:
    if suffix_of(text) in FORMATS and text not in shards[0].columns:
        file = open_file(text)
        if len(file.columns) != 1:
            raise ValueError(f"{role}: {text} must have one column, got {', '.join(file.columns)}")
        names, shards = tuple(file.columns), (file,)
    else:
        file, names = None, (text,) if text in shards[0].columns else tuple(name.strip() for name in text.split(","))
    for name in names:
        check_column(role, name, shards)
        if role != "probabilities" and (len(names) > 1 or shards[0].columns[name].width):
            raise ValueError(f"{role} must be one column with one value per row, got {text}")
    return file or names


def numbered(values: np.ndarray) -> tuple[list[Any], np.ndarray]:
    """Return the distinct values, and the number of each value among them. A missing value is a value of its own."""
    if values.dtype != object:
        names, numbers = np.unique(values, return_inverse=True)
        return names.tolist(), numbers
    found: dict[Any, int] = {}
    keys = ((type(value), value) if value == value else (float, math.nan) for value in values)  # NaN is no other NaN
    numbers = np.array([found.setdefault(key, len(found)) for key in keys], np.int64)
    return [value for _, value in found], numbers


def check_column(role: str, name: str, shards: tuple[RowFile, ...]) -> None:
    """Raise an error that names the first file without this column."""
    for shard in shards:
        if name not in shard.columns and (why := shard.faults.get(name) or shard.unread.get(name)):
            raise ValueError(f"{shard.path}: the column {name} cannot be read as {role}: it holds {why}")
        if name not in shard.columns:
            raise ValueError(f"{shard.path}: {unknown(f'column of {role}', name, shard.columns)}")


def _guess(shard: RowFile, taken: set[str]) -> tuple[str, ...]:
    for name, fault in shard.faults.items():
        if name not in taken:
            remedy = "Repair it, or name the columns by --features"
            raise ValueError(f"{shard.path}: the column {name} holds numbers, and {fault}. {remedy}")
    numbers = {name: column for name, column in shard.columns.items() if column.is_number and name not in taken}
    free = {name: column for name, column in numbers.items() if name not in shard.unread}
    free = free or {name: column for name, column in numbers.items() if column.width}  # the row that differs is named
    matrices = [name for name, column in free.items() if column.width]
    usual = [name for name in USUAL if name in matrices]
    if len(matrices) > 1 and not usual:
        raise ValueError(f"{shard.path} has several matrices ({', '.join(matrices)}): choose one by --features")
    names = (usual or matrices)[:1] or list(free)
    if not names:
        raise ValueError(
            f"{shard.path} has no column of numbers for the features, got {', '.join(shard.columns) or 'none'}"
        )
    return tuple(names)


def _check_shard(source: Rows, shard: RowFile) -> None:
    first = source.shards[0]
    for name in source.features:
        check_column("features", name, (shard,))
        if not shard.columns[name].is_number:
            fault = f" with {shard.faults[name]}" if name in shard.faults else " of text"
            raise ValueError(f"{shard.path}: the features must be numbers, got {name}{fault}")
    (width, kind), (other_width, other_kind) = source.shape_of(first), source.shape_of(shard)
    if width != other_width:
        raise ValueError(f"shards must have one width, got {width} in {first.path} and {other_width} in {shard.path}")
    if kind != other_kind:
        names = [np.dtype(each).name for each in (kind, other_kind)]
        raise ValueError(f"shards must have one type, got {names[0]} in {first.path} and {names[1]} in {shard.path}")


def _joined(values: Mapping[str, np.ndarray], names: Sequence[str]) -> np.ndarray:
    return values[names[0]] if len(names) == 1 else np.column_stack([values[name] for name in names])
