"""How much faster are two Ray workers of one thread each than one? `python benchmarks/ray_speedup.py --rows 1000000`

Runs `smdl select --engine ray` on a float16 memory map in eight shards, on local clusters of one and of two workers in
turn. The workers have loaded smdl before the clock starts. Prints the ratio of the seconds, and the ratio of the CPU
seconds of the command and its busiest worker, which other load on the machine changes less.
"""

import argparse
import logging
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import ray

from scale import write_map
from smdl.common.progress import Display
from smdl.files.choose import Chooser
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


def measure(workers: int, inputs: Path, out: Path, size: int, partitions: int, objective: str) -> dict:
    """Choose on a cluster of this many workers. Return the rows, the seconds and the CPU seconds."""
    ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    try:
        small = SelectRequest((str(inputs.parent / "small"),), out / "small.npy", 10, objective=objective, engine="ray")
        Chooser(small).run(Display())  # each worker loads smdl and compiles
        chooser = Chooser(
            SelectRequest(
                (str(inputs),), out / "chosen.npy", size, objective=objective, partitions=partitions, engine="ray"
            )
        )
        before, own, start = worker_seconds(), time.process_time(), time.perf_counter()
        chooser.run(Display())
        seconds, own, after = time.perf_counter() - start, time.process_time() - own, worker_seconds()
    finally:
        ray.shutdown()
    busiest = max(value - before.get(process, 0.0) for process, value in after.items())
    return {"rows": np.load(out / "chosen.npy").tolist(), "seconds": seconds, "cpu": own + busiest}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--size", type=int, help="by default a thousandth of the rows")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--objective", default="facility_location")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    size = options.size or max(1, options.rows // 1000)
    found: dict[int, list[dict]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "shards"
        write_shards(inputs, options.rows, options.width)
        write_shards(Path(folder) / "small", 4000, options.width)
        for repeat in range(options.repeats):
            for workers, runs in found.items():
                out = Path(folder) / f"{workers}-{repeat}"
                out.mkdir()
                runs.append(measure(workers, inputs, out, size, options.partitions, options.objective))
                print(f"workers {workers}: {runs[-1]['seconds']:.1f} s, CPU {runs[-1]['cpu']:.1f} s", flush=True)
    assert len({tuple(run["rows"]) for runs in found.values() for run in runs}) == 1, "the rows differ"
    wall, cpu = (
        statistics.median(run[key] for run in found[1]) / statistics.median(run[key] for run in found[2])
        for key in ("seconds", "cpu")
    )
    print(
        f"{options.objective}, {size:,} of {options.rows:,} × {options.width}, {options.partitions} parts:"
        f" two workers are {wall:.2f} × as fast as one ({cpu:.2f} × by CPU seconds)"
    )


if __name__ == "__main__":
    main()
