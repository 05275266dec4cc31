"""What the code of a function reads from outside: globals, attributes of the user's modules, imports inside it."""

import dis
import sys
import sysconfig
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec, resolve_name
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

_INSTALLED = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
#: Folders of packages that another interpreter or the user installed.
_PACKAGES = {"site-packages", "dist-packages"}


class UnknownIdentityError(ValueError):
    """Something that cannot be compared with what it was in another call."""


def values_read(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the globals that a function reads. In place of a module of the user these are the attributes that are read
    from it; the module itself where it is used in another way, as in `getattr(module, name)` or `helper(module)`."""
    outside = function.__globals__
    for code in _codes(function.__code__):
        steps = [step for step in dis.get_instructions(code) if step.opname not in ("EXTENDED_ARG", "PUSH_NULL")]
        for place, step in enumerate(steps):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in outside:
                yield from _read(step.argval, outside[step.argval], steps[place + 1 :])
            elif step.opname == "IMPORT_NAME":
                yield from _imported(step.argval, steps[place - 1].argval, steps[place - 2].argval, outside)


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _read(name: str, value: Any, steps: list[dis.Instruction]) -> Iterator[tuple[str, Any]]:
    """Follow the attributes that are read from a module of the user, through modules in it."""
    for step in steps:
        if not isinstance(value, ModuleType) or is_library(value.__name__):
            break
        if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        name = f"{name}.{step.argval}"
        if not hasattr(value, step.argval):
            return
        value = getattr(value, step.argval)
    yield name, value


def _imported(
    name: str, members: tuple[str, ...] | None, level: int, outside: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield what an import inside a function reads: names from a module, or else the module itself. A module of the
    user is imported for that."""
    try:
        if level:
            name = resolve_name("." * level + name, outside.get("__package__") or "")
        if _is_installed(name.partition(".")[0]):
            return
        module = import_module(name)
        for member in members or ():
            if not hasattr(module, member):
                import_module(f"{name}.{member}")
    except ImportError:
        return  # the function cannot import it either
    except (Exception, SystemExit) as error:
        raise UnknownIdentityError(f"the import of {name} fails with {type(error).__name__}: {error}") from error
    if members:
        yield from ((f"{name}.{member}", getattr(module, member)) for member in members)
    else:
        yield name, module
        yield name.partition(".")[0], sys.modules[name.partition(".")[0]]


def _is_installed(package: str) -> bool:
    """Whether a package is Python's, smdl or installed. It is not imported for that."""
    if package in sys.modules:
        return is_library(package)
    spec = find_spec(package)
    places = [] if spec is None else [*(spec.submodule_search_locations or ()), spec.origin or ""]
    return any(place in ("built-in", "frozen") or _is_of_library(place) for place in places)


def is_library(module: str | None) -> bool:
    """Whether a module belongs to Python, to smdl or to an installed package."""
    if module is None or module == "__main__":
        return False
    if module.partition(".")[0] == "smdl":
        return True
    if module not in sys.modules:
        return False
    file, path = (getattr(sys.modules[module], name, None) for name in ("__file__", "__path__"))
    places = [file] if file else list(path or ())
    return all(_is_of_library(place) for place in places)  # none: it is compiled into Python


def _is_of_library(place: str) -> bool:
    path = Path(place)
    return str(path).startswith(_INSTALLED) or not _PACKAGES.isdisjoint(path.parts)


def is_named_by_library(thing: Any) -> bool:
    """Whether a library has this thing under its name. What a library makes of other functions has their names."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not is_library(module) or not name:
        return False
    found: Any = sys.modules[str(module)]
    for part in name.split("."):
        found = getattr(found, part, None)
    return getattr(found, "__func__", found) is thing
