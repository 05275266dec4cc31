"""Files: atomic writes, checksums, folders that are never overwritten, lines that survive a kill, locks."""

import errno
import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import IO, Any


class DiskError(OSError):
    """The disk is full or not writable. Files written before are intact."""

    def __str__(self) -> str:
        return str(self.strerror)


class DamagedFileError(ValueError):
    """A file whose content is not what was written, or that is a file of another kind."""


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


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically."""
    with replacing(path) as file:
        file.write(content)


def write_sealed(path: Path, payload: bytes, kind: str) -> None:
    """Write a line with the kind of the file and the sha256 of the payload, then the payload, atomically."""
    write_bytes(path, _seal(payload, kind) + payload)


def read_sealed(path: Path, kind: str) -> bytes:
    """Return the payload of a file that `write_sealed` wrote, if no bit of the file has changed."""
    content = path.read_bytes()
    if not content.startswith(f"{kind} ".encode()):
        raise DamagedFileError(f"{path} is damaged, or is not a file of the kind {kind!r}")
    size = len(_seal(b"", kind))
    payload = content[size:]
    if content[:size] != _seal(payload, kind):
        raise DamagedFileError(f"{path} is damaged: its content does not have the checksum that it was written with")
    return payload


def _seal(payload: bytes, kind: str) -> bytes:
    return f"{kind} sha256 {hashlib.sha256(payload).hexdigest()}\n".encode()


def write_json(path: Path, value: dict[str, Any], checksum: bool = False) -> None:
    """Write `value` as indented JSON, atomically; with one more key, "checksum", if `read_json` is to verify it."""
    added = {"checksum": _checksum(value)} if checksum else {}
    write_bytes(path, (json.dumps({**value, **added}, indent=2) + "\n").encode())


def read_json(path: Path) -> Any:
    """Read a JSON file, without its checksum. Return None if it is missing or damaged. A file without a checksum, of an
    older version or written by hand, is believed."""
    try:
        value = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError, UnicodeDecodeError):
        return None
    given = value.pop("checksum", None) if isinstance(value, dict) else None
    return value if given in (None, _checksum(value)) else None


def _checksum(value: Any) -> str:
    """Return the sha256 of a value as JSON on one line. Reading and writing JSON keeps order and every digit."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def append_line(path: Path, record: Any) -> None:
    """Append one JSON line. It is on disk when this returns."""
    with disk_errors(path), path.open("a") as file:
        file.write(json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """Write a JSONL file that holds exactly these records, atomically."""
    write_bytes(path, "".join(json.dumps(record) + "\n" for record in records).encode())


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Return the checksum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


class ChangedOutputError(ValueError):
    """An output that is not what smdl wrote: a person may have added something to it."""


class ProtectedOutput:
    """A file that is written for people, who may add to it. A change of theirs is never lost.

    Every command that writes for people writes through this. The checksum of what was written is kept in `folder`,
    beside the output. An output with another checksum is refused, or with `force` kept beside the new one.

        output = ProtectedOutput(Path("chosen.csv"), Path("chosen.select"), force=False)
        output.check()            # before the long work: an error if the output has changed
        output.write(content)     # checks again; returns where a changed output was kept, or None
    """

    def __init__(self, path: Path, folder: Path, force: bool = False) -> None:
        self.path, self.force, self._record = path, force, folder / f"written-{path.name}.json"

    @property
    def is_changed(self) -> bool:
        """Whether there is a file that differs from what was written last."""
        known = read_json(self._record)
        written = known.get("sha256", ()) if isinstance(known, dict) else ()
        return self.path.exists() and digest(self.path) not in written

    def check(self) -> None:
        """Raise a ChangedOutputError if writing would lose a change."""
        if not self.force and self.is_changed:
            fault = "was changed after smdl wrote it" if self._record.exists() else "exists, and smdl did not write it"
            remedy = "choose another --out, or replace it by --force, which keeps the old file beside it"
            raise ChangedOutputError(f"{self.path} {fault}: {remedy}")

    def write(self, content: bytes, about: Mapping[str, Any] | None = None) -> Path | None:
        """Replace the output atomically, and keep what is said about it. Return the new name of a changed output."""
        self.check()
        kept = None
        with disk_errors(self.path):
            self._record.parent.mkdir(parents=True, exist_ok=True)
            if self.is_changed:
                kept = next(name for name in _beside(self.path) if not name.exists())
                os.replace(self.path, kept)
            before = [digest(self.path)] if self.path.exists() else []
        after = hashlib.sha256(content).hexdigest()
        record = dict(about or {})
        write_json(self._record, record | {"sha256": [*before, after]}, checksum=True)  # a kill may leave either
        write_bytes(self.path, content)
        write_json(self._record, record | {"sha256": [after]}, checksum=True)
        return kept


def _beside(path: Path) -> Iterator[Path]:
    """Yield chosen.before-1.csv, chosen.before-2.csv, ..."""
    return (path.with_name(f"{path.stem}.before-{number}{path.suffix}") for number in count(1))


def unused(folder: Path) -> bool:
    """Whether there is no such folder, or only an empty one: a process was killed before it wrote its first file."""
    try:
        return all(entry.name == ".lock" or entry.name.endswith(".part") for entry in folder.iterdir())
    except FileNotFoundError:
        return True
    except NotADirectoryError:  # it is a file, or a part of the path is one and no folder can be made
        return not folder.exists()


def names(path: Path) -> Iterator[Path]:
    """Yield path, path-2, path-3, ..."""
    yield path
    yield from (path.with_name(f"{path.name}-{number}") for number in count(2))


@contextmanager
def claimed(path: Path) -> Iterator[Path]:
    """Make and lock the folder `path`, or path-2, path-3, ... if that one is used already."""
    for folder in names(path):
        if not unused(folder):
            continue
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            try:
                stack.enter_context(locked(folder))
            except BusyError:  # another process has just claimed it
                continue
            if unused(folder):
                yield folder
                return


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
            errno.EPERM: "permission is denied",
            errno.ENOTDIR: "a part of the path is a file, not a folder",
            errno.EISDIR: "there is a folder of that name",
            errno.EEXIST: "there is a file of that name",
            errno.EFBIG: "the file would be too large",
            errno.EIO: "the disk reports an error",
        }
        if error.errno in reasons and not isinstance(error, DiskError):
            message = f"{path} cannot be written: {reasons[error.errno]}. What was written before is intact"
            raise DiskError(error.errno, message) from error
        raise
