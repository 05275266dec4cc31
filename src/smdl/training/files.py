"""Files: atomic writes, folders that are never overwritten, lines that survive a kill, locks."""

import errno
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


class DiskError(OSError):
    """The disk is full or not writable. Files written before are intact."""


class BusyError(ValueError):
    """Another process holds the lock of a folder."""


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Open a temporary file that replaces `path` once it is complete and on disk."""
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
    """Write `value` as indented JSON, atomically."""
    with replacing(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file. Return None if it is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return None


def append_line(path: Path, record: Any) -> None:
    """Append one JSON line. It is on disk when this returns."""
    with disk_errors(path), path.open("a") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write a JSONL file that holds exactly these records, atomically."""
    with replacing(path) as file:
        file.write("".join(json.dumps(record) + "\n" for record in records).encode())


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Read the records of a JSONL file, without a last line that a kill left incomplete."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return records


def new_folder(path: Path) -> Path:
    """Make the folder `path`, or path-2, path-3, ... if it exists already."""
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
    """Hold the folder's lock. If another process holds it, wait for that process or raise a BusyError. The system
    releases the lock when the process ends, however it ends."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    try:
        with disk_errors(folder):
            lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise BusyError(f"another process is at work in {folder}: wait for it, or choose another folder") from None
    try:
        yield
    finally:
        lock.release()


def cache_folder() -> Path:
    """Return the folder for downloads and reference features: SMDL_CACHE, or smdl in the user's cache."""
    given = os.environ.get("SMDL_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return Path(given) if given else base / "smdl"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the disk into a DiskError that says what could not be written and why."""
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
