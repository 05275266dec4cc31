"""What every trainer is tested on: ways to select, and what a step of a run shows."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import smdl

#: Options of smdl.DataLoader, and the staleness of a step after the first `lag` of an epoch.
WAYS: dict[str, tuple[dict[str, Any], int]] = {
    "fresh": ({"method": "fresh"}, 0),
    "fresh with workers": ({"method": "fresh", "num_workers": 2}, 0),
    "recommended": ({}, 0),
    "observed": ({"method": "observed"}, 0),
    "observed with workers": ({"method": "observed", "num_workers": 2}, 2),
    "loss": ({"method": "loss", "epochs": 3}, 0),
}

#: Libraries warn of many things. Warnings of smdl fail a test.
OURS_ARE_ERRORS = pytest.mark.filterwarnings(
    "default", "error:method .* needs", "error:this loader starts epoch 0", "error:an epoch has passed"
)


class Step(NamedTuple):
    """The batch of a step: its samples, and how old the weights were that chose it."""

    rows: list[int]
    staleness: int


def step_of(loader: smdl.DataLoader) -> Step:
    assert loader.selection is not None
    return Step(loader.selection.indices.tolist(), loader.staleness)


def check_staleness(steps: list[Step], per_epoch: int, lag: int) -> None:
    """Step s of an epoch was chosen min(s, lag) steps before it, whatever the trainer fetched ahead."""
    assert [step.staleness for step in steps] == [min(place % per_epoch, lag) for place in range(len(steps))]


def same_weights(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
