"""Facility location on more and more rows, beside apricot and submodlib: `python benchmarks/large_peers.py`
With `--objective redundancy`: the farthest points, beside fpsample.

Each call runs in a process of its own with one thread, and the sides take turns. A call starts with features in memory
and ends with the picks: distances, the pool, and the compiling that apricot repeats in every fit are included, imports
are not. smdl has selected in the process before, except in the line "first call". submodlib gets its similarities from
scikit-learn. A call that takes more CPU seconds or memory than allowed is killed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

import numpy as np

import smdl
from data import features
from timing import clock, commit, processor, shown

WIDTH, SIZE = 384, 100


def with_smdl(rows: np.ndarray, objective: Any) -> Callable[[], np.ndarray]:
    smdl.select(rows[:200], objective, 2)
    return first_call(rows, objective)


def first_call(rows: np.ndarray, objective: Any) -> Callable[[], np.ndarray]:
    """smdl in a process that has not selected before: it loads its compiled loops from the disk."""
    return lambda: smdl.select(rows, objective, SIZE).indices


def with_fpsample(rows: np.ndarray, _: str) -> Callable[[], np.ndarray]:
    from fpsample import fps_sampling

    return lambda: fps_sampling(rows, SIZE, start_idx=0)


def with_apricot(rows: np.ndarray, _: str) -> Callable[[], np.ndarray]:
    from apricot import FacilityLocationSelection

    return lambda: FacilityLocationSelection(SIZE, metric="euclidean", random_state=0).fit(rows).ranking


def with_submodlib(rows: np.ndarray, _: str) -> Callable[[], np.ndarray]:
    from sklearn.metrics import pairwise_distances
    from submodlib import FacilityLocationFunction

    def run() -> np.ndarray:
        gaps = pairwise_distances(rows)
        function = FacilityLocationFunction(len(rows), mode="dense", separate_rep=False, sijs=gaps.max() - gaps)
        picks = function.maximize(SIZE, "LazyGreedy", verbose=False, show_progress=False)
        return np.array([index for index, _ in picks])

    return run


OURS = {"smdl": with_smdl, "smdl, first call": first_call}
SIDES = {
    "facility_location": {**OURS, "apricot": with_apricot, "submodlib": with_submodlib},
    "redundancy": {**OURS, "fpsample": with_fpsample},
}


def call(objective: Any, side: str, n: int, seconds: int, gigabytes: int) -> dict[str, Any]:
    """Run one call in this process, which ends if it exceeds a limit."""
    resource.setrlimit(resource.RLIMIT_DATA, (gigabytes << 30, gigabytes << 30))
    function = SIDES[objective][side](features(n, width=WIDTH), objective)
    used = round(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, used + seconds))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cpu, wall, picks = clock(function)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    return {"cpu": cpu / 1000, "wall": wall / 1000, "gb": peak, "picks": [int(pick) for pick in picks]}


def in_a_process(objective: Any, side: str, n: int, seconds: int, gigabytes: int) -> dict[str, Any]:
    arguments = (objective, side, n, seconds, gigabytes)
    code = f"import json, large_peers as p; print(json.dumps(p.call(*{arguments!r})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True)
    if done.returncode == 0:
        return json.loads(done.stdout.splitlines()[-1])
    if done.returncode < 0:
        return {"failed": f"killed after {seconds} CPU s"}
    error = done.stderr.strip().splitlines()[-1]
    return {"failed": f"more than {gigabytes} GB" if "MemoryError" in error or "alloc" in error else error}


def contest(objective: Any, n: int, repeat: int, seconds: int, gigabytes: int) -> None:
    """Let the sides take turns and print a line per side. A side that failed takes no more turns."""
    done: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES[objective]}
    for _ in range(repeat):
        for side, calls in done.items():
            if not any("failed" in one for one in calls):
                calls.append(in_a_process(objective, side, n, seconds, gigabytes))
    pool = smdl.Pool(features(n, width=WIDTH))
    ours = median(one["cpu"] for one in done["smdl"])
    for side, calls in done.items():
        if "failed" in calls[-1]:
            cells: tuple[Any, ...] = (calls[-1]["failed"], "–", "–", "–", "–")
        else:
            cpu, wall, gb = (median(one[name] for one in calls) for name in ("cpu", "wall", "gb"))
            cells = (cpu, wall, cpu / ours, gb, smdl.evaluate(pool, objective, calls[-1]["picks"]).value)
        print(f"| {n:,} | {side} | {' | '.join(map(shown, cells))} | {len(calls)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[2_000, 8_000, 16_000])
    parser.add_argument("--objective", choices=SIDES, default="facility_location")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=120, help="CPU seconds of one call")
    parser.add_argument("--gigabytes", type=int, default=12, help="memory of one call")
    options = parser.parse_args()
    print(
        f"{options.objective}: {SIZE} of n rows with {WIDTH} features, one thread. {processor()}, commit {commit()}.\n"
    )
    print("| rows | side | CPU s | wall s | CPU, ratio to smdl | peak GB | value | calls |")
    print(f"|{' --- |' * 8}", flush=True)
    in_a_process(options.objective, "smdl", 200, options.seconds, options.gigabytes)
    for n in options.rows:
        contest(options.objective, n, options.repeat, options.seconds, options.gigabytes)


if __name__ == "__main__":
    main()
