"""Messages for bad input: the argument, the value, and what is allowed; and for packages that are not installed."""

import math
import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any, TypeVar, get_args

DISTRIBUTION = "submodular-data-loader"
_PAGES = ("PIL", "filelock", "jinja2", "matplotlib", "rich")  # progress, locks and reports
_FILES = (*_PAGES, "fsspec", "pyarrow")  # faiss speeds up graphs, where there is one
#: Import names of the packages that the extra of a command installs. The engine and the loader need none of them.
EXTRAS = {
    "train": (*_PAGES, "pooch", "requests", "safetensors", "scipy", "sklearn", "yaml"),
    "select": _FILES,
    "label": (*_FILES, "sklearn"),
}

#: The usual types first: asking an abstract class costs several times as much.
_WHOLE, _REAL = (int, Integral), (float, int, Real)


Name = TypeVar("Name", bound=str)
Called = TypeVar("Called", bound=Callable[..., Any])


class MissingPackagesError(ModuleNotFoundError):
    """Packages of an extra are not installed."""


def choice(argument: str, value: object, allowed: str) -> str:
    """Return 'size must be a whole number ≥ 1, got 0'."""
    return f"{argument} must be {allowed}, got {value!r}"


def unknown(kind: str, name: object, known: Iterable[str]) -> str:
    """Return "unknown distance 'cosin'; did you mean 'cosine'? Choose one of cosine, euclidean"."""
    known = sorted(known)
    begins = [each for each in known if name and each.startswith(str(name))]
    close = begins if len(begins) == 1 else get_close_matches(str(name), known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else "."
    return f"unknown {kind} {name!r}{hint} Choose one of {', '.join(known)}"


def check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise a TypeError that says what was meant by a keyword that a function does not have."""
    for name in given:
        if name not in known:
            raise TypeError(unknown(f"argument of {function}", name, known))


def of_scoring(name: str) -> str:
    """Return the error for an argument that `smdl.Scoring` has."""
    return f"`{name}` belongs to scoring=: pass scoring=smdl.Scoring({name}=...)"


def names_checked(function: Called) -> Called:
    """Make a function, or the constructor of a class, say what was meant by a keyword that it does not have."""
    if isinstance(function, type):
        function.__init__ = names_checked(function.__init__)
        return function  # type: ignore[return-value]
    code: Any = function.__code__
    known = frozenset(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - {"self", "cls"}

    @wraps(function)
    def checked(*args: Any, **keywords: Any) -> Any:
        if not known.issuperset(keywords):
            scoring = get_args(function.__annotations__.get("scoring"))  # Scoring | None
            for name in keywords.keys() - known:
                if any(name in getattr(kind, "__dataclass_fields__", ()) for kind in scoring):
                    raise TypeError(of_scoring(name))
            check_keywords(function.__qualname__.removesuffix(".__init__"), keywords, known)
        return function(*args, **keywords)

    return checked  # type: ignore[return-value]


def install(*extras: str) -> str:
    """Return the command that installs extras of smdl. It works in a clone too: the clone is installed already."""
    return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"


def not_installed(packages: Iterable[str], extra: str) -> str:
    """Return which packages of an extra are not installed, and the remedy."""
    return f"not installed: {', '.join(packages)}. Run {install(extra)}"


def check_packages(extra: str | None) -> None:
    """Raise an error that names the packages of an extra which are not installed."""
    missing = [name for name in sorted(EXTRAS[extra]) if find_spec(name) is None] if extra else []
    if extra and missing:
        raise MissingPackagesError(not_installed(missing, extra))


def number(argument: str, value: Any, allowed: str, low: float = -math.inf, high: float = math.inf) -> float:
    """Return a finite number in [low, high] as a float. `allowed` says the same in words."""
    if not isinstance(value, _REAL) or isinstance(value, bool):
        raise TypeError(choice(argument, value, allowed))
    found = float(value)
    if not (math.isfinite(found) and low <= found <= high):
        raise ValueError(choice(argument, value, allowed))
    return found


def positive(argument: str, value: Any, allowed: str = "a positive number") -> float:
    """Return a finite number above 0 as a float."""
    return number(argument, value, allowed, low=sys.float_info.min)


def one_of(argument: str, value: Name, known: Iterable[str]) -> Name:
    """Return the value if it is one of the known names."""
    if not isinstance(value, str):
        raise TypeError(choice(argument, value, f"one of {', '.join(sorted(known))}"))
    if value not in known:
        raise ValueError(unknown(argument, value, known))
    return value


def callable_or_none(argument: str, value: Any) -> Any:
    """Return the value if it can be called or is None."""
    if value is not None and not callable(value):
        raise TypeError(choice(argument, value, "a callable"))
    return value


def true_or_false(argument: str, value: Any) -> bool:
    """Return the value if it is a bool, else raise a TypeError: `"no"` would count as true."""
    if not isinstance(value, bool):
        raise TypeError(choice(argument, value, "True or False"))
    return value


def whole_number(argument: str, value: Any, least: int = 1) -> int:
    """Return the value as an int: a TypeError if it is none, a ValueError if it is below `least`."""
    allowed = f"a whole number ≥ {least}"
    if not isinstance(value, _WHOLE) or isinstance(value, bool):
        raise TypeError(choice(argument, value, allowed))
    if value < least:
        raise ValueError(choice(argument, value, allowed))
    return int(value)
