"""smdl, the SubModular Data Loader: choose mini-batches by maximising a submodular score."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdl.candidates.full import Full
    from smdl.candidates.observed import Observed
    from smdl.candidates.random_pool import RandomPool
    from smdl.candidates.source import Candidates
    from smdl.comparison import compare, preview
    from smdl.engine.objective import Objective
    from smdl.engine.plan import Plan, explain
    from smdl.engine.pool import Pool
    from smdl.engine.selection import Evaluation, Selection, evaluate, select
    from smdl.engine.selector import Selector
    from smdl.loader import DataLoader
    from smdl.methods import Method
    from smdl.scoring.weighted_loss import weighted_mean
    from smdl.selective_loader import SelectiveLoader
    from smdl.strategies.strategy import Strategy

__version__ = "0.1.0"
__all__ = [
    "Candidates",
    "DataLoader",
    "Evaluation",
    "Full",
    "Method",
    "Objective",
    "Observed",
    "Plan",
    "Pool",
    "RandomPool",
    "Selection",
    "SelectiveLoader",
    "Selector",
    "Strategy",
    "compare",
    "evaluate",
    "explain",
    "preview",
    "select",
    "weighted_mean",
]

_MODULES = {
    "Candidates": "candidates.source",
    "DataLoader": "loader",
    "Evaluation": "engine.selection",
    "Full": "candidates.full",
    "Method": "methods",
    "Objective": "engine.objective",
    "Observed": "candidates.observed",
    "Plan": "engine.plan",
    "Pool": "engine.pool",
    "RandomPool": "candidates.random_pool",
    "Selection": "engine.selection",
    "SelectiveLoader": "selective_loader",
    "Selector": "engine.selector",
    "Strategy": "strategies.strategy",
    "compare": "comparison",
    "evaluate": "engine.selection",
    "explain": "engine.plan",
    "preview": "comparison",
    "select": "engine.selection",
    "weighted_mean": "scoring.weighted_loss",
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at first use: importing smdl does not import torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'smdl' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"smdl.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
