"""Earlier outputs of the commands on rows: what they were made of, and whether that is still the same."""

import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from smdl.common.storage import digest, read_json
from smdl.files.file_paths import MOST_DIGESTED, is_url, stamp_of
from smdl.files.row_files import RowFile
from smdl.files.rows import Rows

if TYPE_CHECKING:
    from smdl.files.embedding import Embedder

#: Suffixes of the folders beside outputs.
FOLDERS = (".select", ".dedup", ".score")


class Origin(NamedTuple):
    """The folder beside an output, the command that wrote it, the record of its input, and whether the output is as it
    was written."""

    folder: Path
    command: str
    input: dict[str, Any]
    is_unchanged: bool


def input_record(source: Rows, embedder: "Embedder | None") -> dict[str, Any]:
    """Return what finds the features of an input again, and what changes if they do."""
    files = [[*stamp, _real(stamp[0])] for stamp in file_stamps(source)]
    record: dict[str, Any] = {"features": source.features, "files": files}
    return record if embedder is None else record | {"embeddings": embedder.key, "model": embedder.model.key}


def file_stamps(source: Rows) -> list[list[Any]]:
    """Return the name of each file, its rows, and what changes if its content does."""
    return [[shard.path, shard.rows, stamp_of(shard.path)] for shard in source.shards]


def origin_of(path: str) -> Origin | None:
    """Return where an output comes from, if a folder beside it says so. If several do, the one that wrote this content
    counts, else the last one."""
    if is_url(path):
        return None
    found = []
    for file in Path(path).parent.glob(f"*/written-{glob.escape(Path(path).name)}.json"):
        known = read_json(file)
        if file.parent.suffix in FOLDERS and isinstance(known, dict) and isinstance(known.get("input"), dict):
            is_unchanged = digest(Path(path)) in known.get("sha256", ())
            origin = Origin(file.parent, file.parent.suffix[1:], known["input"], is_unchanged)
            found.append((is_unchanged, file.stat().st_mtime_ns, origin))
    return max(found, key=lambda each: each[:2])[2] if found else None


def places_of(path: str, origin: Origin) -> list[str]:
    """Return where the files are that an output was made of: where they were, in this folder, or beside the output."""

    def place_of(name: str, place: str) -> str:
        beside = str(Path(path).parent / name)
        return place if is_url(place) else next((each for each in (place, name) if os.path.exists(each)), beside)

    return [place_of(name, place) for name, *_, place in origin.input["files"]]


def check_same(option: str, path: str, origin: Origin, number: int, now: Sequence[Any]) -> None:
    """Raise an error unless a file is what it was when an output was made of it. A small one is known by its content
    alone, whatever its time is."""
    name, *then, _ = origin.input["files"][number]
    (rows, (sha, size, *_)), (rows_now, (sha_now, size_now, *_)) = then, now
    is_known = 0 < size <= MOST_DIGESTED  # a store that does not tell the size says 0
    if then != list(now) and not (is_known and (rows, sha, size) == (rows_now, sha_now, size_now)):
        again = f"Run smdl {origin.command} on it again"
        raise ValueError(f"{option}: {name} has changed since {path} was made of it. {again}")


def shard_numbers(option: str, path: str, names: set[str], source: Rows) -> dict[str, int]:
    """Return which shards the names in an earlier output mean. Shards of its input must not have changed since."""
    here = {_real(shard.path): number for number, shard in enumerate(source.shards)}
    origin = origin_of(path)
    if origin is None:
        beside = {name: str(Path(path).parent / name) for name in names if not is_url(name)}
        places = {name: here.get(_real(name), here.get(_real(beside.get(name, name)))) for name in names}
        return {name: number for name, number in places.items() if number is not None}
    same_name = {shard.path: number for number, shard in enumerate(source.shards)}
    found = {}
    for place, (file, where) in enumerate(zip(origin.input["files"], places_of(path, origin), strict=True)):
        number = here.get(_real(where), same_name.get(file[0]))
        if number is not None:
            shard = source.shards[number]
            check_same(option, path, origin, place, [shard.rows, stamp_of(shard.path)])
            found[file[0]] = number
    return found


def kept_rows(file: RowFile) -> np.ndarray:
    """Return whether smdl dedup keeps each row: its column of true and false, which a spreadsheet may have written."""
    values = file.column("kept")
    if values.dtype.kind == "U":
        words = np.char.lower(np.char.strip(values))
        found, wrong = words == "true", ~np.isin(words, ["true", "false"])
    else:
        found, wrong = values == 1, ~np.isin(values, [0, 1])
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{file.path}: kept must be true or false, or 1 or 0, got {values[row].item()!r} in row {row}")
    return found


def _real(path: str) -> str:
    return path if is_url(path) else os.path.realpath(path)
