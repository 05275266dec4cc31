"""The output of smdl select: one line per chosen row, in the order picked. Written atomically."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.storage import write_bytes
from smdl.files.tables import arrow

Table = dict[str, np.ndarray]


def write_table(path: Path, table: Table) -> None:
    """Write columns of one length by the suffix of the path."""
    write_bytes(path, WRITERS[path.suffix](table))


def _parquet(table: Table) -> bytes:
    file = io.BytesIO()
    arrow("pyarrow.parquet").write_table(arrow("pyarrow").table(table), file)
    return file.getvalue()


def _csv(table: Table) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    writer.writerows(zip(*(values.tolist() for values in table.values()), strict=True))
    return file.getvalue().encode()


def _json(table: Table) -> bytes:
    columns: dict[str, list[Any]] = {name: values.tolist() for name, values in table.items()}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return (json.dumps(rows, indent=1) + "\n").encode()


def _npy(table: Table) -> bytes:
    """The row numbers alone."""
    file = io.BytesIO()
    np.save(file, table["index"])
    return file.getvalue()


WRITERS: dict[str, Callable[[Table], bytes]] = {".parquet": _parquet, ".csv": _csv, ".json": _json, ".npy": _npy}
