"""Faults for the tests: a disk that fails at one of its operations, and a process that is killed there. The numbers of
faults that the tests inject are here, so that docs/reliability.md can cite them."""

import errno
import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Mutations of a checkpoint (twice: the file, and a run that resumes from it), of cached features and of compiled
#: code. All must be refused.
MUTATIONS = 400
#: File operations (make a folder, open for writing, flush to disk, rename) of a run of two epochs with a reference
#: model, and of an experiment of two runs. The process is killed before each of them, and started again.
RUN_OPERATIONS, EXPERIMENT_OPERATIONS = 38, 62
#: File operations of a run of two epochs at each of which the disk is full.
FULL_DISK_OPERATIONS = 33
#: Runs in a process of their own that ends by os._exit in the middle of a write.
EXITS_OF_RUNS = 3
#: Values of a wrong type, length or shape in the state of a run, all of which must be refused.
WRONG_VALUES = 273


class Killed(BaseException):
    """What a kill would be: nothing in the process may catch it, and no file changes after it."""


class Disk:
    """The file operations below a folder. `fail` is called with the path at the operation numbered `at`."""

    def __init__(self, folder: Path, at: int | None, fail: Callable[[str], None]) -> None:
        self.folder, self.at, self.fail = str(folder), at, fail
        self.done: list[str] = []
        self.dead = False

    def operate(self, name: str, path: Any) -> None:
        path = os.fspath(path)
        if not isinstance(path, str) or not path.startswith(self.folder):
            return
        if self.dead:
            raise Killed
        self.done.append(f"{name} {path.removeprefix(self.folder)}")
        if len(self.done) - 1 == self.at:
            self.fail(path)


_disk: Disk | None = None
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if _disk is None or not arguments or not isinstance(arguments[0], str | os.PathLike):
        return
    path = Path(arguments[0])
    new_folder = event == "os.mkdir" and path.parent.exists() and not path.exists()
    if event in ("os.rename", "os.remove") or new_folder or (event == "open" and arguments[2] & _WRITING):
        _disk.operate(event, path)


sys.addaudithook(_watch)
_fsync = os.fsync


def _watched_fsync(file: int) -> None:
    if _disk is not None:
        _disk.operate("os.fsync", os.readlink(f"/proc/self/fd/{file}"))
    _fsync(file)


@contextmanager
def failing_disk(folder: Path, at: int | None, fail: Callable[[str], None]) -> Iterator[Disk]:
    """Watch the file operations below a folder; call `fail` at one of them."""
    global _disk
    _disk = Disk(folder, at, fail)
    os.fsync = _watched_fsync
    try:
        yield _disk
    finally:
        _disk, os.fsync = None, _fsync


@contextmanager
def killed_at(folder: Path, at: int | None) -> Iterator[Disk]:
    """Kill at a file operation: it does not happen, and none after it."""

    def kill(_: str) -> None:
        disk.dead = True
        raise Killed

    with failing_disk(folder, at, kill) as disk:
        yield disk


def full(path: str) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def mutated(content: bytes, number: int) -> bytes:
    """Return the content with one flipped bit, cut off, with bytes more, or with bytes replaced by zeros."""
    rng = random.Random(number)
    place, kind = rng.randrange(len(content)), number % 4
    length = rng.randint(1, min(4096, len(content) - place))
    changed = {
        0: lambda: content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :],
        1: lambda: content[:place],
        2: lambda: content[:place] + rng.randbytes(length) + content[place:],
        3: lambda: content[:place] + bytes(length) + content[place + length :],
    }[kind]()
    return changed if changed != content else content + b"\0"
