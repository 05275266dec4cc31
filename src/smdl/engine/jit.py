"""Compile loops with numba. Compiled loops release the GIL and are cached on disk."""

import hashlib
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pkgutil import get_data
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.runtime.nrt import rtsys

from smdl.engine.compile_notice import CompileNotice

_notice = CompileNotice()

F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = njit

PLAIN: Any = {"nogil": True}
INLINED: Any = {**PLAIN, "forceinline": True}

#: The modules with compiled loops or parts of them, and this one, which says how they are compiled.
KERNEL_MODULES = (
    "arithmetic.py",
    "block_loops.py",
    "greedy/gains.py",
    "greedy/kernels.py",
    "jit.py",
    "near_copies.py",
    "randomness.py",
    "row_scores.py",
    "similarity.py",
    "terms/facility_location.py",
    "terms/feature_coverage.py",
    "terms/log_determinant.py",
    "terms/pair_sums.py",
    "terms/probabilistic_set_cover.py",
    "terms/redundancy.py",
    "terms/saturated_coverage.py",
    "terms/set_cover.py",
)


def compiled(function: F) -> F:
    """Compile a function; its arithmetic is exactly as written."""
    return _cached(function, PLAIN)


def inlined(function: F) -> F:
    """Compile a function as a part of its callers."""
    return _cached(function, INLINED)


def reordered(function: F) -> F:
    """Inline a function and allow its sums in any order: for sums that are exact, or need not be."""
    return _cached(function, {**INLINED, "fastmath": {"reassoc", "contract", "nsz"}})


def _cached(function: F, options: Any) -> F:
    dispatcher = _njit(**options)(function)
    try:
        dispatcher._cache = _Cache(function)
    except (OSError, RuntimeError):  # numba found no folder to write to
        _warn_once()
    return dispatcher


class _CacheFile(IndexDataCacheFile):
    """Numba's files, with a checksum over the code and what it was compiled for: damaged code is never run."""

    def save(self, key: Any, data: Any) -> None:
        content = self._dump((key, data))
        super().save(key, (hashlib.sha256(content).digest(), content))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is None:
            return None
        digest, content = found
        if digest != hashlib.sha256(content).digest():
            raise ValueError("the compiled code is damaged")
        kept, data = pickle.loads(content)
        return data if kept == key else None


class _Cache(FunctionCache):
    """Numba's cache, with the hash of all kernel sources in its file names: numba itself compares a cached loop only
    with the file of that loop, and not with those of the loops it calls. A file that cannot be read is ignored."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        name, stamp = f"{self._impl.filename_base}-{_version()}", self._impl.locator.get_source_stamp()
        self._cache_file = _CacheFile(self._cache_path, name, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Numba's method would first import all that a compilation may need, even scipy.linalg. That takes most of the
        time of the first selection of a process, and a compilation does it anyway."""
        try:
            rtsys.initialize(target_context)
            with self._guard_against_spurious_io_errors():
                found = self._load_overload(sig, target_context)
                if found is not None:
                    return found
        except Exception:  # a damaged pickle can fail in any way
            with suppress(OSError):
                self.flush()
        _notice.begin()
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        _notice.end()
        try:
            super().save_overload(sig, data)
        except OSError:
            _warn_once()


@cache
def _version() -> str:
    return hashlib.sha256(b"\0".join(get_data("smdl.engine", name) or b"" for name in KERNEL_MODULES)).hexdigest()[:12]


@cache
def _warn_once() -> None:
    warnings.warn(
        "compiled loops cannot be cached, so every process compiles them again:"
        " set NUMBA_CACHE_DIR to a folder that can be written to",
        stacklevel=2,
    )
