"""Accelerate: the loader stays unprepared and is registered for checkpoints."""

import pytest
import torch
from torch.nn import functional as F

import smdl
from tests.integrations.runs import OURS_ARE_ERRORS, WAYS, check_staleness, same_weights, step_of
from tests.toys import Net, Tuples, sgd

pytestmark = [pytest.mark.integrations, OURS_ARE_ERRORS]
accelerate = pytest.importorskip("accelerate")


def run(options, accumulation=1, save_at=None, folder=None, resume=False, register=True):
    """Train three epochs; return the net, its loader and the steps taken."""
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=accumulation)
    net = Net()
    loader = smdl.DataLoader(Tuples(27), net, 4, seed=3, **options)
    model, optimizer = accelerator.prepare(net, sgd(net))
    if register:
        accelerator.register_for_checkpointing(loader)
    if resume:
        accelerator.load_state(str(folder))
    steps = []
    while loader.epoch < 3:
        for inputs, targets in loader:
            with accelerator.accumulate(model):
                accelerator.backward(F.cross_entropy(model(inputs), targets))
                optimizer.step()
                optimizer.zero_grad()
            steps.append(step_of(loader))
            if len(steps) == save_at:
                accelerator.save_state(str(folder))
    return net, loader, steps


@pytest.mark.parametrize("save_at", [4, 10])
@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_a_registered_loader_resumes_to_the_same_weights(way, accumulation, save_at, tmp_path):
    options, _ = WAYS[way]
    whole, _, steps = run(options, accumulation, save_at, tmp_path)
    part, _, rest = run(options, accumulation, folder=tmp_path, resume=True)
    assert rest == steps[save_at:]
    assert same_weights(part, whole)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("way", ["fresh", "fresh with workers", "observed", "observed with workers"])
def test_batches_are_chosen_with_the_weights_that_train_on_them(way, accumulation):
    options, lag = WAYS[way]
    check_staleness(run(options, accumulation)[2], 7, lag)


def test_prepare_leaves_the_loader_as_it_is():
    loader = smdl.DataLoader(Tuples(27), Net(), 4)
    assert accelerate.Accelerator(cpu=True).prepare(loader) is loader


@pytest.mark.parametrize("call", ["skip_first_batches", "prepare_data_loader"])
def test_what_would_rebuild_the_loader_says_how_to_resume(call):
    loader = smdl.DataLoader(Tuples(27), Net(), 4)
    with pytest.raises(AttributeError, match=r"has no sampler.*register_for_checkpointing\(loader\) instead"):
        getattr(accelerate.Accelerator(cpu=True), call)(loader, 2)


def test_a_checkpoint_of_an_unregistered_loader_is_refused_by_a_registered_one(tmp_path):
    run({}, save_at=4, folder=tmp_path, register=False)
    with pytest.raises(RuntimeError, match="custom checkpoints"):
        run({}, folder=tmp_path, resume=True)


def test_a_checkpoint_is_read_without_running_code(tmp_path):
    run({}, save_at=4, folder=tmp_path)
    state = torch.load(tmp_path / "custom_checkpoint_0.pkl", weights_only=True)
    assert state["step"] == 4
