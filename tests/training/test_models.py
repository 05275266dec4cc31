"""The networks have the architecture of the paper, and their weights depend only on the seed."""

import pytest
import torch

from smdl.scoring.scorer import Scorer
from smdl.training.config import ModelConfig
from smdl.training.models import make_model


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "millions"), [("resnet20", 0.27), ("resnet32", 0.46), ("resnet56", 0.85)])
def test_the_resnets_have_the_published_number_of_parameters(name, millions):
    """Table 6 of He et al. (2016)."""
    assert parameters(make_model(ModelConfig(name), (3, 32, 32), 10, 0)) / 1e6 == pytest.approx(millions, abs=0.01)


@pytest.mark.parametrize("name", ["resnet8", "resnet20", "mlp"])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 16, 16), (1, 7, 7)])
def test_networks_accept_any_small_image(name, shape):
    model = make_model(ModelConfig(name, width=0.5), shape, 7, 0)
    scores = Scorer(model)((torch.rand(4, *shape), torch.arange(4)))
    assert scores.probabilities is not None
    assert scores.probabilities.shape == (4, 7)
    assert scores.features.shape == (4, 32), "the input of the head is found"


def test_the_width_multiplies_the_channels():
    narrow, wide = (parameters(make_model(ModelConfig("resnet8", width=w), (3, 8, 8), 10, 0)) for w in (0.5, 2.0))
    assert 12 < wide / narrow < 17  # about 4²


def test_a_deep_network_without_batchnorm_starts_with_small_outputs():
    model = make_model(ModelConfig("resnet56", batchnorm=False), (3, 16, 16), 10, 0)
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())
    assert model(torch.randn(8, 3, 16, 16)).std() < 10


def test_weights_depend_on_the_seed_and_not_on_the_global_generator():
    before = torch.get_rng_state()
    first, again, other = (make_model(ModelConfig("mlp"), (4,), 3, seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(next(first.parameters()), next(other.parameters()))


def test_unknown_and_unfit_networks_are_refused():
    with pytest.raises(ValueError, match=r"did you mean 'resnet\d"):
        make_model(ModelConfig("resnet21"), (3, 8, 8), 10, 0)
    with pytest.raises(ValueError, match="try mlp"):
        make_model(ModelConfig("resnet8"), (64,), 10, 0)
    with pytest.raises(ValueError, match=r"model\.width must be a positive number, got 0"):
        ModelConfig(width=0)
