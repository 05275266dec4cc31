import copy
import gc
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, default_collate, get_worker_info

from smdl.scoring.reading import Reader, ReadRequest, check_dataset, worker_errors, worker_was_killed
from tests.toys import ManyAtOnce, Net, Shifted, Tuples, epoch_of, forwarded, make, same


class Noise(Dataset):
    """Random numbers of every generator, and the process that drew them."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, row: int) -> list[float]:
        return [row, torch.rand(()).item(), np.random.rand(), random.random(), os.getpid()]  # noqa: NPY002


def rows_of(batch) -> list:
    return [int(column) for column in batch[0]]


def test_requests_are_answered_one_by_one_in_their_order():
    data, scoring = Tuples(), Shifted()
    reader = Reader(data, scoring, None, 0)
    requests = [
        ReadRequest(0, [3, 1]),
        ReadRequest(1, [2, 2, 0], train=False, score=True),
        ReadRequest(2, [5], train=True, score=True),
    ]
    first, second, third = reader.read(requests)
    assert same(first[0], [data.x[[3, 1]], data.y[[3, 1]]])
    assert first[1] is None
    assert second[0] is None
    assert torch.equal(second[1][0], data.x[[2, 2, 0]] + 100)
    assert torch.equal(third[0][0] + 100, third[1][0])
    assert data.reads == [3, 1, 5]
    assert scoring.reads == [2, 2, 0, 5]


def test_without_a_scoring_dataset_the_dataset_is_scored():
    data = Tuples()
    ((_, batch),) = Reader(data, None, None, 0).read([ReadRequest(0, [4], train=False, score=True)])
    assert torch.equal(batch[0], data.x[[4]])


def test_nothing_is_read_before_it_is_requested():
    data = Tuples()
    reader = Reader(data, None, None, 0)
    read = reader.read(ReadRequest(0, [row]) for row in range(9))
    assert data.reads == []
    next(read)
    assert data.reads == [0]


def test_getitems_is_used_if_the_dataset_has_it():
    data = ManyAtOnce()
    reader = Reader(data, None, None, 0)
    ((batch, _),) = reader.read([ReadRequest(0, range(2, 5))])
    assert torch.equal(batch[0], data.x[2:5])


def test_the_collate_function_makes_the_batch():
    ((batch, _),) = Reader(Tuples(), None, len, 0).read([ReadRequest(0, [1, 2, 3])])
    assert batch == 3


def test_workers_answer_each_request_with_its_own_random_numbers():
    requests = [ReadRequest(100 + k, [k, k + 1]) for k in range(6)]
    seen = {}
    for workers in (1, 2):
        reader = Reader(Noise(), None, default_collate, workers)
        batches = [batch for batch, _ in reader.read(requests)]
        assert [rows_of(batch) for batch in batches] == [[k, k + 1] for k in range(6)]
        pids = {int(batch[4][0]) for batch in batches}
        assert len(pids) == workers
        seen[workers] = [[column.tolist() for column in batch[1:4]] for batch in batches]
        tail = [batch for batch, _ in reader.read(requests[4:])]
        assert [[column.tolist() for column in batch[1:4]] for batch in tail] == seen[workers][4:]
        assert {int(batch[4][0]) for batch in tail} <= pids, "the workers of the first plan read the second"
    assert seen[1] == seen[2]
    assert len({str(batch) for batch in seen[1]}) == 6, "every request has numbers of its own"


def test_an_abandoned_plan_does_not_disturb_the_next_one():
    reader = Reader(Tuples(), None, None, 1)
    data = Tuples()
    abandoned = reader.read([ReadRequest(0, [row]) for row in range(20)])
    next(abandoned)
    batches = [batch for batch, _ in reader.read([ReadRequest(0, [7]), ReadRequest(0, [3])])]
    assert torch.equal(torch.cat([batch[0] for batch in batches]), data.x[[7, 3]])


@pytest.mark.parametrize("workers", [0, 1])
def test_reading_leaves_the_global_random_numbers_alone(workers):
    reader = Reader(Tuples(), None, None, workers)
    states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index] # noqa: NPY002
    list(reader.read([ReadRequest(5, [1])]))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert (np.random.get_state()[1] == states[1]).all()  # type: ignore[index] # noqa: NPY002
    assert random.getstate() == states[2]


class Stream(IterableDataset):
    """Has a length, and inherits a __getitem__ that raises."""

    def __len__(self) -> int:
        return 5

    def __iter__(self):
        return iter(range(5))


@pytest.mark.parametrize("dataset", [Stream(), iter([1, 2]), 3], ids=["IterableDataset", "iterator", "number"])
def test_only_map_style_datasets_are_read(dataset):
    with pytest.raises(
        ValueError, match=r"dataset must be map-style, .* \(smdl.SelectiveLoader takes any iterable of batches\)"
    ):
        check_dataset(dataset)


def test_a_dataset_has_at_least_one_sample():
    assert check_dataset(Tuples(7)) == 7
    assert check_dataset([1, 2, 3]) == 3
    with pytest.raises(ValueError, match="scoring_dataset must have at least one sample, got an empty one"):
        check_dataset(TensorDataset(torch.zeros(0)), "scoring_dataset")


class Fragile(Tuples):
    """Kills the worker that reads row 0, once."""

    def __init__(self, n: int, marker: Path) -> None:
        super().__init__(n)
        self.marker = marker

    def __getitem__(self, row: int):
        if row == 0 and get_worker_info() is not None and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(row)


def test_a_killed_worker_is_replaced_for_the_next_plan(tmp_path):
    data = Fragile(30, tmp_path / "killed")
    reader = Reader(data, None, None, 2)
    requests = [ReadRequest(0, [row]) for row in range(9)]
    with pytest.raises(RuntimeError, match="DataLoader worker") as killed:
        list(reader.read(requests))
    assert worker_was_killed(killed.value)
    for _ in range(2):
        rows = [batch[0] for batch, _ in reader.read(requests)]
        assert torch.equal(torch.cat(rows), data.x[:9])


def test_the_error_of_a_killed_worker_says_what_to_do():
    """torch raises its error at whatever line the main process has reached, in the loader or in the loop around it."""
    message = r"worker process .* was killed.*fewer workers.*starts new workers"
    with pytest.raises(RuntimeError, match=message) as raised, worker_errors():
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed. ")
    assert worker_was_killed(raised.value)
    with pytest.raises(RuntimeError, match=r"^another error$"), worker_errors():
        raise RuntimeError("another error")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", ["fresh", "observed", "observed_full", "paper", "loss", "uniform"])
def test_a_loader_works_again_after_a_worker_was_killed(tmp_path, case, workers):
    marker = tmp_path / "killed"
    loader = make(case, Fragile(30, marker), Net(), num_workers=workers)
    start = copy.deepcopy(loader.state_dict())
    if workers:
        with pytest.raises(RuntimeError) as killed:
            epoch_of(loader)
        assert worker_was_killed(killed.value)
        loader.load_state_dict(start)
    twin = make(case, Tuples(30), Net())
    for _ in range(2):
        assert epoch_of(loader) == epoch_of(twin)
    assert marker.exists() == bool(workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", ["fresh", "observed", "observed_full", "uniform_full", "loss"])
@pytest.mark.parametrize("act", ["iterate", "set_epoch", "load_state_dict", "warm_up", "raise"])
def test_an_iteration_never_continues_with_the_batches_of_another(case, workers, act):
    loader, twin = (make(case, Tuples(30), Net(), num_workers=count) for count in (workers, 0))
    older = iter(loader)
    for _ in range(2):
        forwarded(loader, next(older))
    state = loader.state_dict()
    if act == "iterate":
        next(iter(loader))
    elif act == "set_epoch":
        loader.set_epoch(3)
    elif act == "load_state_dict":
        loader.load_state_dict(state)
    elif act == "warm_up":
        loader.warm_up()
    if act != "raise" and not (act == "warm_up" and case in ("uniform_full", "loss")):  # these have nothing to warm up
        with pytest.raises(RuntimeError, match=r"another iteration of this loader was started.*only the latest"):
            next(older)
        with pytest.raises(StopIteration):
            next(older)
    with suppress(ZeroDivisionError):
        for batch in loader:
            forwarded(loader, batch)
            raise ZeroDivisionError
    loader.load_state_dict(state)
    twin.load_state_dict(state)
    assert epoch_of(loader) == epoch_of(twin), "the rest of the epoch of the state"
    assert len(epoch_of(loader)) == 8


def test_workers_of_a_loader_in_a_cycle_of_references_end_at_once():
    """A trainer, its module and its loader refer to each other. torch alone takes five seconds per worker."""
    cycle = {"loader": make("uniform", Tuples(12), Net(), num_workers=2)}
    cycle["itself"] = cycle
    epoch_of(cycle["loader"])
    started = time.perf_counter()
    del cycle
    gc.collect()
    assert time.perf_counter() - started < 4
