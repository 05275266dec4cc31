"""A model of tokens or pixels: one error lists everything that is missing."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl

TOKENS = torch.randint(20, (40, 8), generator=torch.Generator().manual_seed(0))
LOSS = "loss=, a callable"
POOLING = 'pooling="mean"'
OBJECTIVE = "objective=smdl.Objective.gradients"


def token_loss(outputs, targets):
    return F.cross_entropy(outputs.mT, targets, reduction="none").mean(dim=1)


@pytest.mark.parametrize("method", ["observed", "fresh"])
@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, {LOSS, POOLING, OBJECTIVE}),
        ({"loss": token_loss}, {POOLING, OBJECTIVE}),
        ({"pooling": "mean"}, {LOSS, OBJECTIVE}),
        ({"loss": token_loss, "pooling": "mean"}, {OBJECTIVE}),
    ],
)
def test_one_error_lists_all_that_is_missing(method, given, missing):
    model = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 20))
    loader = smdl.DataLoader(TensorDataset(TOKENS, TOKENS), model, 4, method=method, scoring=smdl.Scoring(**given))
    with pytest.raises(ValueError, match="one per token or pixel of a sample") as error:
        next(iter(loader))
    assert {part for part in (LOSS, POOLING, OBJECTIVE) if part in str(error.value)} == missing


def test_what_the_error_lists_is_enough():
    model = nn.Sequential(nn.Embedding(20, 6), nn.Linear(6, 20))
    scoring = smdl.Scoring(loss=token_loss, pooling="mean")
    objective = smdl.Objective.gradients(space="features")
    loader = smdl.DataLoader(TensorDataset(TOKENS, TOKENS), model, 4, objective=objective, scoring=scoring)
    for tokens, _ in loader:
        model(tokens)
    assert loader.epoch == 1
