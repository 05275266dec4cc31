"""What must hold before the long work starts: finite rows, enough of them, an output that can be written."""

import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from smdl.common.storage import ProtectedOutput, disk_errors
from smdl.files.file_plan import check_rows
from smdl.files.output import WRITERS
from smdl.files.row_files import is_url
from smdl.files.rows import FORMATS, Rows, open_file
from smdl.files.tables import arrow

#: Most rows that a message names.
NAMED = 5
#: What is wrong with rows that cannot be used.
NOT_FINITE, NO_TEXT = "numbers that are not finite", "no text"


def unfinished_rows(source: Rows, number: int) -> np.ndarray:
    """Return the rows of a shard that are not finite."""
    found, start = [np.empty(0, np.int64)], 0
    for block in source.blocks(number):
        if block.dtype.kind == "f" and not np.isfinite(block).all():
            found.append(start + np.flatnonzero(~np.isfinite(block.reshape(len(block), -1)).all(axis=1)))
        start += len(block)
    return np.concatenate(found)


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


def read_rows(name: str, path: str, source: Rows) -> np.ndarray:
    """Read row numbers: from an output of smdl select (its shards and rows), or from a list of row numbers."""
    file = open_file(path)
    if {"shard", "row"} <= set(file.columns):
        found = file.take(["shard", "row"], np.arange(file.rows))
        if "kept" in file.columns:  # an output of smdl dedup: exclude the copies, begin with the kept rows
            kept = file.take(["kept"], np.arange(file.rows))["kept"].astype(bool)
            found = {key: values[kept == (name == "--initial")] for key, values in found.items()}
        elif "index" in file.columns and _are_embeddings(found["shard"], source):
            index = file.take(["index"], np.arange(file.rows))["index"].astype(np.int64)
            return check_rows(f"{name}: {path}", index, len(source))
        places = {shard.path: number for number, shard in enumerate(source.shards)}
        missing = sorted(set(found["shard"].tolist()) - set(places))
        if missing:
            raise ValueError(f"{name}: {path} names the shard {missing[0]}, which is not among the input")
        shards = np.array([places[shard] for shard in found["shard"].tolist()], np.int64)
        rows = check_rows(f"{name}: {path}", found["row"].astype(np.int64) + source.offsets[shards], len(source))
        if (source.place(rows)[0] != np.sort(shards)).any():
            raise ValueError(f"{name}: {path} names a row that its shard does not have")
        return rows
    if len(file.columns) != 1:
        raise ValueError(f"{name}: {path} must have the columns shard and row, or one column of row numbers")
    column = next(iter(file.columns))
    values = file.take([column], np.arange(file.rows))[column]
    whole = values.astype(np.int64) if values.dtype.kind == "f" and not (values % 1).any() else values
    return check_rows(f"{name}: {path}", whole, len(source))


def _are_embeddings(shards: np.ndarray, source: Rows) -> bool:
    """Whether rows were chosen from texts and the input is their embeddings, or the other way round: one map of
    embeddings that smdl wrote, with one row per text."""
    maps = [path for path in {*shards.tolist(), *(shard.path for shard in source.shards)} if _is_map(path)]
    here = {shard.path for shard in source.shards}
    return len(maps) == 1 and not here & set(shards.tolist()) and open_file(maps[0]).rows == len(source)


def _is_map(path: str) -> bool:
    return os.path.basename(path) == "embeddings.npy" and os.path.exists(f"{path.removesuffix('.npy')}.jsonl")


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


def check_output(output: ProtectedOutput, folder: Path, source: Rows, inputs: Sequence[str] = ()) -> None:
    """Raise an error if the output cannot be written, would replace a file that smdl did not write, or would be an
    input of the next start."""
    out = output.path
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
    for given in inputs:
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
