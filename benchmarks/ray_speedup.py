"""Is a cluster worth its nodes? `OMP_NUM_THREADS=1 python benchmarks/ray_speedup.py --rows 1000000`

Chooses rows of eight float16 files on one machine (`--engine local`) and on local Ray clusters of one and of two
workers, in turn, one thread per process. Every process has loaded smdl before the clock starts. Prints seconds, the CPU
seconds of the command and its busiest worker, which other load on the machine changes less, the seconds of each stage,
and the megabytes that travel: what the command holds for the workers, and what their tasks return.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import ray
import torch

from scale import write_map
from smdl.common.progress import Display
from smdl.files.choose import Chooser
from smdl.files.engines import Ray
from smdl.files.request import SelectRequest

SHARDS = 8
TICKS = os.sysconf("SC_CLK_TCK")


def write_shards(folder: Path, rows: int, width: int) -> None:
    """Write the rows of `scale.py` as several files."""
    whole = folder.parent / "whole.npy"
    write_map(whole, rows, width)
    folder.mkdir()
    for number, part in enumerate(np.array_split(np.load(whole, mmap_mode="r"), SHARDS)):
        np.save(folder / f"{number}.npy", part)
    whole.unlink()


def worker_seconds() -> dict[int, float]:
    """Return the CPU seconds of each Ray worker below this process."""
    parents, seconds, names = {}, {}, {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            names[int(entry.name)] = (entry / "cmdline").read_text()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        parents[int(entry.name)] = int(fields[1])
        seconds[int(entry.name)] = (int(fields[11]) + int(fields[12])) / TICKS

    def is_ours(process: int) -> bool:
        while process in parents and process != os.getpid():
            process = parents[process]
        return process == os.getpid()

    return {
        process: seconds[process] for process, name in names.items() if name.startswith("ray::") and is_ours(process)
    }


class Stages(Display):
    """Notes when each stage begins."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[str, float]] = []

    def phase(self, what: str) -> None:
        self.begun.append((what, time.perf_counter()))
        super().phase(what)

    def seconds(self, end: float) -> dict[str, float]:
        times = [*(start for _, start in self.begun), end]
        return {what: stop - start for (what, start), stop in zip(self.begun, times[1:], strict=True)}


def bytes_of(value: Any) -> int:
    """Return the bytes of all arrays in a value."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    parts = vars(value).values() if hasattr(value, "__dict__") else ()
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else parts
    return sum(bytes_of(part) for part in parts)


@contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Count the bytes of arrays that go to workers (once each) and come back."""
    found, hold, result = {"out": 0, "back": 0}, Ray.hold, Ray._result

    def counting_hold(self: Ray, value: Any) -> Any:
        found["out"] += 0 if isinstance(value, ray.ObjectRef) else bytes_of(value)
        return hold(self, value)

    def counting_result(self: Ray, reference: Any) -> Any:
        value = result(self, reference)
        found["back"] += bytes_of(value)
        return value

    with mock.patch.multiple(Ray, hold=counting_hold, _result=counting_result):
        yield found


def choose(inputs: Path, out: Path, options: argparse.Namespace, engine: str) -> dict:
    """Choose. Return the rows, the seconds, the CPU seconds and the stages."""
    display = Stages()
    chooser = Chooser(
        SelectRequest(
            (str(inputs),), out, options.size, objective=options.objective, partitions=options.partitions, engine=engine
        )
    )
    before, own, start = worker_seconds(), time.process_time(), time.perf_counter()
    with counted() as travelled:
        chooser.run(display)
    end, own, after = time.perf_counter(), time.process_time() - own, worker_seconds()
    busiest = max((value - before.get(process, 0.0) for process, value in after.items()), default=0.0)
    stages = display.seconds(end)
    return {
        "rows": np.load(out).tolist(), "seconds": end - start, "cpu": own + busiest, "own": own, "stages": stages,
        **travelled,
    }  # fmt: skip


def measure(workers: int, inputs: Path, out: Path, options: argparse.Namespace) -> dict:
    """Choose on a cluster of this many workers; 0: on one machine."""
    out.mkdir()
    small = argparse.Namespace(**{**vars(options), "size": 10})
    if workers == 0:
        choose(inputs.parent / "small", out / "small.npy", small, "local")  # compiles
        return choose(inputs, out / "chosen.npy", options, "local")
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        choose(inputs.parent / "small", out / "small.npy", small, "ray")  # each worker loads smdl and compiles
        return choose(inputs, out / "chosen.npy", options, "ray")
    finally:
        ray.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, help="by default a thousandth of the rows")
    parser.add_argument("--partitions", type=int)
    parser.add_argument("--objective", default="facility_location")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    options.size = options.size or max(1, options.rows // 1000)
    torch.set_num_threads(1)
    found: dict[int, list[dict]] = {0: [], 1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "shards"
        write_shards(inputs, options.rows, options.width)
        write_shards(Path(folder) / "small", 70_000, options.width)
        for repeat in range(options.repeats):
            for workers, runs in found.items():
                run = measure(workers, inputs, Path(folder) / f"{workers}-{repeat}", options)
                stages = ", ".join(f"{what} {seconds:.1f}" for what, seconds in run["stages"].items())
                print(
                    f"workers {workers}: {run['seconds']:.1f} s, CPU {run['cpu']:.1f} s (command {run['own']:.1f});"
                    f" out {run['out'] / 1e6:.1f} MB, back {run['back'] / 1e6:.1f} MB; {stages}",
                    flush=True,
                )
                runs.append(run)
    assert len({tuple(run["rows"]) for runs in found.values() for run in runs}) == 1, "the rows differ"
    print(f"{options.objective}, {options.size:,} of {options.rows:,} × {options.width}, medians:")
    for name, key in (("seconds", "seconds"), ("CPU seconds", "cpu")):
        local, one, two = (statistics.median(run[key] for run in found[workers]) for workers in (0, 1, 2))
        print(
            f"{name}: one machine {local:.1f}, one worker {one:.1f} ({one / local:.2f} ×), two workers {two:.1f}:"
            f" {one / two:.2f} × as fast as one worker"
        )


if __name__ == "__main__":
    main()
