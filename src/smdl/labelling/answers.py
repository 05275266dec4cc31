"""Answers: everything that people said about rows. A later answer of a person replaces the earlier one."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from smdl.common.messages import choice

#: The class that a person named; None means "cannot say".
Value = str | int | bool | None


class Answer(NamedTuple):
    """One answer of one person about one row."""

    row: int
    value: Value
    annotator: str = ""


class Answers:
    """A log of answers, and what follows from it."""

    def __init__(self) -> None:
        self.log: list[Answer] = []
        self._by_row: dict[int, dict[str, Value]] = {}
        self._kind: type | None = None

    def __len__(self) -> int:
        return len(self._by_row)

    def __contains__(self, row: object) -> bool:
        return row in self._by_row

    def add(self, answers: Iterable[Answer]) -> None:
        """Append answers, all or none of them."""
        new = list(answers)
        kind = self._kind
        for answer in new:
            if answer.value is None:
                continue
            kind = kind or type(answer.value)
            if type(answer.value) is not kind:
                known = f"{kind.__name__} as the others"
                raise TypeError(f"answers must be of one type: row {answer.row} needs {known}, got {answer.value!r}")
        self._kind = kind
        for answer in new:
            self.log.append(answer)
            self._by_row.setdefault(answer.row, {})[answer.annotator] = answer.value

    def of(self, row: int) -> dict[str, Value]:
        """Return what each annotator says about a row now."""
        return dict(self._by_row.get(row, {}))

    def settled(self) -> dict[int, Value]:
        """Return the class of each row that the most annotators name, rows in the order of their first answer. Rows
        without such a class (a tie, or nobody can say) are left out."""
        found = {}
        for row, said in self._by_row.items():
            votes = Counter(value for value in said.values() if value is not None).most_common(2)
            if votes and (len(votes) == 1 or votes[0][1] > votes[1][1]):
                found[row] = votes[0][0]
        return found

    def disputed(self) -> list[int]:
        """Return the rows whose annotators do not agree, "cannot say" included."""
        return [row for row, said in self._by_row.items() if len(set(said.values())) > 1]

    def classes(self) -> list[Value]:
        """Return the classes that were named and not withdrawn, in the order of their first answer."""
        now = {value for said in self._by_row.values() for value in said.values()}
        return list(
            dict.fromkeys(answer.value for answer in self.log if answer.value is not None and answer.value in now)
        )


def as_value(value: Any) -> Value:
    """Return an answer as a plain Python value. Texts lose the white space around them, and letters with accents get
    one form, so that equal names are equal."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value.strip())
        if not text:
            raise ValueError('an answer must not be empty: leave the row out, or answer None for "cannot say"')
        return text
    if value is None or isinstance(value, bool | int):
        return value
    raise TypeError(choice("an answer", value, 'a text, a whole number, a bool, or None for "cannot say"'))


def row_numbers(rows: Any, count: int) -> list[int]:
    """Return rows as a list, if each is a row of the pile."""
    found = rows.tolist() if hasattr(rows, "tolist") else list(rows)
    for row in found:
        if isinstance(row, bool) or not isinstance(row, int | np.integer):
            raise TypeError(choice("a row", row, f"a whole number from 0 to {count - 1}"))
        if not 0 <= row < count:
            raise ValueError(choice("a row", int(row), f"a whole number from 0 to {count - 1}"))
    return [int(row) for row in found]


def alike(classes: Sequence[Value]) -> list[tuple[str, ...]]:
    """Return names of classes that differ in case, spaces and signs alone: probably one class."""
    groups: dict[str, list[str]] = {}
    for name in classes:
        if isinstance(name, str):
            plain = "".join(letter for letter in name.casefold() if letter.isalnum())
            groups.setdefault(plain or name, []).append(name)
    return [tuple(names) for names in groups.values() if len(names) > 1]
