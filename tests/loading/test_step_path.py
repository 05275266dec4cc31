"""How many modules a training step passes: each is one more to read."""

import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl

#: Modules of the steps of an epoch with a linear model in memory, by method. They may shrink.
MOST = {"recommended": 22, "observed": 39}


@pytest.mark.parametrize("method", MOST)
def test_a_training_step_passes_no_more_modules_than_it_did(method):
    data = TensorDataset(torch.randn(200, 8), torch.arange(200) % 4)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    loader = smdl.DataLoader(data, model, 10, method=method)

    def step(batches):
        inputs, targets = next(batches)
        F.cross_entropy(model(inputs), targets).backward()

    for _ in range(2):
        for inputs, _ in loader:
            model(inputs)
    batches, files = iter(loader), set()
    step(batches)
    sys.setprofile(lambda frame, event, _: files.add(frame.f_code.co_filename) if event == "call" else None)
    try:
        for _ in range(18):
            step(batches)
    finally:
        sys.setprofile(None)
    passed = {file for file in files if "/smdl/" in file}
    assert 0 < len(passed) <= MOST[method], sorted(passed)
