"""What runs on the CPU runs on a device too, with the same results: no tensor of it is read as if it were in memory.

`make test` runs these tests on the CPU and on a device that computes on the CPU and refuses what a GPU refuses.
`make test-cuda` runs them on a GPU. SMDL_DEVICE names another device: mps, cuda:1.
"""

import os

import numpy as np
import pytest
import torch
from torch import nn

import smdl
from smdl.loading.methods import METHODS
from tests.conftest import MODULAR_TERMS, SET_TERMS, UNIT_TERMS
from tests.second_device import MixedDevicesError, second_device
from tests.toys import CLASSES, WIDTH, Tuples

OTHER = os.environ.get("SMDL_DEVICE", "cuda")
#: Methods that need something of the user: weights of the samples.
NEEDY = {"weighted"}


def available(name: str) -> bool:
    try:
        torch.empty(1, device=name)
    except (AssertionError, RuntimeError):
        return False
    return True


@pytest.fixture(params=["cpu", "second", pytest.param("other", marks=pytest.mark.cuda)])
def device(request):
    if request.param == "second":
        with second_device() as found:
            yield found
        return
    if request.param == "other" and not available(OTHER):
        pytest.skip(f"there is no device {OTHER}; SMDL_DEVICE names another")
    yield torch.device("cpu" if request.param == "cpu" else OTHER)


def grid(n=24):
    """Numbers with which sums are exact in any order."""
    rng = np.random.default_rng(0)
    return rng.integers(0, 5, (n, WIDTH)) / 4, rng.multinomial(8, np.full(CLASSES, 1 / CLASSES), n) / 8


def pool_on(device):
    features, probabilities = (torch.tensor(part, dtype=torch.float32).to(device) for part in grid())
    labels = (torch.arange(len(features)) % CLASSES).to(device)
    return smdl.Pool(
        features, probabilities=probabilities, labels=labels, reference=features, utility=features[:, 0].clone()
    )


@pytest.mark.parametrize("term", [*SET_TERMS, *UNIT_TERMS, *MODULAR_TERMS, "paper", "gradients", "labels"])
def test_a_device_chooses_what_the_cpu_chooses(device, term):
    chosen, expected = smdl.select(pool_on(device), term, size=5), smdl.select(pool_on("cpu"), term, size=5)
    assert chosen.indices.tolist() == expected.indices.tolist()
    assert chosen.value == pytest.approx(expected.value, rel=1e-4)
    found = smdl.evaluate(pool_on(device), term, chosen.indices)
    assert found.value == pytest.approx(smdl.evaluate(pool_on("cpu"), term, expected.indices).value, rel=1e-4)


@pytest.mark.parametrize("optimizer", ["naive", "lazy", "stochastic", "subset"])
def test_every_optimizer_chooses_what_it_chooses_on_the_cpu(device, optimizer):
    options = {"objective": "facility_location", "size": 6, "optimizer": optimizer, "seed": 1}
    assert (
        smdl.select(pool_on(device), **options).indices.tolist()
        == smdl.select(pool_on("cpu"), **options).indices.tolist()
    )


@pytest.mark.parametrize(
    "options", [{"neighbours": 4}, {"sample": 9}, {"distance": "cosine"}, {"distance": "gaussian"}]
)
def test_graphs_samples_and_distances_are_those_of_the_cpu(device, options):
    objective = smdl.Objective(facility_location=1.0, **options)
    chosen, expected = (smdl.select(pool_on(place), objective, size=4) for place in (device, "cpu"))
    assert chosen.indices.tolist() == expected.indices.tolist()


def test_limits_and_labelled_rows_may_be_on_the_device(device):
    features = torch.tensor(grid()[0], dtype=torch.float32).to(device)
    initial, costs = torch.tensor([1, 2]).to(device), torch.arange(1.0, 25.0).to(device)
    groups = (torch.arange(24) % 3).to(device)
    chosen = smdl.select(features, size=4, initial=initial, exclude=torch.tensor([0]).to(device))
    assert not {0, 1, 2} & set(chosen.indices.tolist())
    assert sum(smdl.select(features, budget=20.0, costs=costs).indices + 1) <= 20
    assert sorted(smdl.select(features, size=3, groups=groups, per_group=1).indices % 3) == [0, 1, 2]


