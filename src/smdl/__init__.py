"""smdl, the SubModular Data Loader: mini-batches by maximising a submodular score instead of drawing lots."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdl.objective import Objective
    from smdl.pool import Pool
    from smdl.selection import Evaluation, Selection, evaluate, select

__version__ = "0.1.0"
__all__ = ["Evaluation", "Objective", "Pool", "Selection", "evaluate", "select"]

_HOMES = {
    "Evaluation": "selection",
    "Objective": "objective",
    "Pool": "pool",
    "Selection": "selection",
    "evaluate": "selection",
    "select": "selection",
}


def __getattr__(name: str) -> Any:
    """Public names load their module at first use: importing smdl does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'smdl' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"smdl.{_HOMES[name]}"), name)
    return value
