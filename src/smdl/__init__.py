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

#: The module of each public name.
_MODULES = {
    name: module
    for module, names in {
        "engine.near_copies": "Deduplication deduplicate",
        "engine.objective": "Objective",
        "engine.plan": "SelectionPlan explain",
        "engine.pool": "Pool",
        "engine.row_scores": "RowScores score",
        "engine.selection": "Evaluation Selection evaluate select",
        "engine.selector": "Selector",
        "engine.sieve": "StreamPicks select_stream",
        "judging.comparison": "compare preview",
        "judging.group_accuracies": "group_accuracies",
        "labelling.labels": "Labels",
        "loading.candidates.base": "Candidates",
        "loading.candidates.full": "Full",
        "loading.candidates.observed": "Observed",
        "loading.candidates.random_pool": "RandomPool",
        "loading.head_refit": "refit_head",
        "loading.loader": "DataLoader",
        "loading.methods": "Method methods",
        "loading.selective_loader": "SelectiveLoader",
        "loading.strategies.strategy": "Strategy",
        "scoring.balanced_softmax": "balanced_softmax",
        "scoring.scoring_options": "Scoring",
        "scoring.weighted_loss": "weighted_mean",
    }.items()
    for name in names.split()
}


def __getattr__(name: str) -> Any:
    """Import the module of a public name at first use: importing smdl does not import torch."""
    if name not in _MODULES:
        raise AttributeError(f"module 'smdl' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"smdl.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return __all__
