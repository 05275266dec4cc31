"""Tables: .parquet and .csv, read by pyarrow in blocks."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from smdl.common.messages import install
from smdl.files.row_files import Column, RowFile, opened

if TYPE_CHECKING:
    import pyarrow

#: Rows of a block of texts, which may be long.
TEXTS = 1024
#: Bytes of a block of .csv. A row must fit one.
CSV_BLOCK = 1 << 24


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


class ParquetFile(TableFile):
    """.parquet: lists of one length are matrices. Row groups without a wanted row are not read."""

    def describe(self) -> None:
        with self._opened() as file:
            self.rows = file.metadata.num_rows
            for entry in file.schema_arrow:
                column = self._column(file, entry)
                if column is not None:
                    self.columns[entry.name] = column

    def blocks(self, names: Sequence[str], wanted: np.ndarray | None = None) -> Iterator[dict[str, np.ndarray]]:
        step, start = self._block_rows(names), 0
        with self._opened() as file:
            for group in range(file.num_row_groups):
                length = file.metadata.row_group(group).num_rows
                if wanted is not None and np.diff(np.searchsorted(wanted, (start, start + length)))[0] == 0:
                    yield dict.fromkeys(names, np.empty(length, bool))
                    start += length
                    continue
                for batch in file.iter_batches(step, [group], list(names)):
                    yield {name: _values(batch.column(name), self.columns[name], start) for name in names}
                    start += batch.num_rows

    def texts(self, name: str) -> Iterator[list[str | None]]:
        with self._opened() as file:
            for batch in file.iter_batches(TEXTS, columns=[name]):
                yield batch.column(0).to_pylist()

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        with opened(self.path) as file, arrow("pyarrow.parquet").ParquetFile(file) as table:
            yield table

    @staticmethod
    def _column(file: Any, entry: "pyarrow.Field") -> Column | None:
        types = arrow("pyarrow").types
        if types.is_fixed_size_list(entry.type):
            width = entry.type.list_size
        elif types.is_list(entry.type) or types.is_large_list(entry.type):
            first = next(file.iter_batches(1, columns=[entry.name]), None)
            width = len(first.column(0)[0].as_py() or ()) if first is not None else 0
            if width == 0:
                return None
        else:
            return Column(_dtype(entry.type), 0) if _dtype(entry.type) else None
        return Column(_dtype(entry.type.value_type), width) if _dtype(entry.type.value_type) else None


class CsvFile(TableFile):
    """.csv with a line of names. Every numeric column is float64: a shard of whole numbers is like the others. Text in
    quotes may have several lines."""

    def describe(self) -> None:
        with self._opened() as batches:
            for batch in batches:
                self.rows += batch.num_rows
                for entry in batch.schema:
                    name = _dtype(entry.type)
                    self.columns[entry.name] = Column("<f8" if name and np.dtype(name).kind in "fiub" else "U", 0)

    def blocks(self, names: Sequence[str], wanted: np.ndarray | None = None) -> Iterator[dict[str, np.ndarray]]:  # noqa: ARG002
        start = 0
        with self._opened(names) as batches:
            for batch in batches:
                yield {name: _values(batch.column(name), self.columns[name], start) for name in names}
                start += batch.num_rows

    def texts(self, name: str) -> Iterator[list[str | None]]:
        with self._opened([name], {name: arrow("pyarrow").string()}) as batches:
            for batch in batches:
                yield batch.column(0).to_pylist()

    @contextmanager
    def _opened(self, names: Sequence[str] = (), types: dict[str, Any] | None = None) -> Iterator[Any]:
        csv = arrow("pyarrow.csv")
        read, parse = csv.ReadOptions(block_size=CSV_BLOCK), csv.ParseOptions(newlines_in_values=True)
        convert = csv.ConvertOptions(include_columns=list(names), column_types=types)
        with opened(self.path) as file, csv.open_csv(file, read, parse, convert) as batches:
            yield batches


def _dtype(kind: "pyarrow.DataType") -> str:
    """Return the NumPy type of a column's values; "U" for text; empty for what is no column of ours."""
    types = arrow("pyarrow").types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind) or types.is_null(kind):
        return "U"
    if types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind):
        return arrow("pyarrow").array([], kind).to_numpy(zero_copy_only=False).dtype.str
    return ""


def _values(array: Any, column: Column, start: int) -> np.ndarray:
    """Return a column of a batch. A missing number is NaN, a missing text is empty; `start` is the row of the batch in
    the file."""
    if column.width:
        return _matrix(array, column, start)
    if not column.is_number:
        return np.array(["" if value is None else str(value) for value in array.to_pylist()], dtype=str)
    values = array.to_numpy(zero_copy_only=False)
    if values.dtype == object:  # booleans with missing values
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return values.astype(column.dtype) if values.dtype.kind != "f" or array.null_count == 0 else values


def _matrix(array: Any, column: Column, start: int) -> np.ndarray:
    """Return lists as a matrix. A missing list is a row of NaN."""
    compute, width = arrow("pyarrow.compute"), column.width
    lengths = compute.list_value_length(array).fill_null(-1).to_numpy(zero_copy_only=False)
    wrong = (lengths != width) & (lengths != -1)
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"its rows must have one length, got {width} in row 0 and {lengths[row]} in row {start + row}")
    values = compute.list_flatten(array).to_numpy(zero_copy_only=False)
    if (lengths == width).all():
        return values.reshape(-1, width)
    out = np.full((len(array), width), np.nan, values.dtype if values.dtype.kind == "f" else np.float64)
    out[lengths == width] = values.reshape(-1, width)
    return out
