"""Files that are whole or not there: atomic writes, folders that are never overwritten, lines that survive a kill."""

import errno
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

try:
    import fcntl
except ImportError:  # Windows: two commands in one folder are the user's to keep apart
    fcntl = None


class DiskError(OSError):
    """The disk is full or not writable; what was there before still is."""


class BusyError(ValueError):
    """Another process is at work in a folder."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file to write to, which becomes `path` only when it is complete and on disk."""
    with disk_errors(path):
        part = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        try:
            with part.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


def write_json(path: Path, value: Any) -> None:
    """`value` as indented JSON, atomically."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """A JSON file; None if it is not there or not whole."""
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return None


def append_line(path: Path, record: Any) -> None:
    """One JSON line more, on disk when this returns."""
    with disk_errors(path), path.open("a") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """A JSONL file of just these records, atomically."""
    with replacing(path) as file:
        file.write("".join(json.dumps(record) + "\n" for record in records).encode())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records of a JSONL file; a last line that a kill left incomplete is not one."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def new_folder(path: Path) -> Path:
    """`path`, or the next free name: path-2, path-3, ... Never one that exists."""
    number = 1
    with disk_errors(path):
        while True:
            candidate = path if number == 1 else path.with_name(f"{path.name}-{number}")
            try:
                candidate.mkdir(parents=True)
                return candidate
            except FileExistsError:
                number += 1


@contextmanager
def locked(folder: Path, wait: bool = False) -> Iterator[None]:
    """The folder for this process alone. Where another has it: wait for that one, or a BusyError. The system gives a
    lock back when its process ends, however it ends."""
    if fcntl is None:
        yield
        return
    with disk_errors(folder):
        opened = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BusyError(f"another process is at work in {folder}: wait for it, or choose another folder") from None
        yield
    finally:
        os.close(opened)


def cache_folder() -> Path:
    """Where downloads and reference features are kept: SMDL_CACHE, or the user's cache."""
    given = os.environ.get("SMDL_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "smdl"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """An OSError of the disk in words: what could not be written, and that nothing was lost."""
    try:
        yield
    except OSError as error:
        reasons = {
            errno.ENOSPC: "the disk is full",
            errno.EDQUOT: "the disk quota is used up",
            errno.EROFS: "the disk is read-only",
            errno.EACCES: "permission is denied",
            errno.ENOTDIR: "a part of the path is a file, not a folder",
        }
        if error.errno in reasons and not isinstance(error, DiskError):
            message = f"{path} cannot be written: {reasons[error.errno]}. What was written before is intact"
            raise DiskError(error.errno, message) from error
        raise
