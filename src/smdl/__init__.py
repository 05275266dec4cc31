"""smdl, the SubModular Data Loader: mini-batches by maximising a submodular score instead of drawing lots."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdl.candidates import Full, RandomPool
    from smdl.loader import DataLoader
    from smdl.objective import Objective
    from smdl.pool import Pool
    from smdl.selection import Evaluation, Selection, evaluate, select
    from smdl.strategies.strategy import Strategy
    from smdl.streaming import filter, pick  # noqa: A004

__version__ = "0.1.0"
__all__ = [
    "DataLoader",
    "Evaluation",
    "Full",
    "Objective",
    "Pool",
    "RandomPool",
    "Selection",
    "Strategy",
    "evaluate",
    "filter",
    "pick",
    "select",
]

_HOMES = {
    "DataLoader": "loader",
    "Evaluation": "selection",
    "Full": "candidates",
    "Objective": "objective",
    "Pool": "pool",
    "RandomPool": "candidates",
    "Selection": "selection",
    "Strategy": "strategies.strategy",
    "evaluate": "selection",
    "filter": "streaming",
    "pick": "streaming",
    "select": "selection",
}


def __getattr__(name: str) -> Any:
    """Public names load their module at first use: importing smdl does not import torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'smdl' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"smdl.{_HOMES[name]}"), name)
    return value
