"""The output of smdl select: one line per chosen row, in the order picked. Written atomically."""

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from smdl.files.tables import NUMBER, arrow

Table = dict[str, np.ndarray]


def table_bytes(path: Path, table: Table) -> bytes:
    """Return columns of one length as the content of a file, by the suffix of its path."""
    return WRITERS[path.suffix](table)


def marked(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: an apostrophe before =, +, -, @, unless it is a number."""
    return f"'{text}" if re.match(r"'*[=+\-@\t\r]", text) and not re.match(NUMBER, text) else text


def unmarked(text: str) -> str:
    """Return the text that `marked` was given."""
    return text[1:] if re.match(r"'+[=+\-@\t\r]", text) else text


def marked_table(table: Table) -> Table:
    """Return a table for a spreadsheet: no group and no text is taken for a formula."""
    found = dict(table)
    for name in {"group", "text"} & set(table):
        if table[name].dtype.kind in "OU":
            found[name] = np.array([marked(each) if isinstance(each, str) else each for each in table[name]], object)
    return found


def _parquet(table: Table) -> bytes:
    file = io.BytesIO()
    columns = {name: _arrow_array(values) for name, values in table.items()}
    arrow("pyarrow.parquet").write_table(arrow("pyarrow").table(columns), file)
    return file.getvalue()


def _arrow_array(values: np.ndarray) -> Any:
    """Return a column of its own type; if its values have several types, as text."""
    pyarrow = arrow("pyarrow")
    if values.dtype != object:
        return pyarrow.array(values)
    given = values.tolist()
    for kind in (None, pyarrow.uint64()):
        try:
            return pyarrow.array(given, kind)
        except (OverflowError, pyarrow.ArrowException):
            continue
    return pyarrow.array([None if value is None else str(value) for value in given])


def _csv(table: Table) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(values.tolist() for values in table.values()), strict=True))
    return file.getvalue().encode()


def _json(table: Table) -> bytes:
    columns: dict[str, list[Any]] = {name: values.tolist() for name, values in table.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return (json.dumps(rows, indent=1, default=str) + "\n").encode()


def _json_lines(table: Table) -> bytes:
    columns: dict[str, list[Any]] = {name: values.tolist() for name, values in table.items()}
    rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in rows).encode()


def _npy(table: Table) -> bytes:
    """The row numbers alone."""
    file = io.BytesIO()
    np.save(file, table["index"])
    return file.getvalue()


WRITERS: dict[str, Callable[[Table], bytes]] = {
    ".parquet": _parquet,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".json": _json,
    ".npy": _npy,
}
