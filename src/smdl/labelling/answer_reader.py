"""Read the files that people filled in: which answers are new, and what is wrong with which line."""

from pathlib import Path
from typing import Any

import numpy as np

from smdl.labelling.annotation_formats import SHOWN, Line, Said
from smdl.labelling.answers import Value, as_value
from smdl.labelling.input_rows import InputRows
from smdl.labelling.project_folder import Read
from smdl.labelling.round_files import read_answers
from smdl.labelling.same_cell import is_same

#: Most problems of a file that are told one by one.
TOLD = 5


class AnswerReader:
    """Reads one file after another. `new` is what they say and did not say before, later answers last: a file that
    still says what it said does not undo a correction by another file."""

    def __init__(self, rows: InputRows, known: list[Read]) -> None:
        self.new: list[Read] = []
        self.notes: list[str] = []
        self.problems: list[str] = []
        self._rows, self._answers = rows, known
        self._known = {(each.row, each.annotator): each.value for each in known}
        self._said = {(each.row, each.annotator, each.file): each.value for each in known}
        self._found: dict[tuple[int, str], tuple[Value, str]] = {}  # in the files read so far
        self._twice: set[tuple[int, str]] = set()

    @property
    def changed(self) -> int:
        """How many answers differ from those known before."""
        now = {(each.row, each.annotator): each.value for each in self.new}
        return sum(key not in self._known or self._known[key] != value for key, value in now.items())

    def read(self, path: Path, annotator: str, asked: set[int], corrects: bool = False) -> set[int]:
        """Read a file. Return the rows that have a line in it. With `corrects` its answers replace those of others."""
        file = str(path.absolute()) if corrects else path.name  # it may have the name of a round
        seen, twice = ({}, set[tuple[int, str]]()) if corrects else (self._found, self._twice)
        now = {**self._known, **{(each.row, each.annotator): each.value for each in self.new}}
        filled = read_answers(path)
        self.notes += filled.notes
        listed = {row for each in (*filled.said, *filled.open) if (row := _row_in(each, asked)) is not None}
        shown = {line["row"]: line for line in self._rows.lines(sorted(listed))} if listed else {}
        found: dict[tuple[int, str], Value] = {}
        wrong: list[tuple[int, str]] = []
        for each in (*filled.said, *filled.open):
            is_open = each.value == ""
            if is_open and _row_in(each, asked) is None:
                continue
            try:
                row = _whole(each.row)
                if row not in asked:
                    raise ValueError(f"row {row} was not asked for in this round, so its answer is not used")
                _check_shown(each, shown[row], "" if is_open else ", so its answer is not used")
            except ValueError as error:
                wrong.append((each.line, str(error)))
                continue
            if is_open:
                continue
            key = (row, annotator or each.annotator)
            value = None if each.value is None else as_value(as_text(each.value))
            before, where = seen.setdefault(key, (value, path.name))
            found.setdefault(key, value)
            if before != value:
                place = "" if where == path.name else f" ({where})"
                wrong.append((each.line, f"row {row} has two answers, {before!r}{place} and {value!r}"))
                twice.add(key)
        self.new = [each for each in self.new if (each.row, each.annotator) not in twice]
        nothing = object()
        new = [
            Read(row, value, name, file)
            for (row, name), value in found.items()
            if (row, name) not in twice
            and value != (now.get((row, name), nothing) if corrects else self._said.get((row, name, file), nothing))
        ]
        self.new += new
        self.problems += [f"{path.name}, line {line}: {text}" for line, text in sorted(wrong)[:TOLD]]
        if len(wrong) > TOLD:
            self.problems.append(f"{path.name}: {len(wrong) - TOLD} more lines like these")
        kept = {(each.row, each.annotator) for each in self._answers if each.file == file} - set(found)
        if kept:
            self.notes.append(
                f'{path.name}: {len(kept)} answers that were read before are empty now and are kept; "?" withdraws one'
            )
        changed = sum(now.get((each.row, each.annotator), each.value) != each.value for each in new)
        if changed:
            self.notes.append(f"{path.name}: {changed} answers were changed")
        return listed


def _check_shown(said: Said, line: Line, consequence: str = "") -> None:
    """Raise an error if a line shows another row than the one whose number it has."""
    for name in SHOWN:
        if name in said.beside and line.get(name) is not None and not is_same(said.beside[name], line[name]):
            values = "" if name == "text" else f", {line[name]!r}, but {said.beside[name]!r}"
            raise ValueError(
                f"the {name} is not that of row {line['row']}{values}{consequence}: were columns sorted alone?"
            )


def _row_in(said: Said, asked: set[int]) -> int | None:
    """Return the row of a line if it was asked for."""
    try:
        row = _whole(said.row)
    except ValueError:
        return None
    return row if row in asked else None


def _whole(value: Any) -> int:
    """Return a row number as a spreadsheet may write it: 12, "12", "12.0"."""
    try:
        number = float(str(value).strip())
    except ValueError:
        number = float("nan")
    if not number.is_integer():
        raise ValueError(f"the column row must hold the number of the row, got {value!r}")
    return int(number)


def as_text(value: Any) -> str:
    """Return a class as text: a spreadsheet or a table may have made a number of it."""
    value = value.item() if isinstance(value, np.generic) else value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
