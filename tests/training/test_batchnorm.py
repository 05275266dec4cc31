"""recalibrate_batchnorm: evaluation with statistics of uniform batches, which leaves no trace in training."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load
from torch import nn

from smdl.experiments.runner import run_name
from smdl.training.config import ModelConfig
from smdl.training.evaluation import uniform_statistics
from smdl.training.loop import train
from tests.experiments.base import UNIFORM

CONFIG = replace(UNIFORM, model=ModelConfig("resnet8", width=0.25), epochs=1)


def test_statistics_are_those_of_the_batches_and_then_as_before():
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout(0.5), nn.Linear(2, 2))
    model.train()
    model(torch.randn(8, 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    batches = [(torch.randn(50, 2) * 3 + 7,) for _ in range(4)]
    state = torch.get_rng_state()
    with uniform_statistics(model, batches):
        means, variances = ([of(batch[0]) for batch in batches] for of in (_mean, _variance))
        torch.testing.assert_close(model[0].running_mean, torch.stack(means).mean(0))
        torch.testing.assert_close(model[0].running_var, torch.stack(variances).mean(0))
    assert (torch.get_rng_state() == state).all(), "dropout is off"
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert model[0].momentum == 0.1
    assert model.training
    assert model[0].training


def _mean(values):
    return values.mean(0)


def _variance(values):
    return values.var(0)


def test_a_model_without_batchnorm_is_not_forwarded():
    with uniform_statistics(nn.Linear(2, 2), [pytest.fail]):
        pass


@pytest.mark.parametrize("batchnorm", [True, False])
def test_it_changes_the_evaluation_of_a_network_with_batchnorm_and_nothing_else(tmp_path, batchnorm):
    found = {}
    for on in (False, True):
        config = replace(CONFIG, model=replace(CONFIG.model, batchnorm=batchnorm), recalibrate_batchnorm=on)
        folder = tmp_path / str(on)
        found[on] = train(config, folder)["final"], load((folder / "model.safetensors").read_bytes())
    (plain, weights), (again, others) = found[False], found[True]
    assert (plain["test_loss"] != again["test_loss"]) is batchnorm
    for name, value in weights.items():
        changed = batchnorm and "running" in name
        assert torch.equal(value, others[name]) is not changed or "num_batches" in name, name


def test_the_option_is_part_of_the_name_of_a_run():
    assert run_name(CONFIG) != run_name(replace(CONFIG, recalibrate_batchnorm=True))
