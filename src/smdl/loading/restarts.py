"""Restarts: notice that a loader was made again and starts the same run at epoch 0."""

import warnings
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

#: For each model, the runs of which a loader has finished an epoch: their signature, and the loader's own mark.
_RUNS: WeakKeyDictionary[nn.Module, dict[str, object]] = WeakKeyDictionary()


def finished_epoch(model: nn.Module, signature: dict[str, Any], mark: object) -> None:
    """Remember that the loader with this mark has finished an epoch."""
    _RUNS.setdefault(model, {})[repr(signature)] = mark


def warn_of_restart(model: nn.Module, signature: dict[str, Any], mark: object) -> None:
    """Warn if another loader of this model has finished an epoch of the same run."""
    if _RUNS.get(model, {}).get(repr(signature), mark) is not mark:
        warnings.warn(
            "this loader starts epoch 0 of a run of which another loader has finished an epoch: it yields the same"
            " batches again and knows nothing of the samples. Make the loader once and iterate it once per epoch."
            " (With reload_dataloaders_every_n_epochs of Lightning, return the same loader.) If a new one is needed,"
            " call its load_state_dict or set_epoch",
            stacklevel=4,
        )
