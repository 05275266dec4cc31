"""Epochs by their number, and going on where a state was taken."""

import copy
import io
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import smdl
from tests.toys import (
    CASES,
    Net,
    Tuples,
    begun,
    epoch_of,
    forwarded,
    make,
    numbers_of,
    same,
    train,
)

ROOT = Path(__file__).parents[2]
EVERY = list(CASES)
OBSERVED = [case for case in EVERY if isinstance(make(case, Tuples(30), Net()).candidates, smdl.Observed)]


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


#: Without a memory of earlier epochs.
MEMORYLESS = [case for case in EVERY if case not in OBSERVED and not begun(case)[0].strategy.state_dict()]


@pytest.mark.parametrize("case", MEMORYLESS)
def test_an_epoch_is_known_by_its_number(case):
    loader, twin = make(case, Tuples(30), Net()), make(case, Tuples(30), Net())
    one, two = epoch_of(loader), epoch_of(loader)
    chance = case in ("uniform", "uniform_full", "replacement") or isinstance(loader.candidates, smdl.RandomPool)
    assert one != two or not chance
    for epoch, batches in ((1, two), (0, one), (1, two)):
        twin.set_epoch(epoch)
        assert epoch_of(twin) == batches
    assert epoch_of(make(case, Tuples(30), Net(), seed=1)) != one or not chance


@pytest.mark.parametrize("case", ["fresh", "observed_full", "uniform"])
def test_an_epoch_broken_off_is_not_begun_again(case):
    loader, twin = make(case, Tuples(30), Net()), make(case, Tuples(30), Net())
    for step, _ in enumerate(loader):
        if step == 2:
            break
    twin.set_epoch(1)
    assert epoch_of(loader) == epoch_of(twin)
    loader.set_epoch(1)
    next(iter(loader))
    loader.set_epoch(1)
    twin.set_epoch(1)
    assert epoch_of(loader) == epoch_of(twin), "unless asked to"


@pytest.mark.parametrize("epoch", [-1, 1.0, None])
def test_an_epoch_is_a_number(epoch):
    with pytest.raises(
        ValueError if epoch == -1 else TypeError, match=f"epoch must be a whole number ≥ 0, got {epoch}"
    ):
        smdl.DataLoader(Tuples(), Net(), 4).set_epoch(epoch)


@pytest.mark.parametrize("case", EVERY)
@pytest.mark.parametrize("stop", [1, 4, 6, 8, 13], ids="after {}".format)
def test_resume_gives_the_identical_tail_and_the_identical_weights(case, stop):
    """With windows of three and eight steps an epoch: mid-window, between windows, at an epoch's end, in the next."""
    loader, model, optimizer = begun(case)
    seen = train(loader, model, optimizer, 20)

    first = begun(case)
    train(*first, stop)
    state = through_a_file([part.state_dict() for part in first])
    second = begun(case)
    for part, saved in zip(second, state, strict=True):
        part.load_state_dict(saved)
    assert train(*second, 20 - stop) == seen[stop:]
    assert same([*second[1].state_dict().values()], [*model.state_dict().values()])


@pytest.mark.slow
def test_resume_in_another_process(tmp_path):
    loader, model, optimizer = begun("paper")
    seen = train(loader, model, optimizer, 12)
    stopped = begun("paper")
    train(*stopped, 7)
    torch.save([part.state_dict() for part in stopped], tmp_path / "state.pt")
    code = (
        "import sys, torch; torch.set_num_threads(1)\n"
        "from tests.toys import begun, train\n"
        "parts = begun('paper')\n"
        "for part, saved in zip(parts, torch.load(sys.argv[1], weights_only=True)): part.load_state_dict(saved)\n"
        "print(train(*parts, 5), parts[1].head.weight.tolist())"
    )
    command = [sys.executable, "-c", code, tmp_path / "state.pt"]
    printed = subprocess.run(command, capture_output=True, cwd=ROOT, check=True, text=True).stdout
    assert printed.strip() == f"{seen[7:]} {model.head.weight.tolist()}"


def test_the_epoch_of_a_loaded_state_goes_on_under_its_number():
    loader, model, optimizer = begun("observed_full")
    train(loader, model, optimizer, 12)
    resumed = begun("observed_full")[0]
    for epoch, left in ((1, 4), (2, 8), (0, 8)):
        resumed.load_state_dict(loader.state_dict())
        resumed.set_epoch(epoch)
        assert len(epoch_of(resumed)) == left


@pytest.mark.parametrize("case", CASES)
def test_a_state_taken_with_the_last_batch_in_hand_begins_the_next_epoch(case):
    loader, model, optimizer = begun(case)
    seen = train(loader, model, optimizer, 16)
    first = begun(case)
    train(*first, 8)
    second = begun(case)
    for one, other in zip(first, second, strict=True):
        other.load_state_dict(one.state_dict())
    next(iter(second[0]))
    assert numbers_of(second[0]).tolist() == seen[8]


