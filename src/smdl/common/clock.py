"""The clock by which steps are timed. In a process that computes with one thread, it does not count the time in which
that thread is ready to run and another process has its core."""

import os
import threading
import time
from contextlib import suppress

import torch

#: The kernel's record of the thread that opens it: nanoseconds of running, nanoseconds of waiting for a core, turns.
RECORD = "/proc/thread-self/schedstat"

#: Of each thread: its record, what was read from it last, what was left out so far, and the last time that was shown.
_own = threading.local()
_helped = False  # see `count_waiting`


def now() -> float:
    """Return seconds of wall-clock time, without those that this thread has spent waiting for a core.

    So other work on the machine hardly changes what is measured, while waiting for files counts. It is wall-clock time
    where waiting may be our own doing or no waste: with several threads, workers or a GPU, and where the kernel keeps
    no record. Only differences within one thread mean anything."""
    waited = _waited()
    if torch.get_num_threads() == 1 and not _helped and not torch.cuda.is_initialized():
        _own.left_out += waited - _own.waited
    _own.waited = waited
    # Other work may come between the two readings: without the maximum the clock would go back.
    _own.shown = max(_own.shown, time.perf_counter() - 1e-9 * _own.left_out)
    return _own.shown


def count_waiting() -> None:
    """From now on, waiting for a core counts: processes of ours may have it."""
    global _helped
    _helped = True


def _waited() -> int:
    """Return the nanoseconds that this thread has waited for a core; 0 if there is no record."""
    if getattr(_own, "process", None) != os.getpid():  # a new thread, or a fork, which inherits its parent's record
        _own.record, _own.left_out, _own.shown, _own.process = None, 0, 0.0, os.getpid()
        with suppress(OSError):
            _own.record = _Record()
        _own.waited = _read()
    return _read()


def _read() -> int:
    try:
        return 0 if _own.record is None else _own.record.waited()
    except (OSError, ValueError, IndexError):  # no such record here, or someone closed the file
        _own.record = None
        return getattr(_own, "waited", 0)


class _Record:
    """The kernel's record of the thread that made this."""

    def __init__(self) -> None:
        self._file = os.open(RECORD, os.O_RDONLY)

    def waited(self) -> int:
        return int(os.pread(self._file, 128, 0).split()[1])

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self._file)
