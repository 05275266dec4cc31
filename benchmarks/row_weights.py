"""Time the choice of rows to label: `python benchmarks/row_weights.py [--rows 1000000]`

1. 10,003 × 384: 100 more rows, given 500 that are labelled and new probabilities. The first call computes the
   similarities; `Pool.changed` keeps them for the calls of later rounds.
2. A float16 memory map of --rows × 384: 1,000 rows by their importance. CPU seconds, and memory that is not the map.
"""

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

import smdl
from scale import memory_beyond_map, write_map

ROWS, WIDTH, LABELLED, MORE, CLASSES = 10_003, 384, 500, 100, 77


def rounds(count: int = 4) -> None:
    """Choose again after every change of the probabilities, and print seconds and CPU seconds."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(200, WIDTH)).astype(np.float32)
    features = centres[rng.integers(0, 200, ROWS)] + rng.normal(scale=0.7, size=(ROWS, WIDTH)).astype(np.float32)
    pool, labelled = smdl.Pool(features), rng.choice(ROWS, LABELLED, replace=False)
    for number in range(count):
        probabilities = rng.dirichlet(np.full(CLASSES, 0.1), ROWS).astype(np.float32)
        wall, cpu = time.perf_counter(), time.process_time()
        unsure = smdl.Objective.labels(probabilities=True)
        smdl.select(pool.changed(probabilities=probabilities), unsure, MORE, initial=labelled)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"{ROWS:,} × {WIDTH}, {MORE} more given {LABELLED}, call {number + 1}: {wall:.2f} s, CPU {cpu:.2f} s")


def large(rows: int, size: int = 1000) -> None:
    """Choose from a memory map, and print CPU seconds and memory."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.npy"
        write_map(path, rows, WIDTH)
        smdl.select(np.random.default_rng(0).random((100, WIDTH)), size=5)  # loads the compiled loops
        before, cpu = memory_beyond_map(), time.process_time()
        importance = np.random.default_rng(0).random(rows)
        pool = smdl.Pool(np.load(path, mmap_mode="r"), importance=importance)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it takes a while
            chosen = smdl.select(pool, size=size)
        cpu, more = time.process_time() - cpu, memory_beyond_map() - before
        print(f"{rows:,} × {WIDTH} float16, {size:,} rows: CPU {cpu:.1f} s, {more:.2f} GB beyond the map")
        print(f"value {chosen.value:.4f}, on other samples {chosen.held_out}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=1_000_000)
    rounds()
    large(parser.parse_args().rows)
