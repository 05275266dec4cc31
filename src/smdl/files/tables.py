"""Tables: .parquet and .csv, read by pyarrow in blocks."""

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from smdl.common.messages import install
from smdl.files.file_paths import is_url, opened, readable
from smdl.files.row_files import Column, RowFile

if TYPE_CHECKING:
    import pyarrow

#: Rows of a block of texts, which may be long.
TEXTS = 1024
#: Bytes of a block of .csv. A row must fit one.
CSV_BLOCK = 1 << 24
#: Batches of pyarrow, and their lengths.
Batches = Iterator[tuple[Any, int]]
#: A cell that is a number.
NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"


def arrow(module: str) -> Any:
    """Import a module of pyarrow, or say how to install it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"tables need pyarrow. Run {install('select')}") from error


class TableFile(RowFile):
    """A file that may have columns of text."""

    @abstractmethod
    def texts(self, name: str) -> Iterator[list[str | None]]:
        """Yield a column of text in blocks, in order. A missing text is None."""

    def _check_names(self, names: Sequence[str]) -> None:
        twice = sorted({name for name in names if list(names).count(name) > 1})
        if twice:
            raise ValueError(f"it has two columns of the name {twice[0]!r}: rename one")
        for name in names:
            if not name or name.startswith("__index_level_"):
                self.unread[name] = "an index without a name"


class ArrowFile(TableFile):
    """A table that pyarrow reads in batches."""

    @abstractmethod
    def batches(self, names: Sequence[str], wanted: np.ndarray | None, as_text: bool) -> Batches:
        """Yield batches of columns and their lengths, in order; None for a batch without a `wanted` row, which need not
        be read. With `as_text`, cells of a .csv are texts, and batches of all texts are short."""

    def blocks(self, names: Sequence[str], wanted: np.ndarray | None = None) -> Iterator[dict[str, np.ndarray]]:
        start = 0
        for batch, length in self.batches(names, wanted, as_text=False):
            if batch is None:
                yield dict.fromkeys(names, np.empty(length, bool))
            else:
                yield {name: _values(batch.column(name), self.columns[name], start) for name in names}
            start += length

    def exact(self, name: str, rows: np.ndarray) -> np.ndarray:
        found, start, pyarrow = [], 0, arrow("pyarrow")
        with readable(self.path):
            for batch, length in self.batches([name], rows, as_text=True):
                low, high = np.searchsorted(rows, (start, start + length))
                if batch is not None and low < high:
                    found.append(batch.column(0).take(pyarrow.array(rows[low:high] - start)))
                start += length
            return _exact(pyarrow.chunked_array(found)) if found else np.empty(0, object)

    def texts(self, name: str) -> Iterator[list[str | None]]:
        for batch, _ in self.batches([name], None, as_text=True):
            yield batch.column(0).to_pylist()


class ParquetFile(ArrowFile):
    """.parquet: lists of one length are matrices. Row groups without a wanted row are not read."""

    def describe(self) -> None:
        with self._opened() as file:
            self.rows = file.metadata.num_rows
            self._check_names(file.schema_arrow.names)
            for entry in file.schema_arrow:
                column = self._column(file, entry)
                if column is None:
                    self.unread[entry.name] = str(entry.type)
                    continue
                self.columns[entry.name] = column
                if not column.is_number:
                    self.unread.setdefault(entry.name, "text" if column.dtype == "U" else str(entry.type))

    def batches(self, names: Sequence[str], wanted: np.ndarray | None, as_text: bool) -> Batches:
        step, start = TEXTS if as_text and wanted is None else self._block_rows(names), 0
        with self._opened() as file:
            for group in range(file.num_row_groups):
                length = file.metadata.row_group(group).num_rows
                start += length
                if wanted is not None and np.diff(np.searchsorted(wanted, (start - length, start)))[0] == 0:
                    yield None, length
                else:
                    yield from ((batch, batch.num_rows) for batch in file.iter_batches(step, [group], list(names)))

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with opened(self.path) as file, arrow("pyarrow.parquet").ParquetFile(file) as table:
            yield table

    def _column(self, file: Any, entry: "pyarrow.Field") -> Column | None:
        """Return what a column is. The first block with a list that is neither missing nor empty says the width, by
        most of its lists."""
        types = arrow("pyarrow").types
        if types.is_fixed_size_list(entry.type):
            width = entry.type.list_size
        elif types.is_list(entry.type) or types.is_large_list(entry.type):
            lists = (batch.column(0) for batch in file.iter_batches(TEXTS, columns=[entry.name]))
            lengths = (arrow("pyarrow.compute").list_value_length(each).to_pylist() for each in lists)
            found = next(filter(None, ([length for length in block if length] for block in lengths)), None)
            if found is None:
                return None
            width, count = Counter(found).most_common(1)[0]
            if 2 * count <= len(found):  # else one list is damaged: an error if the column is read
                self.unread[entry.name] = "lists of several lengths"
        else:
            return Column(_dtype(entry.type), 0) if _dtype(entry.type) else None
        return Column(_dtype(entry.type.value_type), width) if _dtype(entry.type.value_type) else None


class CsvFile(ArrowFile):
    """.csv with a line of names. Every numeric column is float64: a shard of whole numbers is like the others. Text in
    quotes may have several lines."""

    def describe(self) -> None:
        with self._opened() as batches:
            self._check_names(batches.schema.names)
            self._check_header(batches.schema.names)
            for entry in batches.schema:
                name = _dtype(entry.type)
                self.columns[entry.name] = Column("<f8" if name and np.dtype(name).kind in "fiub" else "U", 0)
            texts = [name for name, column in self.columns.items() if not column.is_number]
            counts = dict.fromkeys(texts, (0, 0))
            for batch in batches:
                for name in texts:
                    counts[name] = tuple(np.add(counts[name], self._count_numbers(batch.column(name), name)))
                self.rows += batch.num_rows
        for name, (numbers, filled) in counts.items():
            if 2 * numbers <= filled:
                self.faults.pop(name, None)
                self.unread.setdefault(name, "text")

    def _count_numbers(self, cells: Any, name: str) -> tuple[int, int]:
        """Count the cells that are meant as numbers, and all that are not empty. The first that is no number is kept
        as the fault of its column."""
        compute = arrow("pyarrow.compute")
        if not arrow("pyarrow").types.is_string(cells.type):  # dates
            return 0, len(cells)
        filled = compute.match_substring_regex(cells, r"\S")
        wrong = compute.and_(filled, compute.invert(compute.match_substring_regex(cells, NUMBER)))
        if name not in self.faults and compute.any(wrong).as_py():
            row = compute.index(wrong, True).as_py()
            self.faults[name] = f"{cells[row].as_py()!r} in row {self.rows + row}"
        meant = compute.match_substring_regex(cells, NUMBER.replace(r"\.", "[.,]"))
        return compute.sum(meant).as_py() or 0, compute.sum(filled).as_py() or 0

    def _check_header(self, names: Sequence[str]) -> None:
        """Raise an error if the first line seems to hold values. Names may be 0, 1, 2, ... or years."""
        found = [name for name in names if re.match(NUMBER, name)]
        whole = all(name.isdecimal() for name in found)
        consecutive = whole and all(int(b) - int(a) == 1 for a, b in pairwise(found))
        if not whole or (2 * len(found) > len(names) and not consecutive):
            raise ValueError(f"its first line must hold the names of the columns, got {', '.join(names)[:80]}")

    def batches(self, names: Sequence[str], wanted: np.ndarray | None, as_text: bool) -> Batches:  # noqa: ARG002
        types = dict.fromkeys(names, arrow("pyarrow").string()) if as_text else None
        with self._opened(names, types) as batches:
            yield from ((batch, batch.num_rows) for batch in batches)

    @contextmanager
    def _opened(self, names: Sequence[str] = (), types: dict[str, Any] | None = None) -> Iterator[Any]:
        csv = arrow("pyarrow.csv")
        read, parse = csv.ReadOptions(block_size=CSV_BLOCK), csv.ParseOptions(newlines_in_values=True)
        convert = csv.ConvertOptions(include_columns=list(names), column_types=types)
        # Threads of pyarrow may hold the file a little longer: if it were Python's, a program that ends then aborts
        source = opened(self.path) if is_url(self.path) else arrow("pyarrow").OSFile(self.path)
        with source as file, csv.open_csv(file, read, parse, convert) as batches:
            yield batches


def _dtype(kind: "pyarrow.DataType") -> str:
    """Return the NumPy type of a column's values; "U" for text, "O" for dates and times; empty for other types."""
    types = arrow("pyarrow").types
    if types.is_dictionary(kind):
        return _dtype(kind.value_type)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_null(kind):
        return "U"
    if types.is_decimal(kind):
        return "<f8"
    if types.is_temporal(kind):
        return "O"
    if types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind):
        return arrow("pyarrow").array([], kind).to_numpy(zero_copy_only=False).dtype.str
    return ""


