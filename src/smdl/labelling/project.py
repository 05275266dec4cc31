"""A labelling project: read what people filled in, say what it is worth, and write the rows of the next round."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from smdl.common.messages import whole_number
from smdl.common.progress import Display
from smdl.common.storage import ProtectedOutput
from smdl.files.images import LISTING
from smdl.files.kept_parts import work_folder
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
        with work_folder(self.path):
            self.folder = ProjectFolder(self.path)
            if self._given is not None:
                self.folder.check_unused()
                self.folder.make(self._given)
            self.input.load(display)
            self.labels = Labels(self.input.features, seed=self.settings.seed)
            self._replay()
            display.phase("reading the answers")
            reader = self._read(answers)
            self.notes, self.written, self.done = reader.notes, list[Path](), {each.row for each in self.folder.answers}
            self._write_missing()
            self._write_lost()
            display.phase("choosing rows")
            if check is not None:
                self._write_checks(check)
            if more or not any(left for name, (left, _) in self._open_rows().items() if name.startswith(CHOSEN)):
                self._write_next()
            self._write_labels()
            return Progress(reader.changed, self.written, self._open_rows(), self.notes, reader.problems)

    def _replay(self) -> None:
        """Give the labels what is known: labels in the input, check rows, and the answers read so far."""
        state = self.labels.state_dict()
        self.folder.check_input({"rows": state["rows"], "features": state["features"], **self.input.digests()})
        checks = [row for each in self.folder.rounds if each.kind == CHECK for row in self.inner(each.rows)]
        state["checks"] = list(dict.fromkeys(checks))  # rows whose lines were deleted are in two rounds
        self.labels.load_state_dict(state)
        if self.settings.labels is not None:
            given = self.input.source.column("labels")[self.input.kept]
            rows = [row for row, value in enumerate(given.tolist()) if str(value).strip() not in ("", "nan")]
            self.labels.add(rows, [as_text(given[row]) for row in rows], "input")
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
        rows = {each.file: self._rows_of(each) for each in self.folder.rounds}
        return {file: (sum(row not in self.done for row in own), len(own)) for file, own in rows.items()}

    def _write_next(self) -> None:
        pending = [row for each in self.folder.rounds for row in each.rows if row not in self.done]
        try:
            rows = self.labels.next(self.settings.size, pending=self.inner(pending))
        except ValueError as error:
            self.notes.append(str(error))
        else:
            self._begin(CHOSEN, self.input.kept[rows].tolist())

    def _write_checks(self, size: int) -> None:
        before = set(self.labels.checks.tolist())
        self.labels.check(size)
        rows = [row for row in self.labels.checks.tolist() if row not in before]
        if rows:
            self._begin(CHECK, self.input.kept[rows].tolist())

    def _write_missing(self) -> None:
        """Write the rounds again whose file is gone and whose rows have no answer yet."""
        for each in self.folder.rounds:
            if self._open_rows()[each.file][0] and not self.folder.files_of(each.stem):
                note = f"{each.file} was missing: it is written again, with the answers that were read before"
                self.notes.append(note)
                self._write(each._replace(rows=self._rows_of(each)))

    def _write_lost(self) -> None:
        """Ask again, by a round of their own, for rows whose lines were deleted from the file of their round."""
        for each in list(self.folder.rounds):
            listed = self.lines.get(each.file, each.rows)
            lost = [row for row in self._rows_of(each) if row not in listed and row not in self.done]
            if lost:
                again = self._begin(each.kind, lost)
                note = f"{each.file}: {len(lost)} rows have no line any more; {again.file} asks for them again"
                self.notes.append(note)

    def _begin(self, kind: str, rows: list[int]) -> Round:
        """Begin a round, and write its file."""
        found = self.folder.add_round(kind, rows, self.settings)
        self._write(found)
        return found

    def _write(self, found: Round) -> None:
        said = {each.row: "?" if each.value is None else str(each.value) for each in self.folder.answers}
        lines = self.input.lines(found.rows)
        self.written.append(self.folder.write_round(found, lines, self.settings.format, said))

    def _write_labels(self) -> None:
        """Write the class of each row that has one."""
        settled = self.labels.answers
        if settled:
            rows = sorted(settled)
            lines = self.input.lines(self.input.kept[rows].tolist())
            answers = {int(self.input.kept[row]): str(settled[row]) for row in rows}
            output = ProtectedOutput(self.path / "labels.csv", self.path, force=True)
            if kept := output.write(round_bytes("csv", lines, answers)):  # a person may have changed it
                self.notes.append(f"labels.csv was changed after it was written: that one is kept as {kept.name}")

    def inner(self, rows: list[int]) -> list[int]:
        """Return rows of the input as rows of the labels."""
        return np.searchsorted(self.input.kept, np.array(rows, np.int64)).tolist()
