"""What the loader leaves behind: nothing."""

import gc
import random
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import TensorDataset

import smdl
from tests.toys import (
    CASES,
    CLASSES,
    Net,
    Tuples,
    epoch_of,
    forwarded,
    make,
    numbers_of,
    same,
    sgd,
    train,
)

EVERY = list(CASES)


@pytest.mark.parametrize("case", EVERY)
def test_global_random_numbers_are_left_alone(case):
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    loader = make(case, Tuples(30), Net(dropout=0.5).eval())
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()  # type: ignore[index] # noqa: NPY002
    epoch_of(loader)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert (np.random.get_state()[1] == before[2]).all()  # type: ignore[index] # noqa: NPY002


def elaborate(batches, model: Net, steps: int) -> list[torch.Tensor]:
    """Gradient accumulation over two batches, momentum, a schedule, autocast, a gradient scaler, dropout, and a
    BatchNorm that the user has frozen half-way."""
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.7)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    torch.manual_seed(8)
    model.train()
    for step, (x, y) in zip(range(steps), batches, strict=False):
        if step == 4:
            model.body[1].eval()
        with torch.autocast("cpu", torch.bfloat16, enabled=step % 3 == 1):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss / 2).backward()
        if step % 2:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            scheduler.step()
    return [*model.state_dict().values(), torch.tensor(scheduler.get_last_lr()), torch.get_rng_state()]


@pytest.mark.parametrize("case", EVERY)
def test_training_is_bit_by_bit_that_of_a_plain_loader_with_the_same_batches(case):
    data, seen = Tuples(30), []
    loader = make(case, data, model := Net(dropout=0.3))

    def recorded():
        for batch in loader:
            seen.append(numbers_of(loader).tolist())
            yield batch

    ours = elaborate(recorded(), model, 7)
    plain = TorchLoader(data, batch_sampler=seen, generator=torch.Generator())
    assert same(ours, elaborate(plain, Net(dropout=0.3), 7))


@pytest.mark.parametrize("end", ["epoch", "break", "error"])
@pytest.mark.parametrize("case", ["fresh", "observed", "paper", "loss_recomputed"])
def test_no_hook_stays_on_the_model(case, end):
    model = Net()
    try:
        for x, y in make(case, Tuples(30), model):
            F.cross_entropy(model(x), y).backward()
            if end == "break":
                break
            if end == "error":
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    assert sum(len(module._forward_hooks) for module in model.modules()) == 0


def test_a_forward_that_fails_leaves_the_model_as_it_was():
    model = Net().train()
    model.body[1].eval()

    def broken(model, batch):
        model(batch[0])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        next(iter(smdl.DataLoader(Tuples(), model, 4, scoring=smdl.Scoring(forward=broken))))
    assert [module.training for module in model.modules()] == [name != "body.1" for name, _ in model.named_modules()]
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("case", EVERY)
def test_warming_up_changes_nothing(case):
    runs = []
    for warm in (False, True):
        model = Net()
        loader = make(case, Tuples(30), model)
        if warm:
            state = torch.get_rng_state()
            loader.warm_up()
            assert torch.equal(torch.get_rng_state(), state)
            assert loader.forwards == sum(loader.seconds.values()) == 0
        runs.append(train(loader, model, sgd(model), 9))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("ended", [True, False], ids=["ended", "broken off"])
@pytest.mark.parametrize("case", ["uniform", "fresh", "observed", "observed_full", "loss"])
def test_a_loader_let_go_of_is_gone_at_once(case, ended):
    """A cycle would leave it, and its workers, to the garbage collector, where torch takes five seconds a worker."""
    loader = make(case, Tuples(30), Net())
    gc.disable()
    try:
        for batch in loader:
            forwarded(loader, batch)
            if not ended:
                break
        gone = weakref.ref(loader)
        del loader
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is Linux's to tell")
def test_memory_grows_with_the_samples_not_with_their_square():
    def megabytes(field: str) -> float:
        (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field)]
        return int(line.split()[1]) / 1024

    n = 20_000
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(n, 4, generator=generator), torch.randint(0, CLASSES, (n,), generator=generator)
    for samples in (100, n):  # the first loads and compiles what is needed
        data = TensorDataset(x[:samples], y[:samples])
        loader = smdl.DataLoader(data, Net(), 50, method="paper", reference=x[:samples].abs())
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        before = megabytes("VmRSS")
        next(iter(loader))
    assert megabytes("VmHWM") - before < 100, "n² bytes are 400 MB"
