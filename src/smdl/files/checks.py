"""What must hold before the long work starts: finite rows, enough of them, an output that can be written."""

import glob
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from smdl.common.storage import ProtectedOutput, disk_errors
from smdl.files.earlier_outputs import Origin, kept_rows, origin_of, shard_numbers
from smdl.files.file_paths import is_url
from smdl.files.file_plan import check_rows
from smdl.files.output import WRITERS
from smdl.files.request import RowRequest
from smdl.files.row_files import RowFile
from smdl.files.rows import FORMATS, Rows, open_file
from smdl.files.tables import NUMBER, arrow

#: Most rows that a message names; most columns that a note names.
NAMED, SHOWN_COLUMNS = 5, 12
#: What is wrong with rows that cannot be used.
NOT_FINITE, NO_TEXT = "numbers that are not finite", "no text"


def bad_rows(source: Rows, number: int, find: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the rows of a shard that are found in its blocks."""
    found, start = [np.empty(0, np.int64)], 0
    for block in source.blocks(number):
        found.append(start + find(block))
        start += len(block)
    return np.concatenate(found)


def not_finite(block: np.ndarray) -> np.ndarray:
    """Return the rows of a block that are not finite."""
    return np.flatnonzero(~np.isfinite(block).all(axis=1))


def check_usable(source: Rows, bad: Sequence[np.ndarray], fault: str, skip: bool) -> np.ndarray:
    """Return the rows to leave out, as rows of the source, from those of each shard. Without `skip`, they are an
    error."""
    dropped = np.concatenate([rows + offset for rows, offset in zip(bad, source.offsets, strict=False)])
    if len(dropped) and not skip:
        shards, rows = source.place(dropped[:NAMED])
        names = [f"{source.shards[shard].path} row {row}" for shard, row in zip(shards, rows, strict=True)]
        more = f" and {len(dropped) - NAMED} more" if len(dropped) > NAMED else ""
        counted = "1 row has" if len(dropped) == 1 else f"{len(dropped)} rows have"
        raise ValueError(f"{counted} {fault}: {', '.join(names)}{more}. Repair them, or leave them out by --skip_nan")
    return dropped


def check_finite(name: str, source: Rows) -> None:
    """Raise an error if the rows of an option are not all finite."""
    for number, shard in enumerate(source.shards):
        bad = bad_rows(source, number, not_finite)
        if len(bad):
            remedy = "Repair or remove it: --skip_nan is for rows of the input"
            counted = f" ({len(bad)} rows in all)" if len(bad) > 1 else ""
            raise ValueError(f"{name}: row {bad[0]} of {shard.path} has {NOT_FINITE}{counted}. {remedy}")


def guessed_features(source: Rows) -> list[str]:
    """Say which columns of a table are the features, if there was a choice."""
    left = source.left_out()
    if not left and len(source.features) == 1:
        return []
    named, more = ", ".join(source.features[:SHOWN_COLUMNS]), len(source.features) - SHOWN_COLUMNS
    text = f"features: {named}{f' and {more} more columns' if more > 0 else ''}"
    return [f"{text}; left out: {', '.join(left)}" if left else text]


def read_rows(name: str, path: str, source: Rows) -> np.ndarray:
    """Read row numbers: from an output of smdl select (its shards and rows), or from a list of row numbers."""
    file = open_file(path)
    if {"shard", "row"} <= set(file.columns):
        shards, rows = file.column("shard"), file.column("row").astype(np.int64)
        wanted = np.ones(len(rows), bool)
        if "kept" in file.columns:  # an output of smdl dedup: exclude the copies, begin with the kept rows
            wanted = kept_rows(file) == (name == "--initial")
        if "index" in file.columns and _are_embeddings(shards, source):
            return check_rows(f"{name}: {path}", file.column("index")[wanted].astype(np.int64), len(source))
        shards, rows = shards[wanted], rows[wanted]
        places = shard_numbers(name, path, set(shards.tolist()), source)
        if missing := set(shards.tolist()) - set(places):
            raise ValueError(f"{name}: {path} names the shard {min(missing)}, which is not among the input")
        shards = np.array([places[shard] for shard in shards.tolist()], np.int64)
        rows = check_rows(f"{name}: {path}", rows + source.offsets[shards], len(source))
        if (source.place(rows)[0] != np.sort(shards)).any():
            raise ValueError(f"{name}: {path} names a row that its shard does not have")
        return rows
    if len(file.columns) != 1:
        raise ValueError(f"{name}: {path} must have the columns shard and row, or one column of row numbers")
    origin = origin_of(path)
    if origin is not None and origin.is_unchanged:  # else a person wrote it: its numbers are those of the input
        _check_numbering(name, path, origin, source)
    values = file.column(*file.columns)
    whole = values.astype(np.int64) if values.dtype.kind == "f" and not (values % 1).any() else values
    return check_rows(f"{name}: {path}", whole, len(source))


def _check_numbering(name: str, path: str, origin: Origin, source: Rows) -> None:
    """Raise an error unless the row numbers of an output mean rows of the input, and those that the option is about."""
    if name == "--exclude" and origin.command == "dedup":
        remedy = "--exclude takes the copies of a table, such as --out kept.csv"
        raise ValueError(f"--exclude: {path} holds the rows that smdl dedup keeps, not the copies. {remedy}")
    numbers = shard_numbers(name, path, set(), source)
    files = [file for file, *_ in origin.input["files"]]
    if not _are_embeddings(np.array(files), source) and [numbers.get(file) for file in files] != [*range(len(files))]:
        raise ValueError(
            f"{name}: {path} numbers the rows of {', '.join(files[:3])}{', …' if len(files) > 3 else ''}, and the input"
            " does not begin with these files in this order"
        )


def _are_embeddings(shards: np.ndarray, source: Rows) -> bool:
    """Whether rows were chosen from texts and the input is their embeddings, or the other way round: one map of
    embeddings that smdl wrote, with one row per text."""
    here, there = {shard.path for shard in source.shards}, set(shards.tolist())
    maps = [path for path in here | there if os.path.basename(path) == "embeddings.npy"]
    is_ours = len(maps) == 1 and os.path.exists(f"{maps[0].removesuffix('.npy')}.jsonl")
    return is_ours and not here & there and open_file(maps[0]).rows == len(source)


def numbers_of(
    source: Rows,
    role: str,
    rule: str = "a column of finite numbers",
    least: float = -np.inf,
    among: np.ndarray | None = None,
) -> np.ndarray:
    """Return a column of finite numbers that are not below `least`, at some rows (ascending) or at all."""
    rows = np.arange(len(source)) if among is None else among
    found = source.values(role, rows)
    if found.dtype.kind in "fiub":
        wrong = ~(np.isfinite(found) & (found >= least))
    else:
        wrong = np.array([not re.match(NUMBER, str(value)) for value in found])
        wrong[0] |= not wrong.any()  # text that looks like numbers
    if wrong.any():
        place, column = int(wrong.argmax()), source.columns[role]
        name = column.path if isinstance(column, RowFile) else ", ".join(column)
        shards, inside = source.place(rows[[place]])
        where = f"row {inside[0]} of {source.shards[shards[0]].path}"
        raise ValueError(f"--{role} must be {rule}, got {found[place].item()!r} in {where}, column {name}")
    return found


def check_text_and_model(text: str | None, model: str | None, features: Sequence[str]) -> None:
    """Raise an error unless texts and the model that embeds them are given together, and no other features."""
    if text is None and model is not None:
        raise ValueError("--model embeds texts: add --text with their column, or leave out --model")
    if text is not None and model is None:
        raise ValueError(
            "--text needs --model, which embeds the texts. If you have embeddings, leave out --text and name their"
            " columns by --features"
        )
    if text is not None and features:
        raise ValueError("--features and --text both say what the features are: leave out one of them")


def checked_output(request: RowRequest, source: Rows, out: Path | None = None) -> ProtectedOutput:
    """Return an output of a request. Raise an error if it cannot be written, would replace a file that smdl did not
    write, or would be an input of the next start."""
    out, folder = out or request.out, request.folder
    output = ProtectedOutput(out, folder, request.force)
    if re.match(r"\w\w+:/", str(out)):  # pathlib has removed a slash of the URL
        raise ValueError(f"--out must be a local file, got {out}")
    if out.suffix not in WRITERS:
        raise ValueError(f"--out must be a file of the kind {', '.join(WRITERS)}, got {out}")
    if out.suffix == ".parquet":
        try:
            arrow("pyarrow.parquet")
        except ImportError as error:
            raise ValueError(f"{out} cannot be written: {error}") from error
    if out.is_dir():
        raise ValueError(f"--out must be a file, got the folder {out}")
    if any(not is_url(shard.path) and out.exists() and os.path.samefile(out, shard.path) for shard in source.shards):
        raise ValueError(f"--out must not be one of the input files, got {out}")
    for name in set(vars(request)) - {"inputs", "out"}:
        given = vars(request)[name]
        paths = [path for path in (given if isinstance(given, tuple) else [given]) if isinstance(path, str)]
        if any(out.exists() and os.path.samefile(out, file) for path in paths for file in glob.glob(path)):
            raise ValueError(f"--out must not be one of the files of --{name}, got {out}")
    for given in request.inputs:
        if out.suffix in FORMATS and os.path.isdir(given) and out.parent.is_dir() and out.parent.samefile(given):
            raise ValueError(f"--out must not be in the input folder {given}: the next start would read it. Got {out}")
    output.check()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{out} cannot be written: {folder}, the folder of its results, is a file")
    near = out.parent
    while not near.exists() and near != near.parent:
        near = near.parent
    if not near.is_dir():
        raise ValueError(f"{out} cannot be written: {near} is a file, not a folder")
    for place in (near, folder) if folder.exists() else (near,):
        try:
            with disk_errors(out), tempfile.TemporaryFile(dir=place):
                pass
        except FileNotFoundError as error:  # the system holds no files there
            raise ValueError(f"{out} cannot be written: {place} takes no files") from error
    return output
