"""The objects of a run follow its config, by the rules of smdl.DataLoader."""

import pytest
import torch
from torch.utils.data import TensorDataset

import smdl
from smdl.loading.candidates.base import Candidates
from smdl.training.build import make_method
from smdl.training.config import TrainConfig


@pytest.mark.parametrize(
    ("settings", "objective", "candidates"),
    [
        ({}, None, None),
        ({"objective": {"redundancy": 1.0}}, smdl.Objective(redundancy=1.0), None),
        ({"candidates": {"factor": 2}}, None, smdl.Observed(2)),
    ],
    ids=["nothing", "objective", "candidates"],
)
def test_without_a_method_a_config_means_what_the_loader_means(
    settings: dict, objective: smdl.Objective | None, candidates: Candidates | None
):
    data = TensorDataset(torch.randn(40, 3), torch.randint(0, 3, (40,)))
    loader = smdl.DataLoader(data, torch.nn.Linear(3, 3), 8, objective=objective, candidates=candidates)
    strategy, made = make_method(TrainConfig(**settings)).make()
    made.set_workers(0)
    assert (strategy.describe(), made.describe()) == (loader.strategy.describe(), loader.candidates.describe())
