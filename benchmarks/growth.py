"""How time and memory grow with n, and how long a new process takes until its first batch.

Both need separate processes: `python growth.py 100000 auto 1` measures one size and prints JSON.
"""

import ctypes
import json
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median

import numpy as np
import torch

import smdl
from data import SEED, features, probabilities
from timing import Report, clock, verdict

SIZE = 1000
STATUS = Path("/proc/self/status")


def growth(report: Report, repeat: int, quick: bool) -> None:
    """Measure time and memory for n = 10⁴, 10⁵, 10⁶ with the objective of the paper. Is time linear in n?"""
    columns = ("optimizer", "n", "preparation wall ms", "selection wall ms", "µs/sample", "ratio to smallest n")
    memory = ("peak extra MB", "% of features", "making the Pool, %", "target", "result", "runs")
    report.table(f"Growth: {SIZE} of n by the paper's objective, one thread", (*columns, *memory))
    sizes = (10_000, 100_000) if quick else (10_000, 100_000, 1_000_000)
    for optimizer, partitions in (("auto", 1), ("stochastic", 10)):
        first = 0.0
        for n in sizes:
            runs = [_child(n, optimizer, partitions) for _ in range(min(repeat, 3))]
            preparation, selection = (median(run[key] for run in runs) for key in ("preparation", "selection"))
            share, making = (max(run[key] for run in runs) for key in ("share", "making"))
            each = 1000 * (preparation + selection) / n
            first = first or each
            name = optimizer if partitions == 1 else f"{optimizer}, {partitions} parts"
            extra = max(run["extra"] for run in runs)
            times = (preparation, selection, each, f"{each / first:.2f}×")
            result = verdict(share <= 10)
            report.row(name, n, *times, extra, f"{share:.1f}", f"{making:.1f}", "≤ 10 %", result, len(runs))


def _child(n: int, optimizer: str, partitions: int) -> dict[str, float]:
    command = [sys.executable, __file__, str(n), optimizer, str(partitions)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(n: int, optimizer: str, partitions: int) -> dict[str, float]:
    """Measure preparation and selection of one pool: ms, and peak memory beyond the pool itself."""
    torch.set_num_threads(1)
    objective = smdl.Objective.paper()
    options = {"optimizer": optimizer, "partitions": partitions, "threads": 1, "seed": SEED}
    smdl.select(_pool(2000), objective, 20, **options)
    rows, chances = features(n), probabilities(n)
    before = _start_counting()
    pool = smdl.Pool(rows, chances, reference=rows)
    making = _peak() - before
    before = _start_counting()
    _, preparation, _ = clock(lambda: objective.on(pool))
    _, selection, _ = clock(lambda: smdl.select(pool, objective, SIZE, **options))
    extra = _peak() - before
    return {
        "preparation": preparation,
        "selection": selection,
        "extra": extra / 1e6,
        "share": 100 * extra / rows.nbytes,
        "making": 100 * making / rows.nbytes,
    }


def _pool(n: int) -> smdl.Pool:
    rows = features(n)
    return smdl.Pool(rows, probabilities(n), reference=rows)


def _start_counting() -> int:
    """Release free memory, reset the high-water mark to the memory in use, and return it in bytes."""
    if not STATUS.exists():
        return _peak()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return _peak()


def _peak() -> int:
    """Return the high-water mark of this process in bytes.

    On Linux it is not read from getrusage, which includes the parent process and cannot be reset.
    """
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
    return 1024 * int(line.split()[1])


START = """
import time
begin = time.perf_counter()
import torch
torch_done = time.perf_counter()
import numpy as np, smdl
rng = np.random.default_rng(0)
rows = rng.random((500, 64), dtype=np.float32)
chances = rng.dirichlet(np.ones(10), 500).astype(np.float32)
pool = smdl.Pool(rows, chances, reference=rows)
smdl.select(pool, smdl.Objective.paper(), 50)
print(torch_done - begin, time.perf_counter() - torch_done)
"""


def start(report: Report, repeat: int, quick: bool) -> None:  # noqa: ARG001
    """Measure the seconds until the first batch in a new process, with compiled loops on disk."""
    report.table("Start: a new process, compiled loops cached on disk", ("what", "seconds", "target", "result", "runs"))
    times = np.array([_fresh() for _ in range(4)])[1:]  # the first run fills the caches
    torch_alone, beyond = np.median(times, axis=0).tolist()
    report.row("import torch", torch_alone, "", "", len(times))
    report.row("import smdl, first 50 of 500", beyond, "< 2 s", verdict(beyond < 2), len(times))


def _fresh() -> list[float]:
    done = subprocess.run([sys.executable, "-c", START], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.split()]


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]))))
