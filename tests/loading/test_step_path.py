"""How many modules a training step passes: each is one more to read."""

import sys

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl

#: Modules of a step of `recommended` with a linear model in memory. It may shrink.
MOST = 39


def test_a_training_step_passes_no_more_modules_than_it_did():
    data = TensorDataset(torch.randn(200, 8), torch.arange(200) % 4)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    loader = smdl.DataLoader(data, model, 10)

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
        step(batches)
    finally:
        sys.setprofile(None)
    passed = {file for file in files if "/smdl/" in file}
    assert 0 < len(passed) <= MOST, sorted(passed)
