"""A labelling project: read what people filled in, say what it is worth, and write the rows of the next round."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from smdl.common.messages import whole_number
from smdl.common.progress import Display
from smdl.common.storage import disk_errors, locked
from smdl.files.images import LISTING
from smdl.labelling.answer_reader import AnswerReader, as_text
from smdl.labelling.input_rows import InputRows
from smdl.labelling.labels import Labels
from smdl.labelling.project_folder import CHECK, CHOSEN, LabelSettings, ProjectFolder, Round
from smdl.labelling.round_files import FILLED_IN, round_bytes, suffix_of_format


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
        self._given = settings
        if settings is None:
            settings = ProjectFolder(path).settings
        elif ProjectFolder.is_one(path):
            ProjectFolder(path).check_unused()
        elif path.exists() and (not path.is_dir() or any(each.name != LISTING for each in path.iterdir())):
            raise ValueError(f"{path} exists and is no project of smdl label: choose another --out")
        self.settings = settings
        whole_number("size", settings.size)
        whole_number("seed", settings.seed, least=0)
        suffix_of_format(settings.format)
        self.input = InputRows(path, settings, keep=ProjectFolder(path).is_begun)

    def run(
        self, display: Display, check: int | None = None, more: bool = False, answers: Path | None = None
    ) -> Progress:
        """Read the answers, write the next round if the last one is complete (or `more` says so), and up to `check`
        check rows. Nothing that exists is replaced, so the same command resumes after an interruption."""
        with disk_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            self.folder = ProjectFolder(self.path)
            if self._given is not None:
                self.folder.check_unused()
                self.folder.make(self._given)
            self.input.load(display)
            self.labels = Labels(self.input.features, seed=self.settings.seed)
            self._replay()
            display.phase("reading the answers")
            reader = self._read(answers)
            notes = reader.notes
            written = self._write_missing(notes) + self._write_lost(notes)
            display.phase("choosing rows")
            if check is not None:
                written += self._write_checks(check)
            open_rows = self._open_rows()
            if more or not any(left for stem, (left, _) in open_rows.items() if stem.startswith(CHOSEN)):
                written += self._write_next(notes)
            self._write_labels(notes)
            return Progress(reader.changed, written, self._open_rows(), notes, reader.problems)

    def _replay(self) -> None:
        """Give the labels what is known: labels in the input, check rows, and the answers read so far."""
        state = self.labels.state_dict()
        self.folder.check_input({"rows": state["rows"], "features": state["features"], **self.input.digests()})
        checks = [row for each in self.folder.rounds if each.kind == CHECK for row in self.inner(each.rows)]
        state["checks"] = list(dict.fromkeys(checks))  # rows whose lines were deleted are in two rounds
        self.labels.load_state_dict(state)
        self.known = 0
        if self.settings.labels is not None:
            given = self.input.source.column("labels")[self.input.kept]
            rows = [row for row, value in enumerate(given.tolist()) if str(value).strip() not in ("", "nan")]
            self.labels.add(rows, [as_text(given[row]) for row in rows], "input")
            self.known = len(rows)
        for each in self.folder.answers:
            self.labels.add(self.inner([each.row]), [each.value], each.annotator)

    def _read(self, extra: Path | None) -> AnswerReader:
        """Read every file of every round, and find the lines that each round has."""
        reader = AnswerReader(self.input, self.folder.answers)
        self.lines: dict[str, set[int]] = {}
        for each in self.folder.rounds:
            for annotator, path in self.folder.files_of(each.stem).items():
                rows = reader.read(path, annotator, set(each.rows))
                is_whole = self.settings.format in FILLED_IN and path.suffix.lower() != ".json"
                rows = rows if is_whole else set(each.rows)  # an export may lack the rows without an answer
                self.lines[each.file] = self.lines.get(each.file, set()) | rows
        if extra is not None:
            reader.read(extra, "", {row for each in self.folder.rounds for row in each.rows}, corrects=True)
        self.folder.add_answers(reader.new)
        for read in reader.new:
            self.labels.add(self.inner([read.row]), [read.value], read.annotator)
        return reader

    def _rows_of(self, found: Round) -> list[int]:
        """Return the rows of a round that no later round asks for again."""
        last = {row: each.file for each in self.folder.rounds for row in each.rows}
        return [row for row in found.rows if last[row] == found.file]

    def _open_rows(self) -> dict[str, tuple[int, int]]:
        """Return how many rows of each round have no answer, and how many it has."""
        done, rows = self._done(), {each.file: self._rows_of(each) for each in self.folder.rounds}
        return {file: (sum(row not in done for row in own), len(own)) for file, own in rows.items()}

    def _done(self) -> set[int]:
        return {each.row for each in self.folder.answers}

    def _write_next(self, notes: list[str]) -> list[Path]:
        done = self._done()
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
                written.append(self._write(each._replace(rows=self._rows_of(each))))
        return written

    def _write_lost(self, notes: list[str]) -> list[Path]:
        """Ask again, by a round of their own, for rows whose lines were deleted from the file of their round."""
        written, done = [], self._done()
        for each in list(self.folder.rounds):
            listed = self.lines.get(each.file, each.rows)
            lost = [row for row in self._rows_of(each) if row not in listed and row not in done]
            if lost:
                again = self.folder.add_round(each.kind, lost, self.settings)
                notes.append(f"{each.file}: {len(lost)} rows have no line any more; {again.file} asks for them again")
                written.append(self._write(again))
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