def test_rows_that_are_scored_and_deduplicated_may_be_on_the_device(device):
    rows, _ = grid()
    features = torch.tensor(rows, dtype=torch.float32).to(device)
    assert smdl.deduplicate(features).kept.tolist() == smdl.deduplicate(rows.astype(np.float32)).kept.tolist()
    assert len(smdl.select_stream([features, features], size=3).indices) == 3
    assert smdl.score(features).density.shape == (24,)


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(WIDTH, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def train(loader, model, device, epochs=2):
    """Train as a user does; return the rows of every batch."""
    optimizer, rows = torch.optim.SGD(model.parameters(), lr=0.1), []
    for _ in range(epochs):
        for inputs, targets in loader:
            optimizer.zero_grad()
            losses = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device), reduction="none")
            smdl.weighted_mean(losses, loader.selection).backward()
            optimizer.step()
            rows.append(loader.selection.indices.tolist())
    return rows


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", sorted({*METHODS} - NEEDY))
def test_every_method_trains_a_model_on_the_device(device, method):
    model = Small().to(device)
    options = {"reference": Small().to(device)} if method == "rho_loss" else {}
    loader = smdl.DataLoader(Tuples(30), model, 10, method=method, epochs=2, **options)
    rows = train(loader, model, device)
    assert len(rows) == 6
    again = smdl.DataLoader(Tuples(30), model, 10, method=method, epochs=2, **options)
    again.load_state_dict(loader.state_dict())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("options", [{"device": "cpu"}, {"device": "model"}, {"sketch": 3}, {"rescore": 0.5}])
def test_features_are_kept_on_the_device_or_in_memory(device, options):
    model = Small().to(device)
    loader = smdl.DataLoader(Tuples(30), model, 10, candidates=smdl.Observed(2, dtype="float32", **options))
    assert len(train(loader, model, device)) == 6


@pytest.mark.filterwarnings("ignore")
def test_batches_of_a_loader_that_are_on_the_device_are_selected_from(device):
    model, data = Small().to(device), Tuples(36)
    batches = [(data.x[at : at + 12].to(device), data.y[at : at + 12].to(device)) for at in (0, 12, 24)]
    loader = smdl.SelectiveLoader(batches, model, keep=1 / 3)
    assert [(len(inputs), inputs.device.type) for inputs, _ in loader] == [(12, device.type)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("method", "balance"), [("observed", "classes"), ("uniform", "errors")])
def test_the_last_layer_is_fitted_again_on_the_device(device, method, balance):
    model, data = Small().to(device), Tuples(30)
    loader = smdl.DataLoader(data, model, 10, method=method)
    train(loader, model, device)
    before = model.head.weight.detach().clone()
    source = loader if method == "observed" else iter([(data.x.to(device), data.y.to(device))])
    smdl.refit_head(model, source, balance)
    assert model.head.weight.device.type == device.type
    assert not torch.equal(before, model.head.weight)


def test_losses_for_long_tails_run_on_the_device(device):
    logits, targets = torch.zeros(3, 2).to(device), torch.tensor([0, 1, 1]).to(device)
    expected = smdl.balanced_softmax(torch.zeros(3, 2), torch.tensor([0, 1, 1]), [3, 1])
    assert smdl.balanced_softmax(logits, targets, [3, 1]).item() == pytest.approx(expected.item())


def test_the_second_device_refuses_what_a_gpu_refuses():
    with second_device() as device:
        there, here = torch.ones(2).to(device), torch.ones(2)
        for read in (there.numpy, lambda: np.asarray(there)):
            with pytest.raises(TypeError, match="to numpy"):
                read()
        with pytest.raises(MixedDevicesError, match=r"aten\.add"):
            _ = there + here
        with pytest.raises(MixedDevicesError, match=r"aten\.index"):
            _ = here[torch.tensor([0]).to(device)]
        with pytest.raises(MixedDevicesError, match=r"aten\.index_put"):
            there[torch.tensor([0, 1])] = here
        assert (there + 1).cpu().tolist() == [2.0, 2.0]
