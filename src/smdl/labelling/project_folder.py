"""The folder of a labelling project: its settings, its rounds, and every answer that was ever read."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, NamedTuple

from smdl.common.storage import read_json, write_bytes, write_json, write_lines
from smdl.files.kept_parts import records_of
from smdl.labelling.annotation_formats import Line
from smdl.labelling.answers import Value
from smdl.labelling.input_rows import LabelSettings
from smdl.labelling.round_files import SUFFIXES, round_bytes, suffix_of_format

#: Kinds of rounds: rows that were chosen, and rows drawn at random to measure by.
CHOSEN, CHECK = "round", "check"


class Round(NamedTuple):
    """Rows that people were asked for, in one file."""

    kind: str
    number: int
    file: str
    rows: list[int]

    @property
    def stem(self) -> str:
        return f"{self.kind}-{self.number}"


class Read(NamedTuple):
    """An answer that was read, and from which file."""

    row: int
    value: Value
    annotator: str
    file: str


class ProjectFolder:
    """The files of a project. The list of rounds is written before a round's file, and answers are kept in a file of
    their own: neither a kill nor a deleted round loses what a person typed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rounds = [Round(**record) for record in records_of(path / "rounds.jsonl")]
        self.answers = [Read(**record) for record in records_of(path / "answers.jsonl")]

    @staticmethod
    def is_one(path: Path) -> bool:
        """Whether the path is a project."""
        return (path / "project.json").is_file()

    @property
    def settings(self) -> LabelSettings:
        """The settings that the project was made with."""
        found = read_json(self.path / "project.json")
        known = {field.name for field in fields(LabelSettings)}
        if not isinstance(found, dict) or set(found["settings"]) != known:
            raise ValueError(f"{self.path / 'project.json'} is damaged, or is of another version")
        found = found["settings"]
        return LabelSettings(**{**found, "inputs": tuple(found["inputs"]), "features": tuple(found["features"])})

    @property
    def is_begun(self) -> bool:
        """Whether people were asked for rows. If the list of rounds was lost, their files and answers tell."""
        files = [path for kind in (CHOSEN, CHECK) for path in self.path.glob(f"{kind}-*")]
        return bool(self.rounds or self.answers or files)

    def check_unused(self) -> None:
        """Raise an error if rounds have begun. A project without any failed at its input, and may begin again."""
        if self.is_begun:
            raise ValueError(
                f"{self.path} is a project already: resume it by smdl label {self.path}, or choose another --out"
            )

    def make(self, settings: LabelSettings) -> None:
        """Write the settings of a new project."""
        write_json(self.path / "project.json", {"settings": asdict(settings)}, checksum=True)

    def check_input(self, found: dict[str, Any]) -> None:
        """Keep what identifies the rows; raise an error if they are other rows than before: they would get the answers
        about those."""
        path = self.path / "input.json"
        before = read_json(path)
        if not self.rounds and not self.answers:
            write_json(path, found, checksum=True)
        elif not isinstance(before, dict) or {**found, **before} != found:
            was = "unknown"
            if isinstance(before, dict):
                other = [name for name in before if before[name] != found.get(name)]
                was = f"{before['rows']} rows, now {found['rows']}" if "rows" in other else f"other {', '.join(other)}"
            raise ValueError(
                f"the input of {self.path} has changed ({was}): its answers belong to the rows as they were."
                " Restore the input, or begin another project by --out"
            )

    def add_answers(self, answers: list[Read]) -> None:
        """Keep answers. They are on disk when this returns."""
        if answers:
            self.answers += answers
            write_lines(self.path / "answers.jsonl", [each._asdict() for each in self.answers])

    def add_round(self, kind: str, rows: list[int], settings: LabelSettings) -> Round:
        """Begin a round under the next free number: a file of that name is never replaced."""
        number = 1 + max((each.number for each in self.rounds if each.kind == kind), default=0)
        while self.files_of(f"{kind}-{number}"):
            number += 1
        found = Round(kind, number, f"{kind}-{number}{suffix_of_format(settings.format)}", rows)
        self.rounds.append(found)
        write_lines(self.path / "rounds.jsonl", [each._asdict() for each in self.rounds])
        return found

    def write_round(self, found: Round, lines: list[Line], form: str, answers: dict[int, str]) -> Path:
        """Write the file of a round."""
        path = self.path / found.file
        if path.exists():
            raise ValueError(f"{path} exists: a round is never written twice")
        write_bytes(path, round_bytes(form, lines, answers))
        return path

    def files_of(self, stem: str) -> dict[str, Path]:
        """Return the files of a round by annotator: round-1.csv has none, round-1.anna.csv is Anna's."""
        found = {}
        for path in sorted(self.path.glob(f"{stem}.*")):
            middle = path.name[len(stem) + 1 : -len(path.suffix)].rstrip(".")
            if path.suffix.lower() in SUFFIXES:
                found[middle] = path
        return found
