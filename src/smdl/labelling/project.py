"""A labelling project: read what people filled in, say what it is worth, and write the rows of the next round."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smdl.common.messages import whole_number
from smdl.common.progress import Display
from smdl.common.storage import disk_errors, locked
from smdl.files.images import LISTING
from smdl.files.texts import TextRows
from smdl.labelling.annotation_formats import Said
from smdl.labelling.answers import Value, as_value
from smdl.labelling.input_rows import InputRows
from smdl.labelling.labels import Labels
from smdl.labelling.project_folder import CHECK, CHOSEN, LabelSettings, ProjectFolder, Read, Round
from smdl.labelling.round_files import read_answers, round_bytes, suffix_of_format

#: Most problems of a file that are told one by one.
TOLD = 5


class Progress(NamedTuple):
    """What a start of `smdl label` did."""

    answered: int  # new or changed answers
    written: list[Path]  # new files to fill in
    open: dict[str, tuple[int, int]]  # file -> rows without an answer, rows
    notes: list[str]
    problems: list[str]


class Project:
    """A folder, its rows and their labels."""

    def __init__(self, path: Path, settings: LabelSettings | None = None) -> None:
        self.path = path
        if settings is None:
            settings = ProjectFolder(path).settings
        elif ProjectFolder.is_one(path):
            raise ValueError(f"{path} is a project already: resume it by smdl label {path}, or choose another --out")
        elif path.exists() and (not path.is_dir() or any(each.name != LISTING for each in path.iterdir())):
            raise ValueError(f"{path} exists and is no project of smdl label: choose another --out")
        self.settings = settings
        whole_number("size", settings.size)
        whole_number("seed", settings.seed, least=0)
        suffix_of_format(settings.format)
        self.input = InputRows(path, settings)

    def run(
        self, display: Display, check: int | None = None, more: bool = False, answers: Path | None = None
    ) -> Progress:
        """Read the answers, write the next round if the last one is complete (or `more` says so), and up to `check`
        check rows. Nothing that exists is replaced, so the same command resumes after an interruption."""
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            self.folder = ProjectFolder(self.path)
            if not ProjectFolder.is_one(self.path):
                self.folder.make(self.settings)
            self.input.load(display)
            self.labels = Labels(self.input.features, seed=self.settings.seed)
            self._replay()
            display.phase("reading the answers")
            answered, notes, problems = self._read(answers)
            written = self._write_missing(notes)
            display.phase("choosing rows")
            if check is not None:
                written += self._write_checks(check)
            open_rows = self._open_rows()
            if more or not any(left for stem, (left, _) in open_rows.items() if stem.startswith(CHOSEN)):
                written += self._write_next(notes)
            self._write_labels(notes)
            return Progress(answered, written, self._open_rows(), notes, problems)

    def _replay(self) -> None:
        """Give the labels what is known: labels in the input, check rows, and the answers read so far."""
        state = self.labels.state_dict()
        self.folder.check_input({"rows": state["rows"], "features": state["features"]})
        state["checks"] = [row for each in self.folder.rounds if each.kind == CHECK for row in self.inner(each.rows)]
        self.labels.load_state_dict(state)
        self.known = 0
        if self.settings.labels is not None:
            given = self.input.source.column("labels")[self.input.kept]
            rows = [row for row, value in enumerate(given.tolist()) if str(value).strip() not in ("", "nan")]
            self.labels.add(rows, [_text(given[row]) for row in rows], "input")
            self.known = len(rows)
        for each in self.folder.answers:
            self.labels.add(self.inner([each.row]), [each.value], each.annotator)

    def _read(self, extra: Path | None) -> tuple[int, list[str], list[str]]:
        """Read every file of every round. Return the number of new answers, notes and problems."""
        new: list[Read] = []
        notes: list[str] = []
        problems: list[str] = []
        for each in self.folder.rounds:
            for annotator, path in self.folder.files_of(each.stem).items():
                new += self._read_file(path, annotator, set(each.rows), notes, problems)
        if extra is not None:
            asked = {row for each in self.folder.rounds for row in each.rows}
            new += self._read_file(extra, "", asked, notes, problems)
        self.folder.add_answers(new)
        for read in new:
            self.labels.add(self.inner([read.row]), [read.value], read.annotator)
        return len(new), notes, problems

    def _read_file(
        self, path: Path, annotator: str, asked: set[int], notes: list[str], problems: list[str]
    ) -> list[Read]:
        said, told = read_answers(path)
        notes += told
        found: dict[tuple[int, str], Value] = {}
        wrong, twice = [], set()
        for each in said:
            try:
                row, value = self._answer_of(each, asked)
            except (TypeError, ValueError) as error:
                wrong.append(f"{path.name}, line {each.line}: {error}")
                continue
            key = (row, annotator or each.annotator)
            if found.setdefault(key, value) != value:
                wrong.append(f"{path.name}, line {each.line}: row {row} has two answers, {found[key]!r} and {value!r}")
                twice.add(key)
        problems += wrong[:TOLD]
        if len(wrong) > TOLD:
            problems.append(f"{path.name}: {len(wrong) - TOLD} more lines like these")
        known = {(each.row, each.annotator): each.value for each in self.folder.answers}
        gone = sum(
            1 for each in self.folder.answers if each.file == path.name and (each.row, each.annotator) not in found
        )
        if gone:
            notes.append(
                f'{path.name}: {gone} answers that were read before are empty now and are kept; "?" withdraws one'
            )
        changed = [key for key, value in found.items() if key in known and known[key] != value and key not in twice]
        if changed:
            notes.append(f"{path.name}: {len(changed)} answers were changed")
        nothing = object()
        return [
            Read(row, value, name, path.name)
            for (row, name), value in found.items()
            if (row, name) not in twice and known.get((row, name), nothing) != value
        ]

    def _answer_of(self, said: Said, asked: set[int]) -> tuple[int, Value]:
        """Return the row and the class of an answer, or raise an error that says what is wrong with the line."""
        row = _whole(said.row)
        if row not in asked:
            raise ValueError(f"row {row} was not asked for in this round, so its answer is not used")
        if said.text is not None and self.settings.text is not None and isinstance(self.input.source, TextRows):
            (text,) = self.input.source.texts_at(np.array([row]))
            if _plain(said.text) != _plain(text):
                raise ValueError(
                    f"the text is not that of row {row}, so its answer is not used: were columns sorted alone?"
                )
        return row, None if said.value is None else as_value(_text(said.value))

    def _open_rows(self) -> dict[str, tuple[int, int]]:
        """Return how many rows of each round have no answer, and how many it has."""
        done = {each.row for each in self.folder.answers}
        return {each.file: (sum(row not in done for row in each.rows), len(each.rows)) for each in self.folder.rounds}

    def _write_next(self, notes: list[str]) -> list[Path]:
        done = {each.row for each in self.folder.answers}
        pending = [row for each in self.folder.rounds for row in each.rows if row not in done]
        try:
            rows = self.labels.next(self.settings.size, pending=self.inner(pending))
        except ValueError as error:
            notes.append(str(error))
            return []
        found = self.folder.add_round(CHOSEN, self.input.kept[rows].tolist(), self.settings)
        return [self._write(found)]

    def _write_checks(self, size: int) -> list[Path]:
        before = set(self.labels.checks.tolist())
        self.labels.check(size)
        rows = [row for row in self.labels.checks.tolist() if row not in before]
        if not rows:
            return []
        return [self._write(self.folder.add_round(CHECK, self.input.kept[rows].tolist(), self.settings))]

    def _write_missing(self, notes: list[str]) -> list[Path]:
        """Write the rounds again whose file is gone and whose rows have no answer yet."""
        written = []
        for each in self.folder.rounds:
            left = self._open_rows()[each.file][0]
            if left and not self.folder.files_of(each.stem):
                notes.append(f"{each.file} was missing: it is written again, with the answers that were read before")
                written.append(self._write(each))
        return written

    def _write(self, found: Round) -> Path:
        said = {each.row: "?" if each.value is None else str(each.value) for each in self.folder.answers}
        return self.folder.write_round(found, self.input.lines(found.rows), self.settings.format, said)

    def _write_labels(self, notes: list[str]) -> None:
        """Write the class of each row that has one."""
        settled = self.labels.answers
        if settled:
            rows = sorted(settled)
            lines = self.input.lines(self.input.kept[rows].tolist())
            answers = {int(self.input.kept[row]): str(settled[row]) for row in rows}
            kept = self.folder.write_labels(round_bytes("csv", lines, answers))
            if kept is not None:
                notes.append(f"labels.csv was changed after it was written: that one is kept as {kept.name}")

    def inner(self, rows: list[int]) -> list[int]:
        """Return rows of the input as rows of the labels."""
        return np.searchsorted(self.input.kept, np.array(rows, np.int64)).tolist()


def _whole(value: Any) -> int:
    """Return a row number as a spreadsheet may write it: 12, "12", "12.0"."""
    try:
        number = float(str(value).strip())
    except ValueError:
        number = float("nan")
    if not number.is_integer():
        raise ValueError(f"the column row must hold the number of the row, got {value!r}")
    return int(number)


def _text(value: Any) -> str:
    """Return a class as text: a spreadsheet or a table may have made a number of it."""
    value = value.item() if isinstance(value, np.generic) else value
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _plain(text: Any) -> str:
    return " ".join(str(text).split())
