"""Workers of pytest-xdist share compiled loops: what one of them compiles, the others wait for and load.

Without this, two workers that reach the same loop at the same time both compile it, which takes seconds.
"""

import atexit
import hashlib
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from smdl.engine import jit

#: A worker that waited for this many seconds compiles the loop itself: the other one may have failed to compile it.
PATIENCE = 60
#: The workers of one run of pytest have one folder for their locks.
LOCKS = Path(tempfile.gettempdir()) / f"smdl-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID')}"
_held: dict[Path, FileLock] = {}


def _place(cache: Any, sig: Any) -> Path:
    """Return the file that is locked while a loop is compiled for a signature."""
    function = cache._py_func
    key = f"{cache._cache_path} {function.__module__}.{function.__qualname__} {sig}"
    return LOCKS / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.lock"


class OneCompiler(jit._Cache):
    """The cache of loops. From a miss until the loop is saved, a lock is held. Loops compile those that they call, and
    no loop calls itself, so no two workers wait for each other."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        place = _place(self, sig)
        if not self._py_func.__module__.startswith("smdl.") or place in _held:
            return super().load_overload(sig, target_context)
        lock = FileLock(place)
        try:
            lock.acquire(timeout=PATIENCE)
        except (OSError, Timeout):
            return super().load_overload(sig, target_context)
        found = super().load_overload(sig, target_context)
        if found is None:
            _held[place] = lock
        else:
            lock.release()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        finally:
            if lock := _held.pop(_place(self, sig), None):
                lock.release()


def share_compiled_loops() -> None:
    """Lock what is compiled from now on."""
    LOCKS.mkdir(exist_ok=True)
    atexit.register(shutil.rmtree, LOCKS, ignore_errors=True)
    jit._Cache = OneCompiler
