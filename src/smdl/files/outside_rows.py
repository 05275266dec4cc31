"""Rows outside of the input: those of other files, or those that earlier outputs of smdl dedup have kept."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from smdl.engine.unit_rows import unusable
from smdl.files.earlier_outputs import Origin, check_same, file_stamps, kept_rows, origin_of, places_of
from smdl.files.embedding import Embedder, read_embeddings
from smdl.files.file_paths import is_url, shard_paths
from smdl.files.images import ImageRows
from smdl.files.rows import FORMATS, Rows, open_file, open_rows
from smdl.files.usable_rows import NO_DIRECTION


class OutsideRows(NamedTuple):
    """Features, and where each row comes from: a file and the row within it."""

    features: np.ndarray  # (n, D)
    files: np.ndarray  # (n,) object
    rows: np.ndarray  # (n,) int64


def open_against(paths: Sequence[str], named: bool, source: Rows, embedder: Embedder | None, out: Path) -> OutsideRows:
    """Read the rows of --against. Texts and images are embedded by the model of the input. `named`: an option names the
    features of the input."""
    folders = [path for path in paths if isinstance(source, ImageRows) and os.path.isdir(path)]
    files = shard_paths([path for path in paths if path not in folders], FORMATS)
    if any(not is_url(path) and out.exists() and os.path.samefile(out, path) for path in files):
        raise ValueError(f"--out must not be one of the files of --against, got {out}")
    own = {os.path.realpath(shard.path) for shard in source.shards}
    if twice := [path for path in files if not is_url(path) and os.path.realpath(path) in own]:
        raise ValueError(f"--against must not be one of the input files, got {twice[0]}: every row is a copy of itself")
    found = [_images(path, embedder) for path in folders if embedder]
    found += [_kept(path, embedder) or _rows(path, named, source, embedder) for path in files]
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


def features_in(path: str, source: Rows, named: bool) -> Sequence[str]:
    """Return the names of the features in another file: those of the input. One matrix may have any name; if the input
    is one matrix that no option names, the other file may hold what it takes by default."""
    columns = open_file(shard_paths([path], FORMATS)[0]).columns
    is_matrix = len(columns) == 1 and next(iter(columns.values())).width > 0
    is_free = is_matrix or (not named and len(source.features) == 1 and source.width > 1)
    return () if is_free and not set(source.features) <= set(columns) else source.features


def _rows(path: str, named: bool, source: Rows, embedder: Embedder | None) -> OutsideRows:
    """Return all rows of a file."""
    if embedder is None:
        found = np.asarray(open_rows([path], features_in(path, source, named)).whole())
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
    lines = np.flatnonzero(kept_rows(file))
    origin = origin_of(path)
    if origin is None:
        record = Path(path).with_name(f"{Path(path).stem}.dedup") / f"written-{Path(path).name}.json"
        raise ValueError(f"--against: {record} must say what {path} was made of. Run smdl dedup again")
    if "embeddings" in origin.input:
        if embedder is not None and embedder.model.key != origin.input["model"]:
            raise ValueError(f"--against: {path} was made by another --model, or by an earlier version of it")
        values = read_embeddings(origin.folder / "embeddings.npy", origin.input["embeddings"])
        inside = file.column("index")[lines].astype(np.int64)
        _check_rows(path, inside, len(values))
        return OutsideRows(values[inside], np.full(len(lines), path, object), lines)
    earlier, numbers = _open_again(path, origin)
    shards = file.exact("shard", lines).tolist()
    inside = file.column("row")[lines].astype(np.int64)
    if strange := set(shards) - set(numbers):
        raise ValueError(f"--against: {path} names {min(strange)}, which was not among its input")
    number = np.array([numbers[shard] for shard in shards], np.int64)
    _check_rows(path, inside, np.diff(earlier.offsets)[number])
    rows = inside + earlier.offsets[number]
    values = earlier.features_at(rows) if len(rows) else np.empty((0, earlier.width), np.float32)
    return OutsideRows(values, np.full(len(lines), path, object), lines)


def _open_again(path: str, origin: Origin) -> tuple[Rows, dict[str, int]]:
    """Open the input of an earlier output, from any folder. Return it, and the number of each file by its name."""
    earlier = open_rows(places_of(path, origin), origin.input["features"])
    for number, (_, *now) in enumerate(file_stamps(earlier)):
        check_same("--against", path, origin, number, now)
    return earlier, {name: number for number, (name, *_) in enumerate(origin.input["files"])}


def _check_rows(path: str, rows: np.ndarray, counts: np.ndarray | int) -> None:
    if ((rows < 0) | (rows >= counts)).any():
        raise ValueError(f"--against: {path} names rows that its input does not have")
