"""Objects of the user by name: `package.module:name`."""

import inspect
import sys
from importlib import import_module
from typing import Any

from smdl.common.messages import choice, unknown


def load_object(path: str, option: str) -> Any:
    """Return the object that `package.module:name` names; modules of the working folder are found too."""
    home, _, name = path.partition(":")
    if not home or not name:
        raise ValueError(choice(option, path, "of the form package.module:name"))
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        module = import_module(home)
    except ModuleNotFoundError as error:
        if error.name is None or not (home == error.name or home.startswith(f"{error.name}.")):
            raise  # the module is there, and misses another
        raise ValueError(
            f"{option} {path}: there is no module {error.name!r} here or among the installed ones"
        ) from error
    if not hasattr(module, name):
        raise ValueError(unknown(f"{option} in {home}", name, [n for n in vars(module) if not n.startswith("_")]))
    return getattr(module, name)


def from_factory(path: str, option: str, kind: type, **offered: Any) -> Any:
    """Call the factory at `path` with those of the offered arguments that it takes; return what it makes."""
    factory = load_object(path, option)
    if not callable(factory):
        raise ValueError(f"{option} {path} must be callable, got {type(factory).__name__}")
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:  # some builtins have none
        parameters = {}
    anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    made = factory(**{name: value for name, value in offered.items() if anything or name in parameters})
    if not isinstance(made, kind):
        raise ValueError(f"{option} {path} must make a {kind.__name__}, got {type(made).__name__}")
    return made
