"""Put a loader in the state that it has in the middle of a run, so that a few steps cost what steps cost on average."""

from collections.abc import Callable
from typing import Any

import torch

from smdl.loading.candidates.observed import Observed
from smdl.loading.loader import DataLoader
from smdl.loading.strategies.importance import Importance
from smdl.loading.strategies.loss_rank import LossRank
from smdl.loading.strategies.strategy import Strategy

#: What the state of a strategy is once its first epoch is over, for a dataset of n samples.
_LATER: dict[type[Strategy], Callable[[int], dict[str, Any]]] = {
    Importance: lambda _: {"tau": 1e300},  # it samples by importance: that is what costs
    LossRank: lambda n: {"drawn": n, "order": torch.arange(n)},
}
#: Steps of a run that are asked whether they select.
ASKED = 1000


def make_typical(loader: DataLoader) -> None:
    """Skip what happens in the first epoch only, and spread the steps that select evenly over the run."""
    strategy, candidates = loader.strategy, loader.candidates
    later = _LATER.get(type(strategy))
    if later is not None:
        strategy.load_state_dict({**strategy.state_dict(), **later(len(loader.dataset))})  # type: ignore[arg-type]
    share = _share_that_selects(loader)
    if share < 1:
        strategy.selects_at = lambda _, step, __: int((step + 1) * share) > int(step * share)  # type: ignore[method-assign]
    if isinstance(candidates, Observed):
        candidates.start = 0


def fill_cache(loader: DataLoader) -> None:
    """Give samples that were never seen the features of others. Call it after a few steps."""
    if not isinstance(loader.candidates, Observed):
        return
    state = loader.candidates.state_dict()
    cache = state["cache"]
    seen = cache["seen"].nonzero()[:, 0]
    if len(seen) == 0:
        return
    donors = seen[torch.arange(len(cache["seen"])) % len(seen)]
    for name in ("features", "outputs", "targets"):
        cache[name] = None if cache[name] is None else cache[name][donors]
    cache["seen"][:] = True
    loader.candidates.load_state_dict(state)


def _share_that_selects(loader: DataLoader) -> float:
    """Return the part of the steps of a run at which the strategy chooses among candidates."""
    epochs, steps = loader.arguments["epochs"] or 100, len(loader)
    stride = max(1, epochs * steps // ASKED)
    asked = [divmod(step, steps) for step in range(0, epochs * steps, stride)]
    return sum(loader.strategy.selects_at(epoch, step, steps) for epoch, step in asked) / len(asked)
