"""The loader on several ranks. The checks are in `two` and `four`: one process group runs all of them."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import smdl
from smdl.loading.candidates.random_pool import assign
from tests.loading.ranks import four, group, two
from tests.toys import Net, Tuples, make, sgd

CASES = ("uniform", "observed", "uniform_full", "paper")
#: One worker of pytest-xdist runs these tests: they share two process groups.
one_worker = pytest.mark.xdist_group("ranks")
EXAMPLE = Path(__file__).parents[3] / "examples" / "ddp.py"
#: Runs the example. At the first attempt, rank 1 is killed after its 23rd batch.
LOSES_A_RANK = """
import os, runpy, sys
import smdl

class Logged(smdl.DataLoader):
    def __iter__(self):
        for batch in super().__iter__():
            batches.append(sorted(self.selection.indices.tolist()))
            with open(f"{sys.argv[2]}-{attempt}-{rank}", "a") as file:
                print(self.epoch, *batches[-1], file=file)
            if (attempt, rank, len(batches)) == (0, 1, 23):
                os.kill(os.getpid(), 9)
            yield batch

attempt, rank, batches = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"]), []
smdl.DataLoader = Logged
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""


def one_rank(case: str, size: int) -> tuple[smdl.DataLoader, Any, Any]:
    model = Net()
    return make(case, Tuples(32), model, seed=5, batch_size=size), model, sgd(model)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the states of one rank, which the checks on two ranks resume."""
    folder = tmp_path_factory.mktemp("ranks")
    for case in CASES:
        for size in (4, 8):
            loader, *rest = one_rank(case, size)
            two.take(two.steps(loader, *rest), 40 // size)
            torch.save(loader.state_dict(), folder / f"one-{case}-{size}.pt")
    return folder


@pytest.fixture(scope="module")
def errors_on_two(folder):
    return group.run(two.CHECKS, 2, folder, lost=True)


@pytest.fixture(scope="module")
def errors_on_four(folder, errors_on_two):  # noqa: ARG001
    """The checks on four ranks resume what those on two have saved."""
    return group.run(four.CHECKS, 4, folder)


@one_worker
@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in two.CHECKS])
def test_two_ranks(check, errors_on_two):
    assert not errors_on_two[check], "\n".join(errors_on_two[check])


@one_worker
@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in four.CHECKS])
def test_four_ranks(check, errors_on_four):
    assert not errors_on_four[check], "\n".join(errors_on_four[check])


@one_worker
@pytest.mark.slow
@pytest.mark.usefixtures("errors_on_two")
@pytest.mark.parametrize(("size", "steps"), [(8, 3), (4, 6)])
@pytest.mark.parametrize("case", CASES)
def test_one_rank_resumes_the_state_of_two(case, size, steps, folder):
    state, used = torch.load(folder / f"two-{case}.pt", weights_only=True)
    loader, *rest = one_rank(case, size)
    loader.load_state_dict(state)
    rows = [set(batch) for batch in two.take(two.steps(loader, *rest), steps)]
    assert loader.epoch == 2, "the rest of the epoch, in as many samples"
    if size == 8 and case == "uniform":
        assert rows == [set(one) | set(other) for one, other in zip(*used, strict=True)], "the same batches"


@pytest.mark.slow
def test_the_example_resumes_after_a_rank_was_lost(tmp_path):
    script, out = tmp_path / "loses_a_rank.py", tmp_path / "ddp.pt"
    script.write_text(LOSES_A_RANK.replace("sys.argv[2]", repr(str(tmp_path / "rows"))))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    done = subprocess.run(
        [sys.executable, *launch, script, EXAMPLE, "--out", out],
        # --standalone finds a free port, and keeps a store in which gloo finds the addresses of the lost processes.
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert "2 ranks, 30 steps per epoch" in done.stdout
    for rank in (0, 1):
        first, second = ((tmp_path / f"rows-{attempt}-{rank}").read_text().splitlines() for attempt in (0, 1))
        assert len(second) == 4 * 30 - 20, "the checkpoint of step 20 was the last one"
        assert first[20:23] == second[: len(first[20:23])], "the same batches again"


def test_every_rank_receives_as_many_samples_and_keeps_its_own_if_possible():
    for ranks in (2, 3, 4):
        for seed in range(20):
            owners = np.random.default_rng(seed).integers(0, ranks, 6 * ranks)
            receivers = assign(owners, ranks)
            assert np.bincount(receivers).tolist() == [6] * ranks
            kept = np.bincount(owners[owners == receivers], minlength=ranks)
            assert kept.tolist() == np.minimum(np.bincount(owners, minlength=ranks), 6).tolist()


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match=r"unknown ranks 'everywhere'\. Choose one of global, local"):
        smdl.DataLoader(Tuples(30), Net(), 4, ranks="everywhere")
