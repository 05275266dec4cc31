"""Write the rows of a round for people to fill in, and read what they typed, whatever program saved it."""

import csv
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from smdl.common.messages import one_of
from smdl.files.file_paths import UnreadableError
from smdl.files.output import marked, unmarked
from smdl.files.tables import arrow
from smdl.labelling.annotation_formats import CANNOT_SAY, TOOLS, Line, Said, said_in, tool_bytes

FORMATS = ("csv", "parquet", *TOOLS)
#: Formats in which people fill in the file itself, so that it has a line for each row that was asked for.
FILLED_IN = ("csv", "parquet", "jsonl")
#: Suffixes of files that are read.
SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")


def suffix_of_format(name: str) -> str:
    """Return the suffix of the files of a format."""
    one_of("format", name, FORMATS)
    return TOOLS[name][0] if name in TOOLS else f".{name}"


def round_bytes(name: str, lines: list[Line], answers: dict[int, str]) -> bytes:
    """Return the content of a round in a format. Tables have the answers that are known already."""
    if name in TOOLS:
        return tool_bytes(name, lines)
    filled = [{**line, "label": answers.get(line["row"], "")} for line in lines]
    if name == "parquet":
        file = io.BytesIO()
        arrow("pyarrow.parquet").write_table(arrow("pyarrow").Table.from_pylist(filled), file)
        return file.getvalue()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # what spreadsheets write
    writer.writerow(filled[0])
    writer.writerows([[marked(str(value)) for value in line.values()] for line in filled])
    return text.getvalue().encode("utf-8-sig")  # a spreadsheet reads UTF-8 only with this mark


class FilledIn(NamedTuple):
    """What a file holds: answers, notes about how it was read, and lines without an answer."""

    said: list[Said]
    notes: list[str]
    open: list[Said]


def read_answers(path: Path) -> FilledIn:
    """Return the answers in a file. "?" and "cannot say" become None."""
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} cannot be read: choose a file of the kind {', '.join(SUFFIXES)}")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableError(f"{path} cannot be read: {error.strerror}") from error
    notes, first = list[str](), 1
    if path.with_name(f".~lock.{path.name}#").exists() or path.with_name(f"~${path.name}").exists():
        notes.append(f"{path.name} is open in another program: what is not saved there is not read")
    try:
        if path.suffix.lower() == ".parquet":
            records = arrow("pyarrow.parquet").read_table(io.BytesIO(content)).to_pylist()
        else:
            text, encoding = _decoded(content)
            text = text.lstrip("\ufeff")  # some programs keep the mark of UTF-8 as a letter
            if encoding != "utf-8":
                notes.append(f"{path.name} is read as {encoding}, because it is no UTF-8")
            records = _records(path, text)
            first = 2 if path.suffix.lower() in (".csv", ".tsv") else 1  # a table begins with its names
        found = list(said_in(records, first))
    except (ValueError, KeyError, AttributeError, TypeError, arrow("pyarrow").ArrowInvalid) as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error
    found = [each._replace(value=None) if str(each.value).strip().casefold() in CANNOT_SAY else each for each in found]
    return FilledIn([each for each in found if each.value != ""], notes, [each for each in found if each.value == ""])


def _records(path: Path, text: str) -> list[Any]:
    if path.suffix.lower() == ".json":
        found = json.loads(text)
        return found if isinstance(found, list) else [found]
    if path.suffix.lower() == ".jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    return _csv_records(text)


def _csv_records(text: str) -> list[Line]:
    """Read a table by the separator of its first line: comma, semicolon or tab."""
    head = text.split("\n", 1)[0]
    separator = max(",;\t", key=head.count)
    rows = [
        row if any(map(str.strip, row)) else []
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    ]
    if not any(rows):
        raise ValueError("it has no lines")
    start = rows.index(next(filter(None, rows)))
    names = [name.strip().casefold() for name in rows[start]]
    for name in ("row", "label"):
        if names.count(name) != 1:
            raise ValueError(f"it must have one column {name}, got the columns {_excerpt(', '.join(rows[start]))}")
    rows.pop(start)
    for place, row in enumerate(rows, 2):
        if len(row) > len(names) and any(cell.strip() for cell in row[len(names) :]):
            raise ValueError(f"line {place} has {len(row)} cells, and the first line has {len(names)} names")
    return [dict(zip(names, map(unmarked, row), strict=False)) for row in rows]  # {} keeps the place of an empty line


def _excerpt(text: str) -> str:
    """Return the first 200 letters of a text, without control characters."""
    found = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:201])
    return found if len(found) <= 200 else f"{found[:200]}…"


def _decoded(content: bytes) -> tuple[str, str]:
    """Return a text and its encoding: UTF-8, UTF-16 with its mark, or else what Windows writes."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16"), "utf-16"
    try:
        return content.decode("utf-8-sig"), "utf-8"
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace"), "Windows-1252"
