"""Rows outside of the input: those of other files, or those that earlier outputs of smdl dedup have kept."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smdl.common.storage import read_json
from smdl.engine.unit_rows import unusable
from smdl.files.embedding import Embedder, read_embeddings
from smdl.files.file_paths import MOST_DIGESTED, is_url, shard_paths
from smdl.files.images import ImageRows
from smdl.files.rows import FORMATS, Rows, open_file, open_rows
from smdl.files.usable_rows import NO_DIRECTION


class OutsideRows(NamedTuple):
    """Features, and where each row comes from: a file and the row within it."""

    features: np.ndarray  # (n, D)
    files: np.ndarray  # (n,) object
    rows: np.ndarray  # (n,) int64


def open_against(
    paths: Sequence[str], features: Sequence[str], source: Rows, embedder: Embedder | None, out: Path
) -> OutsideRows:
    """Read the rows of --against. Texts and images are embedded by the model of the input."""
    folders = [path for path in paths if isinstance(source, ImageRows) and os.path.isdir(path)]
    files = shard_paths([path for path in paths if path not in folders], FORMATS)
    if any(not is_url(path) and out.exists() and os.path.samefile(out, path) for path in files):
        raise ValueError(f"--out must not be one of the files of --against, got {out}: its rows are those of the input")
    own = {os.path.realpath(shard.path) for shard in source.shards}
    if twice := [path for path in files if not is_url(path) and os.path.realpath(path) in own]:
        raise ValueError(f"--against must not be one of the input files, got {twice[0]}: every row is a copy of itself")
    found = [_images(path, embedder) for path in folders if embedder]
    found += [_kept(path, embedder) or _rows(path, features, embedder) for path in files]
    for part in found:
        width = part.features.shape[1]
        if width != source.width:
            raise ValueError(f"--against must have the width of the input, {source.width}, got {width}")
        bad = unusable(part.features)
        if len(bad):
            where = f"{len(bad)} rows of {part.files[bad[0]]} have {NO_DIRECTION}"
            remedy = "Repair or remove them: --skip_nan is for rows of the input"
            raise ValueError(f"--against: {where}, the first is row {part.rows[bad[0]]}. {remedy}")
    return found[0] if len(found) == 1 else OutsideRows(*map(np.concatenate, zip(*found, strict=True)))


def features_in(path: str, names: Sequence[str]) -> Sequence[str]:
    """Return the names of the features in another file: those of the input, unless it is one matrix of another name."""
    columns = open_file(shard_paths([path], FORMATS)[0]).columns
    is_matrix = len(columns) == 1 and next(iter(columns.values())).width > 0
    return () if is_matrix and not set(names) <= set(columns) else names


def input_record(source: Rows, embedder: Embedder | None) -> dict[str, Any]:
    """Return what finds the features of an input again, and what changes if they do."""
    if embedder is not None:
        return {"embeddings": embedder.key, "model": embedder.model.key}
    files = source.fingerprint()[1 : 1 + len(source.shards)]
    places = [path if is_url(path) else os.path.abspath(path) for path, *_ in files]
    return {"features": source.features, "files": [[*file, place] for file, place in zip(files, places, strict=True)]}


def _rows(path: str, features: Sequence[str], embedder: Embedder | None) -> OutsideRows:
    """Return all rows of a file."""
    if embedder is None:
        found = np.asarray(open_rows([path], features_in(path, features)).whole())
    elif isinstance(embedder.source, ImageRows):
        raise ValueError(f"--against must be a folder of images, or an output of smdl dedup, got {path}")
    else:
        found = embedder.query(path)
    return OutsideRows(found, np.full(len(found), path, object), np.arange(len(found)))


def _images(folder: str, embedder: Embedder) -> OutsideRows:
    """Return the images below a folder."""
    names, features = embedder.images(folder)
    return OutsideRows(features, np.array([*names, None], object)[:-1], np.arange(len(names)))


def _kept(path: str, embedder: Embedder | None) -> OutsideRows | None:
    """Return the rows that an output of smdl dedup keeps; None if the file is no such output."""
    file = open_file(path)
    if not {"shard", "row", "kept", "index"} <= set(file.columns):
        return None
    lines = np.flatnonzero(file.column("kept").astype(bool))
    folder = Path(path).with_name(f"{Path(path).stem}.dedup")
    found = read_json(folder / "dedup.json")
    record = found.get("input") if isinstance(found, dict) else None
    if not isinstance(record, dict):
        raise ValueError(f"--against: {folder / 'dedup.json'} must say what {path} was made of. Run smdl dedup again")
    if "embeddings" in record:
        if embedder is not None and embedder.model.key != record["model"]:
            raise ValueError(f"--against: {path} was made by another --model, or by an earlier version of it")
        values = read_embeddings(folder / "embeddings.npy", record["embeddings"])
        inside = file.column("index")[lines].astype(np.int64)
        _check_rows(path, inside, len(values))
        return OutsideRows(values[inside], np.full(len(lines), path, object), lines)
    earlier, numbers = _open_again(path, record)
    shards = file.exact("shard", lines).tolist()
    inside = file.column("row")[lines].astype(np.int64)
    if strange := set(shards) - set(numbers):
        raise ValueError(f"--against: {path} names {min(strange)}, which was not among its input")
    number = np.array([numbers[shard] for shard in shards], np.int64)
    _check_rows(path, inside, np.diff(earlier.offsets)[number])
    rows = inside + earlier.offsets[number]
    values = earlier.features_at(rows) if len(rows) else np.empty((0, earlier.width), np.float32)
    return OutsideRows(values, np.full(len(lines), path, object), lines)


def _open_again(path: str, record: dict[str, Any]) -> tuple[Rows, dict[str, int]]:
    """Open the input of an earlier output, from any folder. Return it, and the number of each file by its name."""
    names = [name for name, *_ in record["files"]]
    beside = [name if is_url(name) else str(Path(path).parent / name) for name in names]
    places = [
        place if is_url(place) or os.path.exists(place) else other
        for (*_, place), other in zip(record["files"], beside, strict=True)
    ]
    earlier = open_rows(places, record["features"])
    now = [file[1:] for file in earlier.fingerprint()[1:]]
    for name, (*_, rows, stamp, _), content in zip(names, record["files"], now, strict=True):
        if not _is_same([rows, stamp], content):
            raise ValueError(f"--against: {name} has changed since {path} was made of it. Run smdl dedup on it again")
    return earlier, {name: number for number, name in enumerate(names)}


def _is_same(then: Sequence[Any], now: Sequence[Any]) -> bool:
    """Whether a file has not changed. A small one is known by its content alone, whatever its time is."""
    (rows, (digest, size, *_)), (rows_now, (digest_now, size_now, *_)) = then, now
    is_known = 0 < size <= MOST_DIGESTED  # a store that does not tell the size says 0
    return list(then) == list(now) or (is_known and (rows, digest, size) == (rows_now, digest_now, size_now))


def _check_rows(path: str, rows: np.ndarray, counts: np.ndarray | int) -> None:
    if ((rows < 0) | (rows >= counts)).any():
        raise ValueError(f"--against: {path} names rows that its input does not have")
