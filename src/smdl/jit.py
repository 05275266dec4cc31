"""Compile loops with numba. Compiled loops release the GIL and are cached on disk."""

import hashlib
import warnings
from collections.abc import Callable
from functools import cache
from pkgutil import get_data
from typing import Any, TypeVar

from numba import njit
from numba.core.caching import FunctionCache, IndexDataCacheFile

F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = njit

PLAIN: Any = {"nogil": True}
INLINED: Any = {**PLAIN, "forceinline": True}

#: The modules with compiled loops.
KERNEL_MODULES = ("arithmetic.py", "greedy/gains.py", "greedy/kernels.py", "randomness.py", "similarity.py")


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
    except (OSError, RuntimeError) as error:  # numba found no folder to write to
        _warn_once(error)
    return dispatcher


class _Cache(FunctionCache):
    """Numba's cache, except that a file from another version of smdl, or a damaged file, is never an error.

    Numba compares a cached loop with the file of that loop alone. A loop also contains the loops that it calls, so
    the hash of all modules with loops is a part of the file names.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        name, stamp = f"{self._impl.filename_base}-{_version()}", self._impl.locator.get_source_stamp()
        self._cache_file = IndexDataCacheFile(self._cache_path, name, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # a damaged pickle can fail in any way
            self._attempt(self.flush)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        self._attempt(super().save_overload, sig, data)

    def _attempt(self, write: Callable[..., None], *arguments: Any) -> None:
        try:
            write(*arguments)
        except OSError as error:
            _warn_once(error)


@cache
def _version() -> str:
    sources = [get_data("smdl", name) or b"" for name in KERNEL_MODULES]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


_warned: list[Exception] = []


def _warn_once(error: Exception) -> None:
    if not _warned:
        _warned.append(error)
        warnings.warn(
            f"compiled loops cannot be cached, so every process compiles them again: {error}."
            " Set NUMBA_CACHE_DIR to a folder that can be written to.",
            stacklevel=2,
        )
