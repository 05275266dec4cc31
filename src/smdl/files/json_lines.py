"""JSON lines: one object per line. Numbers, lists of numbers of one length, and texts are columns."""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np

from smdl.files.file_paths import opened, readable
from smdl.files.row_files import Column
from smdl.files.tables import TEXTS, TableFile, as_objects

#: The rest of what a column holds: a null.
_MISSING = "missing"


class JsonLinesFile(TableFile):
    """.jsonl: every number is float64, and true and false are 1 and 0. A name that a line lacks is a missing value.
    Empty lines are no rows."""

    def describe(self) -> None:
        counts: dict[str, dict[Any, int]] = {}
        examples: dict[tuple[str, Any], str] = {}
        for row, entry in enumerate(self._objects(strict=True)):
            for name, value in entry.items():
                kind = _kind(value)
                counts.setdefault(name, {})[kind] = counts.get(name, {}).get(kind, 0) + 1
                if (name, kind) not in examples:
                    examples[name, kind] = f"{_shown(value, kind)} in row {row}"
            self.rows = row + 1
        self._check_names(list(counts))
        for name, kinds in counts.items():
            found = {kind: count for kind, count in kinds.items() if kind != _MISSING}
            self._add(name, found, {kind: examples[name, kind] for kind in found})

    def _add(self, name: str, kinds: dict[Any, int], examples: dict[Any, str]) -> None:
        """Decide what a column is from how many of its values are of which kind, in the order of the first of each."""
        widths = [kind for kind in kinds if isinstance(kind, int)]
        if len(kinds) == 1 and (widths or "number" in kinds):
            self.columns[name] = Column("<f8", sum(widths))
            return
        if set(kinds) <= {"number", "text"}:
            self.columns[name] = Column("U", 0)
        lists = sum(kinds[width] for width in widths)
        if 2 * max(lists, kinds.get("number", 0)) > sum(kinds.values()):
            usual = max(widths, key=lambda width: kinds[width]) if 2 * lists > sum(kinds.values()) else "number"
            wrong = examples[next(kind for kind in kinds if kind != usual)]
            self.faults[name] = wrong if usual == "number" else f"{wrong}, not a list of {usual}"
        elif name in self.columns:
            self.unread.setdefault(name, "text")
        else:
            words = {"list of numbers" if isinstance(kind, int) else kind for kind in kinds}
            self.unread.setdefault(name, " and ".join(sorted(words)))

    def blocks(self, names: Sequence[str], wanted: np.ndarray | None = None) -> Iterator[dict[str, np.ndarray]]:
        objects, start = self._objects(), 0
        step = TEXTS if any(not self.columns[name].is_number for name in names) else self._block_rows(names)
        while lines := list(islice(objects, step)):
            if wanted is not None and np.diff(np.searchsorted(wanted, (start, start + len(lines))))[0] == 0:
                yield dict.fromkeys(names, np.empty(len(lines), bool))
            else:
                yield {name: _values([line.get(name) for line in lines], self.columns[name]) for name in names}
            start += len(lines)

    def exact(self, name: str, rows: np.ndarray) -> np.ndarray:
        with readable(self.path):
            wanted, last = set(rows.tolist()), int(rows.max(initial=-1)) + 1
            return as_objects(
                [line.get(name) for row, line in enumerate(islice(self._objects(), last)) if row in wanted]
            )

    def texts(self, name: str) -> Iterator[list[str | None]]:
        objects = self._objects()
        while lines := list(islice(objects, TEXTS)):
            yield [_text(line.get(name)) for line in lines]

    def _objects(self, strict: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the object of each line; `strict` refuses a name that an object has twice."""
        hook = _without_repeats if strict else None
        with opened(self.path) as file:
            for number, line in enumerate(file):
                if not line.strip():
                    continue
                try:
                    entry = json.loads(line, object_pairs_hook=hook)
                except json.JSONDecodeError as error:
                    raise ValueError(f"line {number + 1} is no JSON: {error.msg} at column {error.colno}") from error
                except ValueError as error:
                    raise ValueError(f"line {number + 1}: {error}") from error
                if not isinstance(entry, dict):
                    text = line[:40].decode(errors="replace").strip()
                    raise ValueError(f'line {number + 1} must be an object such as {{"text": "..."}}, got {text}')
                yield entry


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"it has the name {next(name for name in names if names.count(name) > 1)!r} twice")
    return found


def _kind(value: Any) -> str | int:
    """Return what a value is: a number, a text, missing, the length of a list of numbers, or another kind."""
    if value is None:
        return _MISSING
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list) and value and all(each is None or isinstance(each, int | float) for each in value):
        return len(value)
    return "list" if isinstance(value, list) else "object"


def _shown(value: Any, kind: str | int) -> str:
    if isinstance(kind, int):
        return f"a list of {kind}"
    return repr(value[:40]) if kind == "text" else json.dumps(value)[:40]


def _values(values: list[Any], column: Column) -> np.ndarray:
    """Return the values of a column: a missing number is NaN, a missing list a row of NaN, a missing text empty."""
    if column.width:
        missing = [math.nan] * column.width
        return np.array([missing if value is None else value for value in values], np.float64)
    if column.is_number:
        return np.array([math.nan if value is None else value for value in values], np.float64)
    return np.array([_text(value) or "" for value in values], dtype=str)


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
