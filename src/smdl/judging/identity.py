"""Tell one training function or dataset from another: by its code and by everything that it carries or reads."""

import hashlib
from collections.abc import Iterator
from copyreg import dispatch_table
from functools import partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ref

import numpy as np
import torch

from smdl.judging.code_reads import UnknownIdentityError, is_library, is_named_by_library, values_read

_PLAIN = (type(None), bool, int, float, complex, str, bytes)


def identity(thing: Any) -> str:
    """Return a hash of a function, an object or data: two that may behave differently have different ones.

    A function counts with its code, defaults, closure, bound arguments, and the globals that it reads, among them what
    it reads from the user's own modules. A module that is passed on counts whole. Installed packages count by name.

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
        elif isinstance(thing, ModuleType):
            self._add_module(thing)
        elif isinstance(thing, ref):
            self._add_all("reference", [thing()])
        elif isinstance(thing, type | BuiltinFunctionType):
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
        is_theirs = is_library(function.__module__) and is_library(function.__globals__.get("__name__"))
        if is_theirs and is_named_by_library(function):
            return
        self._add_code(function.__code__)
        self._add_all("defaults", [function.__defaults__, function.__kwdefaults__, vars(function)])
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self._add_all(name, [cell.cell_contents] if cell != CellType() else [])  # empty: not assigned yet
        for name, value in () if is_theirs else values_read(function):
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

    def _add_module(self, module: ModuleType) -> None:
        """Add a module by its name, and with all that it holds if it is the user's own."""
        self._write("module", module.__name__)
        if not is_library(module.__name__):
            members = sorted(name for name in vars(module) if not (name.startswith("__") and name.endswith("__")))
            self._add_all("members", [part for name in members for part in (name, vars(module)[name])])

    def _add_named(self, thing: Any) -> None:
        """Add a class with its bases and members, if it is the user's own; anything else by its name."""
        self._write(type(thing).__name__, getattr(thing, "__module__", None) or "", getattr(thing, "__qualname__", ""))
        self._write(thing.__name__)
        if isinstance(thing, type) and not is_library(thing.__module__):
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
            reduce = dispatch_table.get(type(thing))
            parts = thing.__reduce_ex__(4) if reduce is None else reduce(thing)
        except Exception as error:
            raise UnknownIdentityError(f"{_described(thing)} cannot be compared: {error}") from error
        if isinstance(parts, str):
            self._write("named", type(thing).__qualname__, parts)
            if not is_named_by_library(thing):
                own = None if is_library(type(thing).__module__) else [type(thing), getattr(thing, "__dict__", None)]
                self._add_all("parts", [getattr(thing, "__wrapped__", None), own])
        else:
            self._add_all("object", [list(part) if isinstance(part, Iterator) else part for part in parts])


def _described(thing: Any) -> str:
    return f"a {type(thing).__module__}.{type(thing).__qualname__}"
