"""Time `next(loader)` with ranks="global" and with ranks="local", by the number of ranks and the size of the pool.

    python benchmarks/distributed.py [--ranks 2,4] [--batches 32,128] [--steps 20]

The ranks are processes on this machine that talk through gloo. The methods are `observed` (features of the training
forward, exchanged at every step) and `fresh` (the pool is forwarded at every step). "in parts" is global with as many
partitions as ranks, which the ranks share. The model is small, so almost all time is that of the loader. Loaders take
turns at every step; times are medians over the steps, of rank 0.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

import torch
from torch import distributed as dist
from torch.multiprocessing.spawn import spawn
from torch.utils.data import TensorDataset

import smdl
from smdl.experiments.typical_step import fill_cache, make_typical

SAMPLES, WIDTH, CLASSES, FACTOR = 20_000, 64, 10, 3.0
SIDES = {
    "local": {"ranks": "local"},
    "global": {"ranks": "global"},
    "in parts": {"ranks": "global", "options": {"partitions": 0}},
}


class Side:
    """A loader with a model of its own, and the times of its steps."""

    def __init__(self, dataset: TensorDataset, method: str, batch: int, **options) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, CLASSES)
        )
        self.loader = smdl.DataLoader(dataset, self.model, batch, method=method, drop_last=True, **options)
        make_typical(self.loader)
        self.batches = iter(self.loader)
        self.times: list[tuple[float, float]] = []

    def step(self) -> None:
        dist.barrier()
        wall, cpu = time.perf_counter(), time.process_time()
        inputs, _ = next(self.batches)
        self.times.append((time.perf_counter() - wall, time.process_time() - cpu))
        self.model(inputs)  # what the loader observes


def work(rank: int, ranks: int, store: str, batches: list[int], steps: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(0, CLASSES, (SAMPLES,), generator=generator)
    dataset = TensorDataset(torch.randn(SAMPLES, WIDTH, generator=generator) + labels[:, None], labels)
    for method in ("observed", "fresh"):
        for batch in batches:
            sides = {}
            for name, options in SIDES.items():
                parts = {"options": {"partitions": ranks}} if "options" in options else {}
                sides[name] = Side(dataset, method, batch, **{**options, **parts})
            for step in range(steps + 3):
                for side in sides.values():
                    side.step()
                    if step == 0:
                        fill_cache(side.loader)
            if rank == 0:
                print_row(method, ranks, batch, {name: side.times[3:] for name, side in sides.items()})
    dist.barrier()
    dist.destroy_process_group()


def print_row(method: str, ranks: int, batch: int, times: dict[str, list[tuple[float, float]]]) -> None:
    wall, cpu = ({name: 1000 * median(pair[k] for pair in pairs) for name, pairs in times.items()} for k in (0, 1))
    cells = [method, ranks, batch, int(FACTOR * batch)]
    cells += [f"{wall[name]:.1f} / {cpu[name]:.1f}" for name in times]
    cells += [f"{wall[name] / wall['local']:.2f} / {cpu[name] / cpu['local']:.2f}" for name in ("global", "in parts")]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=[2, 4])
    parser.add_argument("--batches", type=numbers, default=[32, 128], help="batch sizes of a rank")
    parser.add_argument("--steps", type=int, default=20)
    arguments = parser.parse_args()
    print("Milliseconds are wall / CPU of a rank. Ratios are to local.\n")
    titles = ["method", "ranks", "batch", "pool of a rank", *(f"{side} ms" for side in SIDES), "global", "in parts"]
    print("| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles))
    for ranks in arguments.ranks:
        with tempfile.TemporaryDirectory() as folder:
            store = str(Path(folder) / "store")
            spawn(work, (ranks, store, arguments.batches, arguments.steps), nprocs=ranks)
