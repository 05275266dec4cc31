"""The outputs of the commands on rows: one line per row. Written atomically."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from smdl.common.progress import Display
from smdl.common.storage import ProtectedOutput
from smdl.files.request import RowRequest
from smdl.files.rows import Rows
from smdl.files.tables import NUMBER, arrow, as_objects
from smdl.files.texts import TextRows

Table = dict[str, np.ndarray]


def write_output(
    output: ProtectedOutput, table: Table, request: RowRequest, display: Display, record: Mapping[str, Any]
) -> None:
    """Write columns of one length, by the suffix of the output, and the record of its input. An output that a person
    has changed is kept beside it."""
    safe = request.spreadsheet_safe and output.path.suffix == ".csv"
    content = WRITERS[output.path.suffix](_marked_table(table) if safe else table)
    if kept := output.write(content, {"input": record}):
        display.note(f"{output.path} was changed after it was written: it is now {kept}")


def place_columns(source: Rows, rows: np.ndarray) -> Table:
    """Return where rows are."""
    shards, inside = source.place(rows)
    paths = np.array([source.shards[shard].path for shard in shards], dtype=str)
    return {"index": rows, "shard": paths, "row": inside}


def shown_columns(source: Rows, rows: np.ndarray) -> Table:
    """Return the groups, ids and texts of rows in any order."""
    order = np.argsort(rows)
    roles = [(role, name) for role, name in (("groups", "group"), ("ids", "id")) if role in source.columns]
    table = {name: source.values(role, rows[order]) for role, name in roles}
    if isinstance(source, TextRows):
        table["text"] = as_objects(source.texts_at(rows[order]))
    return {name: values[np.argsort(order)] for name, values in table.items()}


def marked(text: str) -> str:
    """Return a text that no spreadsheet takes for a formula: an apostrophe before =, +, -, @, unless it is a number."""
    return f"'{text}" if re.match(r"'*[=+\-@\t\r]", text) and not re.match(NUMBER, text) else text


def unmarked(text: str) -> str:
    """Return the text that `marked` was given."""
    return text[1:] if re.match(r"'+[=+\-@\t\r]", text) else text


def _marked_table(table: Table) -> Table:
    """Return a table for a spreadsheet: no group and no text is taken for a formula."""
    found = dict(table)
    for name in {"group", "text"} & set(table):
        if table[name].dtype.kind in "OU":
            found[name] = as_objects([marked(each) if isinstance(each, str) else each for each in table[name]])
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
    return (json.dumps(list(_records(table)), indent=1, default=str) + "\n").encode()


def _json_lines(table: Table) -> bytes:
    return "".join(f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for row in _records(table)).encode()


def _records(table: Table) -> Iterator[dict[str, Any]]:
    rows = zip(*(values.tolist() for values in table.values()), strict=True)
    return (dict(zip(table, values, strict=True)) for values in rows)


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
