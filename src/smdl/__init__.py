"""smdl, the SubModular Data Loader.

smdl chooses the data that is worth a budget: the rows worth a label, the rows worth keeping, the rows worth a training
step.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from smdl.engine.near_copies import Deduplication, deduplicate
    from smdl.engine.objective import Objective
    from smdl.engine.plan import SelectionPlan, explain
    from smdl.engine.pool import Pool
    from smdl.engine.row_scores import RowScores, score
    from smdl.engine.selection import Evaluation, Selection, evaluate, select
    from smdl.engine.selector import Selector
    from smdl.engine.sieve import StreamPicks, select_stream
    from smdl.judging.comparison import compare, preview
    from smdl.judging.group_accuracies import group_accuracies
    from smdl.labelling.labels import Labels
    from smdl.loading.candidates.base import Candidates
    from smdl.loading.candidates.full import Full
    from smdl.loading.candidates.observed import Observed
    from smdl.loading.candidates.random_pool import RandomPool
    from smdl.loading.head_refit import refit_head
    from smdl.loading.loader import DataLoader
    from smdl.loading.methods import Method, methods
    from smdl.loading.selective_loader import SelectiveLoader
    from smdl.loading.strategies.strategy import Strategy
    from smdl.scoring.balanced_softmax import balanced_softmax
    from smdl.scoring.scoring_options import Scoring
    from smdl.scoring.weighted_loss import weighted_mean

__version__ = "0.1.0"
__all__ = [
    "Candidates",
    "DataLoader",
    "Deduplication",
    "Evaluation",
    "Full",
    "Labels",
    "Method",
    "Objective",
    "Observed",
    "Pool",
    "RandomPool",
    "RowScores",
    "Scoring",
    "Selection",
    "SelectionPlan",
    "SelectiveLoader",
    "Selector",
    "Strategy",
    "StreamPicks",
    "balanced_softmax",
    "compare",
    "deduplicate",
    "evaluate",
    "explain",
    "group_accuracies",
    "methods",
    "preview",
    "refit_head",
    "score",
    "select",
    "select_stream",
    "weighted_mean",
]

_MODULES = {
    "Candidates": "loading.candidates.base",
    "DataLoader": "loading.loader",
    "Deduplication": "engine.near_copies",
    "Evaluation": "engine.selection",
    "Full": "loading.candidates.full",
    "Labels": "labelling.labels",
    "Method": "loading.methods",
    "Objective": "engine.objective",
    "Observed": "loading.candidates.observed",
    "SelectionPlan": "engine.plan",
    "Pool": "engine.pool",
    "RandomPool": "loading.candidates.random_pool",
    "RowScores": "engine.row_scores",
    "Scoring": "scoring.scoring_options",
    "Selection": "engine.selection",
    "SelectiveLoader": "loading.selective_loader",
    "Selector": "engine.selector",
    "Strategy": "loading.strategies.strategy",
    "StreamPicks": "engine.sieve",
    "balanced_softmax": "scoring.balanced_softmax",
    "compare": "judging.comparison",
    "deduplicate": "engine.near_copies",
    "evaluate": "engine.selection",
    "explain": "engine.plan",
    "group_accuracies": "judging.group_accuracies",
    "methods": "loading.methods",
    "preview": "judging.comparison",
    "refit_head": "loading.head_refit",
    "score": "engine.row_scores",
    "select": "engine.selection",
    "select_stream": "engine.sieve",
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
