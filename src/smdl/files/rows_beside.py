"""Rows whose features are in a file of their own, beside the table that people know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from smdl.files.row_files import suffix_of
from smdl.files.rows import FORMATS, Rows, open_columns, open_rows


@dataclass(frozen=True)
class RowsBeside(Rows):
    """Features from their files, and the columns of a `table` with as many rows in the same order."""

    table: Rows

    def values(self, role: str, rows: np.ndarray) -> np.ndarray:
        return self.table.values(role, rows)

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), *self.table.fingerprint()]


def are_beside(features: Sequence[str]) -> bool:
    """Whether the features are named as one file in place of columns."""
    return len(features) == 1 and suffix_of(features[0]) in FORMATS


def open_beside(paths: Sequence[str], features: str, roles: Mapping[str, str | None]) -> RowsBeside:
    """Open tables, and the file with the features of their rows."""
    shards, columns = open_columns(paths, roles)
    table, found = Rows(shards, (), columns), open_rows([features])
    if len(found) != len(table):
        raise ValueError(
            f"--features {features} must have one row per row of the input, got {len(found)} for {len(table)}"
        )
    return RowsBeside(found.shards, found.features, columns, table)
