"""The three ways in which loops are compiled here. All release the GIL and are kept on disk."""

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])
_njit: Any = njit

PLAIN: Any = {"cache": True, "nogil": True}
INLINED: Any = {**PLAIN, "forceinline": True}


def compiled(function: F) -> F:
    """Arithmetic exactly as written."""
    return _njit(**PLAIN)(function)


def inlined(function: F) -> F:
    """The same, as part of its callers."""
    return _njit(**INLINED)(function)


def reordered(function: F) -> F:
    """Inlined, and its sums may be taken in any order: for sums that are exact, or need not be."""
    return _njit(**INLINED, fastmath={"reassoc", "contract", "nsz"})(function)
