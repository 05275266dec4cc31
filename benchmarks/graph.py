"""Graphs of nearest neighbours, by blocks, by faiss and by scikit-learn: `python benchmarks/graph.py --rows 20000`

The sides take turns in one process with one thread. A time starts with features in memory and ends with the indices
and similarities of all neighbours; scikit-learn returns distances. Recall is the share of the neighbours by blocks.
"""

import argparse
import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

import numpy as np

import smdl
from data import features
from smdl.engine import neighbours
from timing import Side, commit, processor, race, shown

SMALL = 2000


def ours(rows: np.ndarray, k: int, search: str) -> np.ndarray:
    """Return the neighbours of every row by one search of smdl."""
    geometry = smdl.Objective(facility_location=1.0, neighbours=k).on(smdl.Pool(rows)).geometry
    return neighbours.find(geometry.metric, geometry.blocks, k, search, lambda *_: None).graph.neighbours


def with_sklearn(rows: np.ndarray, k: int) -> np.ndarray:
    from sklearn.neighbors import NearestNeighbors

    return NearestNeighbors(n_neighbors=k, algorithm="brute").fit(rows).kneighbors(rows)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--neighbours", type=int, default=100)
    parser.add_argument("--repeat", type=int, default=2)
    options = parser.parse_args()
    rows, k = features(options.rows, width=options.width), options.neighbours
    searches = ["exact", "flat", "inverted"] if neighbours.installed() else ["exact"]
    for search in searches:
        ours(rows[:SMALL], k, search)  # compiles
    sides = [Side(search, lambda _, search=search: ours(rows, k, search), warm=False) for search in searches]
    sides.append(Side("scikit-learn", lambda _: with_sklearn(rows, k), warm=False, peer=True))
    times = race(sides, options.repeat, budget=600.0)
    print(f"{k} neighbours of {options.rows:,} rows with {options.width} features, one thread.", end=" ")
    print(f"{processor()}, commit {commit()}.\n")
    print("| search | CPU s | ratio to blocks | recall | runs |\n| --- | --- | --- | --- | --- |")
    exact = times["exact"].picks
    for name, time in times.items():
        if time.picks is None or exact is None:
            print(f"| {name} | {time.failed} | – | – | 0 |")
            continue
        shared = [len(np.intersect1d(a, b)) / k for a, b in zip(exact[:500], time.picks[:500], strict=True)]
        cells = (time.cpu / 1000, time.cpu / times["exact"].cpu, float(np.mean(shared)), time.runs)
        print(f"| {name} | {' | '.join(map(shown, cells))} |")


if __name__ == "__main__":
    main()