def _values(array: Any, column: Column, start: int) -> np.ndarray:
    """Return a column of a batch. A missing number is NaN, a missing text is empty; `start` is the row of the batch in
    the file."""
    types = arrow("pyarrow").types
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if column.width:
        return _matrix(array, column, start)
    if not column.is_number:
        return np.array(["" if value is None else str(value) for value in _exact(array)], dtype=str)
    if types.is_decimal(array.type):
        array = array.cast(arrow("pyarrow").float64())
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == object:  # booleans with missing values
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return values.astype(column.dtype) if values.dtype.kind != "f" or array.null_count == 0 else values


def _exact(array: Any) -> np.ndarray:
    """Return the values as they are: an array of numbers if none is missing, else Python objects."""
    pyarrow = arrow("pyarrow")
    types, kind = pyarrow.types, array.type
    if types.is_dictionary(kind):
        array = array.cast(kind.value_type)
        kind = array.type
    numeric = types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)
    if numeric and array.null_count == 0:
        return array.to_numpy(zero_copy_only=False) if isinstance(array, pyarrow.Array) else array.to_numpy()
    if types.is_temporal(kind) and not types.is_date(kind):  # Python's times have no nanoseconds
        array = array.cast(pyarrow.string())
    return as_objects(array.to_pylist())


def as_objects(values: Sequence[Any]) -> np.ndarray:
    """Return Python objects as an array of them."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _matrix(array: Any, column: Column, start: int) -> np.ndarray:
    """Return lists as a matrix. A missing list is a row of NaN."""
    compute, width = arrow("pyarrow.compute"), column.width
    lengths = compute.list_value_length(array).fill_null(-1).to_numpy(zero_copy_only=False)
    wrong = (lengths != width) & (lengths != -1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"its rows must have one length, got {width} and {lengths[row]} in row {start + row}")
    values = compute.list_flatten(array).to_numpy(zero_copy_only=False)
    if (lengths == width).all():
        return values.reshape(-1, width)
    out = np.full((len(array), width), np.nan, values.dtype if values.dtype.kind == "f" else np.float64)
    out[lengths == width] = values.reshape(-1, width)
    return out
