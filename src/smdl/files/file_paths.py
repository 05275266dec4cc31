"""Files by path, URL, pattern or folder: how they are found and opened, and what tells that they have changed."""

import glob
import hashlib
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import IO, Any

import numpy as np

#: Most bytes of a file of which `sampled_digest` reads everything.
MOST_DIGESTED = 1 << 22


def shard_paths(paths: Sequence[str], suffixes: Collection[str]) -> list[str]:
    """Return the files that these paths, patterns and folders name."""
    found: list[str] = []
    for path in paths:
        files = _in_folder(path, suffixes)
        if files is None:
            files = sorted(_glob(path)) if any(letter in path for letter in "*?[") else [path]
            if not files:
                raise ValueError(f"{path} matches no file")
        found += files
    places = [path if is_url(path) else os.path.abspath(path) for path in found]
    twice = sorted({path for path, place in zip(found, places, strict=True) if places.count(place) > 1})
    if twice:
        raise ValueError(f"{twice[0]} is given twice")
    return found


def _in_folder(path: str, suffixes: Collection[str]) -> list[str] | None:
    """Return the files of a folder that can be read, by name; None if it is no folder."""
    if is_url(path):
        import fsspec

        with readable(path):
            system, inner = fsspec.core.url_to_fs(path)
            if not system.isdir(inner):
                return None
            files = [system.unstrip_protocol(entry) for entry in system.ls(inner, detail=False)]
    elif os.path.isdir(path):
        files = [os.path.join(path, name) for name in os.listdir(path) if not name.startswith(".")]
    else:
        return None
    files = sorted(file for file in files if suffix_of(file) in suffixes)
    kinds = sorted({suffix_of(file) for file in files})
    if len(kinds) != 1:
        held = f"files of several kinds ({', '.join(kinds)}): name them by a pattern" if kinds else "no file to read"
        images = "" if kinds else ". Images: smdl label, dedup and score take --model package.module:function"
        raise ValueError(f"the folder {path} holds {held}; choose among {', '.join(suffixes)}{images}")
    return files


def _glob(path: str) -> list[str]:
    if not is_url(path):
        return glob.glob(path)
    import fsspec

    with readable(path):
        system, inner = fsspec.core.url_to_fs(path)
        return [system.unstrip_protocol(entry) for entry in system.glob(inner)]


def stamp_of(path: str) -> list[Any]:
    """Return the size of a file, what else its store says of it, and a checksum of some of its content."""
    found = short_stamp_of(path)
    return [sampled_digest(path, found[0]), *found]


def short_stamp_of(path: str) -> list[Any]:
    """Return the size of a file and what else is known without a look into it."""
    if not is_url(path):
        with readable(path):
            found = os.stat(path)
        return [found.st_size, found.st_mtime_ns]
    import fsspec

    with readable(path):
        system, inner = fsspec.core.url_to_fs(path)
        info = system.info(inner)
    names = ("etag", "ETag", "mtime", "created", "last_modified", "LastModified")
    return [info.get("size") or 0, *(str(info[name]) for name in names if name in info)]


def sampled_digest(path: str, size: int) -> str:
    """Return the checksum of a file up to 4 MB, or of 64 blocks of 64 kB that are spread over a larger one."""
    found, step, blocks = hashlib.sha256(), 1 << 16, 64
    starts = range(0, size, step) if size <= MOST_DIGESTED else np.linspace(0, size - step, blocks).astype(int).tolist()
    with readable(path), opened(path) as file:
        for start in starts:
            file.seek(start)
            found.update(file.read(step))
    return found.hexdigest()


def is_url(path: str) -> bool:
    """Whether a path is for fsspec: s3://, memory://, ..."""
    return "://" in path


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file for reading: by fsspec if the path is a URL."""
    if is_url(path):
        import fsspec

        with fsspec.open(path, "rb") as file:
            yield file  # type: ignore[misc]
    else:
        with open(path, "rb") as file:
            yield file


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Turn whatever a damaged or missing file raises into an error that names the file."""
    try:
        yield
    except (KeyboardInterrupt, UnreadableError):
        raise
    except MemoryError as error:
        raise UnreadableError(f"{path} cannot be read: it does not fit the memory") from error
    except ImportError as error:
        raise UnreadableError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # zipfile, json, struct, pyarrow and fsspec raise many kinds of errors
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        text = " ".join(str(reason or type(error).__name__).split())
        raise UnreadableError(f"{path} cannot be read: {text[:300]}") from error


class UnreadableError(ValueError):
    """A file that cannot be read."""


def suffix_of(path: str) -> str:
    return PurePosixPath(path).suffix.lower()
