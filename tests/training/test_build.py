"""The objects of a run follow its config, by the rules of smdl.DataLoader."""

from typing import Any

import pytest
import torch
from torch.utils.data import TensorDataset

import smdl
from smdl.experiments.arms import with_overrides
from smdl.loading.candidates.base import Candidates
from smdl.training.build import make_method
from smdl.training.config import TrainConfig


@pytest.mark.parametrize(
    ("settings", "objective", "candidates"),
    [
        ({}, None, None),
        ({"objective": {"redundancy": 1.0}}, smdl.Objective(redundancy=1.0), None),
        ({"objective": "redundancy"}, "redundancy", None),
        ({"method": "paper", "objective": "labels"}, "labels", None),
        ({"candidates": {"factor": 2}}, None, smdl.Observed(2)),
    ],
    ids=["nothing", "objective", "name of an objective", "name and method", "candidates"],
)
def test_without_a_method_a_config_means_what_the_loader_means(
    settings: dict[str, Any], objective: Any, candidates: Candidates | None
):
    data = TensorDataset(torch.randn(40, 3), torch.randint(0, 3, (40,)))
    method = settings.get("method")
    loader = smdl.DataLoader(data, torch.nn.Linear(3, 3), 8, method=method, objective=objective, candidates=candidates)
    strategy, made = make_method(with_overrides(TrainConfig(), settings)).make()
    made.set_workers(0)
    assert (strategy.describe(), made.describe()) == (loader.strategy.describe(), loader.candidates.describe())
