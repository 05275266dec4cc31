"""One file of rows: which columns it has, and how they are read. Nothing is unpickled."""

import json
import math
import os
import struct
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, NamedTuple

import numpy as np

from smdl.common.messages import unknown
from smdl.files.file_paths import is_url, opened, readable

#: Most bytes of a block of rows.
BLOCK = 1 << 26
#: Types of safetensors that NumPy has. bfloat16 is read as its bits and widened to float32.
SAFETENSORS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
               "I8": "<i1", "U8": "<u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "|b1"}  # fmt: skip


class Column(NamedTuple):
    """A column: the type of its values, and how many there are per row. Width 0: one value, not a list of one."""

    dtype: str
    width: int

    @property
    def is_number(self) -> bool:
        return np.dtype(self.dtype).kind in "fiub"


@dataclass
class RowFile(ABC):
    """A file of rows. It holds no open file, so that it can be sent to another process."""

    path: str
    rows: int = 0
    columns: dict[str, Column] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)  # columns that are no features by default, and why
    faults: dict[str, str] = field(default_factory=dict)  # columns of numbers that are no numbers everywhere

    def __post_init__(self) -> None:
        with readable(self.path):
            if not is_url(self.path) and os.path.getsize(self.path) == 0:
                raise ValueError("the file is empty")
            self.describe()

    @abstractmethod
    def describe(self) -> None:
        """Set `rows` and `columns`."""

    @abstractmethod
    def blocks(self, names: Sequence[str], wanted: np.ndarray | None = None) -> Iterator[dict[str, np.ndarray]]:
        """Yield the columns in blocks, in order. A block without a `wanted` row (ascending) may be left unread: its
        arrays then have the right length, and no content."""

    def take(self, names: Sequence[str], rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the columns at these rows, which ascend."""
        found: dict[str, list[np.ndarray]] = {name: [] for name in names}
        start = 0
        with readable(self.path):
            for block in self.blocks(names, rows):
                stop = start + len(block[names[0]])
                low, high = np.searchsorted(rows, (start, stop))
                if low < high:
                    for name in names:
                        found[name].append(block[name][rows[low:high] - start])
                start = stop
        return {name: np.concatenate(parts) if parts else self._empty(name) for name, parts in found.items()}

    def column(self, name: str) -> np.ndarray:
        """Return a whole column."""
        return self.take([name], np.arange(self.rows))[name]

    def exact(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return a column at these rows as it is written: numbers of their own type, or Python objects."""
        return self.take([name], rows)[name]

    def _empty(self, name: str) -> np.ndarray:
        dtype, width = self.columns[name]
        return np.empty((0, width) if width else 0, dtype)

    def _block_rows(self, names: Sequence[str]) -> int:
        """How many rows have about BLOCK bytes."""
        per_row = sum(np.dtype(self.columns[name].dtype).itemsize * max(1, self.columns[name].width) for name in names)
        return max(1, BLOCK // max(1, per_row))


class Layout(NamedTuple):
    """Where an array lies in a file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    order: str = "C"


@dataclass
class ArrayFile(RowFile):
    """A file of plain arrays: memory-mapped if it is local, read in ranges if it is not."""

    layouts: dict[str, Layout] = field(default_factory=dict)

    def add(self, name: str, layout: Layout, size: int, widened: str | None = None) -> None:
        """Add a column that ends within `size` bytes; the first one says how many rows there are."""
        shape = layout.shape
        if any(type(length) is not int or length < 0 for length in shape):
            raise ValueError(f"{name} must have lengths ≥ 0, got shape {shape}")
        if len(shape) not in (1, 2):
            raise ValueError(f"{name} must have one or two dimensions, got shape {shape}")
        if 0 in shape[1:]:
            raise ValueError(f"{name} has no columns, got shape {shape}")
        if np.dtype(layout.dtype).hasobject:
            raise ValueError(f"{name} holds Python objects, which are not read")
        if self.columns and shape[0] != self.rows:
            raise ValueError(f"its arrays must have one row per sample, got {self.rows} and {shape[0]} ({name})")
        needed = layout.offset + math.prod(shape) * np.dtype(layout.dtype).itemsize
        if needed > size:
            raise ValueError(f"{name} of shape {shape} needs {needed:,} bytes, and the file has {size:,}")
        self.rows = shape[0]
        self.columns[name] = Column(widened or layout.dtype, shape[1] if len(shape) == 2 else 0)
        self.layouts[name] = layout

    def is_widened(self, name: str) -> bool:
        """Whether the values are bits of bfloat16."""
        return self.columns[name].dtype != self.layouts[name].dtype

    def mapped(self, name: str) -> np.ndarray:
        """Return a local array as a memory map."""
        dtype, shape, offset, order = self.layouts[name]
        if 0 in shape:
            return np.empty(shape, dtype)
        return np.memmap(self.path, dtype, "r", offset, shape, order)  # type: ignore[arg-type]

    def blocks(self, names: Sequence[str], wanted: np.ndarray | None = None) -> Iterator[dict[str, np.ndarray]]:  # noqa: ARG002
        step = self._block_rows(names)
        for start in range(0, self.rows, step):
            yield {name: self._range(name, start, min(self.rows, start + step)) for name in names}

    def take(self, names: Sequence[str], rows: np.ndarray) -> dict[str, np.ndarray]:
        if is_url(self.path):
            return super().take(names, rows)
        with readable(self.path):
            return {name: self._widened(name, self.mapped(name)[rows]) for name in names}

    def _range(self, name: str, start: int, stop: int) -> np.ndarray:
        dtype, shape, offset, order = self.layouts[name]
        if not is_url(self.path):
            return self._widened(name, self.mapped(name)[start:stop])
        if order == "F":
            raise ValueError("it is stored column by column; save np.ascontiguousarray of it")
        per_row = np.dtype(dtype).itemsize * math.prod(shape[1:])
        with opened(self.path) as file:
            file.seek(offset + start * per_row)
            content = file.read((stop - start) * per_row)
        return self._widened(name, np.frombuffer(content, dtype).reshape(stop - start, *shape[1:]))

    def _widened(self, name: str, values: np.ndarray) -> np.ndarray:
        return (values.astype(np.uint32) << 16).view(np.float32) if self.is_widened(name) else values


class NpyFile(ArrayFile):
    """.npy: one array, the column "features"."""

    def describe(self) -> None:
        with opened(self.path) as file:
            self.add("features", _npy_layout(file), _size(file))


class SafetensorsFile(ArrayFile):
    """.safetensors: a header in JSON, then the arrays."""

    def describe(self) -> None:
        with opened(self.path) as file:
            (size,) = struct.unpack("<Q", file.read(8))
            if size > 100_000_000:
                raise ValueError("it has no header of safetensors")
            header: Any = json.loads(file.read(size))
            whole = _size(file)
        if not isinstance(header, dict):
            raise ValueError(f"the header of safetensors must be a JSON object, got a {type(header).__name__}")
        header.pop("__metadata__", None)
        for name, entry in header.items():
            if entry["dtype"] not in SAFETENSORS:
                raise ValueError(unknown(f"type of {name}", entry["dtype"], SAFETENSORS))
            start, stop = entry["data_offsets"]
            layout = Layout(SAFETENSORS[entry["dtype"]], tuple(entry["shape"]), 8 + size + start)
            end = min(whole, 8 + size + stop) if start >= 0 else 0
            self.add(name, layout, end, "<f4" if entry["dtype"] == "BF16" else None)


class NpzFile(ArrayFile):
    """.npz: arrays in a zip archive. Each is read whole, because it may be compressed."""

    def describe(self) -> None:
        with opened(self.path) as file, zipfile.ZipFile(file) as archive:
            for member in archive.namelist():
                with archive.open(member) as entry:
                    size = archive.getinfo(member).file_size
                    self.add(member.removesuffix(".npy"), _npy_layout(entry), size)

    def blocks(self, names: Sequence[str], wanted: np.ndarray | None = None) -> Iterator[dict[str, np.ndarray]]:  # noqa: ARG002
        with opened(self.path) as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in names}
        step = self._block_rows(names)
        for start in range(0, self.rows, step):
            yield {name: values[start : start + step] for name, values in arrays.items()}

    def take(self, names: Sequence[str], rows: np.ndarray) -> dict[str, np.ndarray]:
        return RowFile.take(self, names, rows)


def _npy_layout(file: Any) -> Layout:
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read:
        raise ValueError(f"it has version {version} of .npy, which is not read")
    shape, by_column, dtype = read[version](file)
    return Layout(dtype.str, shape, file.tell(), "F" if by_column else "C")


def _size(file: IO[bytes]) -> int:
    return file.seek(0, os.SEEK_END)