def test_a_state_is_not_changed_by_what_follows():
    loader, model, optimizer = begun("loss_recomputed")
    train(loader, model, optimizer, 11)
    state = loader.state_dict()
    kept = copy.deepcopy(state)
    train(loader, model, optimizer, 11)
    assert torch.equal(state["candidates"]["used"], kept["candidates"]["used"])
    for name, value in kept["strategy"].items():
        assert torch.equal(torch.as_tensor(state["strategy"][name]), torch.as_tensor(value))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": 6}, "a loader with seed 5, this one has 6"),
        ({"batch_size": 5}, "batch_size 4, this one has 5"),
        ({"drop_last": True}, "drop_last False, this one has True"),
        (
            {"candidates": smdl.Full(3)},
            r"candidates RandomPool\(factor=3.0\), this one has Full\(every=3, replacement=Fal",
        ),
        ({"candidates": smdl.RandomPool(2)}, r"this one has RandomPool\(factor=2.0\)"),
        ({"candidates": smdl.Observed(lag=2)}, r"this one has Observed\(factor=3.0, lag=2,"),
        ({"method": "loss", "epochs": 2}, r"strategy Objective\(facility_location.*, this one has LossRank"),
        ({"method": "paper_subset"}, r"this one has Objective\(uncertainty=0.25"),
        ({"dataset": Tuples(29)}, "samples 30, this one has 29"),
    ],
)
def test_the_state_of_another_loader_is_refused(changes, message):
    state = smdl.DataLoader(Tuples(30), Net(), 4, seed=5, method="fresh").state_dict()
    options = {"dataset": Tuples(30), "batch_size": 4, "seed": 5, "method": "fresh", **changes}
    loader = smdl.DataLoader(model=Net(), **options)
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)
    smdl.DataLoader(Tuples(30), Net(), 4, seed=5, candidates=smdl.RandomPool(3)).load_state_dict(state)


class Augmented(Tuples):
    """Noise of three generators on every sample."""

    def __getitem__(self, row: int):
        x, y = super().__getitem__(row)
        return x + torch.rand(()) + random.random() + np.random.rand(), y  # noqa: NPY002


@pytest.mark.parametrize("case", ["fresh", "observed", "observed_full"])
def test_augmentation_in_workers_is_the_same_with_any_number_of_them_and_after_a_resume(case):
    data, runs, state = Augmented(30), [], {}
    for workers in (1, 2):
        loader = begun(case, data, num_workers=workers)[0]
        batches, noise = [], []
        for step, (x, y) in enumerate(loader):
            forwarded(loader, (x, y))
            batches.append(x.clone())
            noise.append(round(float((x - data.x[numbers_of(loader)])[0, 0]), 5))
            if step == 3:
                state = loader.state_dict()
        runs.append(batches)
    assert same(*runs)
    resumed = begun(case, data, num_workers=1)[0]
    resumed.load_state_dict(state)
    rest = []
    for x, y in resumed:
        forwarded(resumed, (x, y))
        rest.append(x.clone())
    assert same(rest, runs[0][4:])
    assert len(set(noise)) == 8, "every step draws its own"


def test_a_resumed_loader_does_not_train_the_reference_again():
    data = Tuples(30)
    loader = make("paper", data, Net())
    next(iter(loader))
    cost = len(data.reads)
    resumed = make("paper", data, Net())
    resumed.load_state_dict(through_a_file(loader.state_dict()))
    resumed.set_epoch(3)  # a refresh is due
    data.reads.clear()
    next(iter(resumed))
    assert len(data.reads) < cost
    assert data.reads[:30] == list(range(30)), "scoring, and nothing before it"
    assert torch.equal(resumed.state_dict()["reference"], loader.state_dict()["reference"])


def spoiled(case: str, change) -> tuple[smdl.DataLoader, dict]:
    loader, model, optimizer = begun(case)
    train(loader, model, optimizer, 10)
    state = through_a_file(loader.state_dict())
    change(state)
    return begun(case)[0], state


@pytest.mark.parametrize(
    ("case", "change", "message"),
    [
        ("observed", lambda s: s.pop("epoch"), "epoch missing"),
        ("observed", lambda s: s.update(more=1), "more not known"),
        ("observed", lambda s: s["run"].pop("seed"), "the state's run .* seed missing"),
        ("observed", lambda s: s.update(step=-1), "the state: step must be a whole number ≥ 0, got -1"),
        ("observed_full", lambda s: s["candidates"].pop("used"), "used missing"),
        ("observed_full", lambda s: s["candidates"].update(used=torch.zeros(29, dtype=torch.bool)), "30 flags"),
        (
            "observed_full",
            lambda s: s["candidates"].update(used=torch.zeros(30)),
            "must be 30 flags, got float32",
        ),
        ("observed_full", lambda s: s["candidates"]["window"][0]["indices"].fill_(30), r"indices in 0..29"),
        ("observed_full", lambda s: s["candidates"]["window"][0].pop("gains"), "a planned batch .* gains missing"),
        (
            "loss",
            lambda s: s["strategy"].update(losses=torch.zeros(3)),
            r"losses must be 30 numbers, got float32 of shape \(3,\)",
        ),
        ("loss", lambda s: s["strategy"]["order"].fill_(1), r"order must be indices in 0..29, each at most once"),
        ("paper", lambda s: s.update(reference=torch.zeros(3, 2)), "reference must be features of the 30 samples"),
    ],
)
def test_a_spoiled_state_is_refused_and_changes_nothing(case, change, message):
    loader, state = spoiled(case, change)
    before = through_a_file(loader.state_dict())
    with pytest.raises(ValueError, match=message):
        loader.load_state_dict(state)
    after = loader.state_dict()
    assert str(after) == str(before)


@pytest.mark.parametrize("state", [None, [], "state"])
def test_a_state_is_a_dict(state):
    with pytest.raises(TypeError, match="the state must be a dict that state_dict returned"):
        smdl.DataLoader(Tuples(30), Net(), 4).load_state_dict(state)
