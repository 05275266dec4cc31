"""Run checks on several ranks: processes on this machine that talk through gloo."""

import os
import pickle
import time
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import multiprocessing

Check = Callable[[Path], Any]


def run(checks: Sequence[Check], ranks: int, folder: Path, lost: bool = False) -> dict[str, list[str]]:
    """Run the checks one after the other on every rank. Return the errors of each check, by its name.

    One process group runs many checks, because each process needs seconds to import torch. `lost`: the last check ends
    the process of the last rank.
    """
    start = multiprocessing.get_context("spawn")
    processes = [start.Process(target=_work, args=(rank, ranks, checks, folder, lost)) for rank in range(ranks)]
    for process in processes:
        process.start()
    deadline = time.monotonic() + 240
    for process in processes:
        process.join(max(0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
    found: dict[str, list[str]] = {check.__name__: [] for check in checks}
    for rank in range(ranks):
        file = folder / f"errors-{rank}-{ranks}"
        errors = pickle.loads(file.read_bytes()) if file.exists() else {}
        for check in checks[:-1] if lost and rank == ranks - 1 else checks:
            if error := errors.get(check.__name__, "the check did not end"):
                found[check.__name__].append(f"rank {rank}: {error}")
    return found


def everywhere(value: Any) -> list[Any]:
    """Return the values of all ranks."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def _work(rank: int, ranks: int, checks: Sequence[Check], folder: Path, lost: bool) -> None:
    torch.set_num_threads(1)
    url = f"file://{folder}/store-{ranks}"
    dist.init_process_group("gloo", init_method=url, rank=rank, world_size=ranks, timeout=timedelta(seconds=60))
    errors: dict[str, str | None] = {}
    for check in checks:
        try:
            check(folder)
            errors[check.__name__] = None
        except BaseException:  # pytest's failures are no Exceptions
            errors[check.__name__] = traceback.format_exc()
        (folder / f"errors-{rank}-{ranks}").write_bytes(pickle.dumps(errors))
        if check is not checks[-1] or not lost:
            dist.barrier()
    os._exit(0)  # destroying a group that lost a rank takes its timeout
