"""Tell one training function or dataset from another: by its code and by everything that it carries or reads."""

import hashlib
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch

_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})


class UnknownIdentityError(ValueError):
    """Something that cannot be compared with what it was in another call."""


def identity(thing: Any) -> str:
    """Return a hash of a function, an object or data: two that may behave differently have different ones.

    A function counts with its code, defaults, closure, bound arguments, and the globals that it reads, among them the
    functions and classes of the user's own modules. Installed packages count by name.

    Raises:
        UnknownIdentityError: a part of it cannot be compared, such as an open file.
    """
    walk = _Walk()
    try:
        walk.add(thing)
    except RuntimeError as error:  # nested too deeply, or a tensor without values
        raise UnknownIdentityError(f"{_described(thing)} cannot be compared: {error}") from error
    return walk.found.hexdigest()[:16]


class _Walk:
    def __init__(self) -> None:
        self.found = hashlib.sha256()
        self._places: dict[int, int] = {}
        self._kept: list[Any] = []  # an id is that of one thing only as long as the thing lives

    def add(self, thing: Any) -> None:
        """Add a thing and all that it consists of."""
        if type(thing) in _PLAIN:
            self._write(type(thing).__name__, repr(thing))
        elif id(thing) in self._places:
            self._write("again", str(self._places[id(thing)]))
        else:
            self._places[id(thing)] = len(self._places)
            self._kept.append(thing)
            self._add_parts(thing)

    def _write(self, *words: str) -> None:
        for word in words:
            self.found.update(f"{len(word)}:{word}".encode())

    def _add_all(self, kind: str, parts: Any) -> None:
        parts = list(parts)
        self._write(kind, str(len(parts)))
        for part in parts:
            self.add(part)

    def _add_parts(self, thing: Any) -> None:
        if isinstance(thing, FunctionType):
            self._add_function(thing)
        elif isinstance(thing, MethodType):
            self._add_all("method", [thing.__func__, thing.__self__])
        elif isinstance(thing, partial):
            self._add_all("partial", [thing.func, thing.args, thing.keywords])
        elif isinstance(thing, type | ModuleType | BuiltinFunctionType):
            self._add_named(thing)
        elif isinstance(thing, np.ndarray) and not thing.dtype.hasobject:
            self._write("array", str(thing.dtype), str(thing.shape))
            self.found.update(np.ascontiguousarray(thing).reshape(-1).view(np.uint8).data)
        elif isinstance(thing, torch.Tensor) and thing.layout is torch.strided:
            self._write("tensor", str(thing.dtype), str(tuple(thing.shape)), str(thing.requires_grad))
            self.found.update(thing.detach().cpu().reshape(-1).contiguous().view(torch.uint8).numpy().data)
        elif type(thing) in (list, tuple):
            self._add_all(type(thing).__name__, thing)
        elif type(thing) is dict:
            self._add_all("dict", [part for pair in thing.items() for part in pair])
        elif type(thing) in (set, frozenset):
            self._add_all("set", sorted(identity(part) for part in thing))
        else:
            self._add_object(thing)

    def _add_function(self, function: FunctionType) -> None:
        self._write("function", function.__module__ or "", function.__qualname__)
        if _is_library(function.__module__):
            return
        self._add_code(function.__code__)
        self._add_all("defaults", [function.__defaults__, function.__kwdefaults__, vars(function)])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._add_all(name, [cell.cell_contents] if cell != CellType() else [])  # empty: not assigned yet
        for name, value in _globals_of(function):
            self._add_all(name, [value])

    def _add_code(self, code: CodeType) -> None:
        self._write("code", code.co_code.hex(), *code.co_names, *code.co_varnames, *code.co_freevars)
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                self._add_code(constant)
            elif isinstance(constant, frozenset):
                self.add(constant)
            else:
                self._write(repr(constant))

    def _add_named(self, thing: Any) -> None:
        """Add a class with its bases and members, if it is the user's own; anything else by its name."""
        self._write(type(thing).__name__, getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", ""))
        self._write(thing.__name__)
        if isinstance(thing, type) and not _is_library(thing.__module__):
            members = [
                pair for pair in vars(thing).items() if not pair[0].startswith(("__", "_abc_")) or callable(pair[1])
            ]
            self._add_all("class", [*thing.__bases__, *(part for pair in members for part in pair)])
        elif isinstance(thing, BuiltinFunctionType) and not isinstance(thing.__self__, ModuleType | None):
            self.add(thing.__self__)

    def _add_object(self, thing: Any) -> None:
        """Add an object by what it would be pickled as."""
        if isinstance(thing, property | classmethod | staticmethod):
            self._add_all("member", [getattr(thing, name, None) for name in ("__func__", "fget", "fset", "fdel")])
            return
        try:
            parts = thing.__reduce_ex__(4)
        except Exception as error:
            raise UnknownIdentityError(f"{_described(thing)} cannot be compared: {error}") from error
        if isinstance(parts, str):
            self._write("named", type(thing).__qualname__, parts)
        else:
            self._add_all("object", [list(part) if isinstance(part, Iterator) else part for part in parts])


def _globals_of(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function reads, also those of the user's modules that it reads as attributes."""
    names = list(dict.fromkeys(_names(function.__code__)))
    for name in names:
        if name in function.__globals__:
            value = function.__globals__[name]
            yield name, value
            if isinstance(value, ModuleType) and not _is_library(value.__name__):
                yield from ((inner, getattr(value, inner)) for inner in names if hasattr(value, inner))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_library(module: str | None) -> bool:
    """Whether a module belongs to Python, to smdl or to an installed package."""
    if module is None or module.partition(".")[0] == "smdl":
        return True
    if module == "__main__" or module not in sys.modules:
        return False
    file = getattr(sys.modules[module], "__file__", None)
    return file is None or str(Path(file)).startswith(_INSTALLED)  # without a file it is compiled into Python


def _described(thing: Any) -> str:
    return f"a {type(thing).__module__}.{type(thing).__qualname__}"
