"""The clock by which steps are timed: it stands still while a thread is ready to run and another has its core."""

import os
import threading
import time

#: The kernel's record of the thread that opens it: nanoseconds of running, nanoseconds of waiting for a core, turns.
RECORD = "/proc/thread-self/schedstat"

_opened = threading.local()


def now() -> float:
    """Return seconds of wall-clock time, without those that this thread has spent waiting for a core.

    So other work on the machine hardly changes what is measured, while waiting for files, workers or a device counts.
    Only differences within one thread mean anything. Where the kernel keeps no record, this is wall-clock time."""
    if getattr(_opened, "process", None) != os.getpid():  # a new thread, or a fork, which inherits its parent's record
        _opened.record, _opened.process = _open(), os.getpid()
    waited = _opened.record.waited() if _opened.record else 0
    return time.perf_counter() - 1e-9 * waited


class _Record:
    """The kernel's record of the thread that made this."""

    def __init__(self) -> None:
        self._file = os.open(RECORD, os.O_RDONLY)

    def waited(self) -> int:
        """Return the nanoseconds that the thread has waited for a core."""
        return int(os.pread(self._file, 128, 0).split()[1])

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)


def _open() -> _Record | None:
    """Return the record of this thread, if there is one that can be read."""
    try:
        record = _Record()
        record.waited()
    except (OSError, ValueError, IndexError):
        return None
    return record
