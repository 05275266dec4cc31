"""Neighbours by faiss, where it is installed: candidates in float32, measured again by our own arithmetic.

On macOS and Windows, faiss and torch bring two OpenMP libraries that do not work in one process, so faiss is not used.
Nor are old versions: importing faiss-cpu 1.12.0 after torch 2.13 is a segmentation fault.
"""

import sys
import warnings
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch

from smdl.engine.blocks import Blocks, Report, tiles
from smdl.engine.distances import COSINE, Metric
from smdl.engine.randomness import sample_compiled, stream
from smdl.engine.similarity import Graph, nearest_among, points_of

#: The oldest faiss-cpu that is used.
OLDEST = (1, 15)

#: From this many samples on faiss is used; from the second number on with an inverted file, which is not exact.
FLAT, INVERTED = 1 << 14, 1 << 17

#: Rows whose neighbours are also found exactly, to measure the recall.
MEASURED = 256

#: A recall below this gives a warning.
LOW = 0.9

#: Samples that faiss searches at once, cells that it looks into, and samples per cell that the cells are made from.
QUERIES, PROBES, PER_CELL = 4096, 64, 64

#: Similarities that differ by less count as equal.
TOLERANCE = 2e-6

SEARCHES = {
    "exact": "compares all pairs",
    "flat": "compares all pairs by faiss",
    "inverted": "compares samples of near cells by faiss, and measures the recall",
}


class Found(NamedTuple):
    """The graph, how it was found, and the share of the true neighbours that it has; 1 if it is exact."""

    graph: Graph
    search: str
    recall: float


@cache
def installed() -> bool:
    """Return whether faiss can be used."""
    if sys.platform != "linux" or find_spec("faiss") is None:
        return False
    try:
        return tuple(map(int, version("faiss-cpu").split(".")[:2])) >= OLDEST
    except PackageNotFoundError:  # built in another way
        return True


def search_of(n: int, space: str, device: torch.device) -> str:
    """Return the search that a pool of n samples gets: a key of SEARCHES."""
    if n < FLAT or space == "gradients" or device.type != "cpu" or not installed():
        return "exact"
    return "flat" if n < INVERTED else "inverted"


def find(metric: Metric, blocks: Blocks, k: int, search: str, report: Report) -> Found:
    """Return each sample and its k − 1 nearest others."""
    if search == "exact":
        return Found(blocks.nearest(k, report=report), search, 1.0)
    faiss, n, points = import_module("faiss"), metric.size, points_of(metric)
    threads = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(torch.get_num_threads())
    try:
        index = _index(faiss, metric, blocks, search)
        graph = Graph(np.empty((n, k), np.int32), np.empty((n, k), np.float32))
        for part in tiles(n, QUERIES):
            report(part.start, n)
            candidates = index.search(_vectors(metric, blocks, part), min(n, k + max(4, k // 8)))[1]
            nearest_among(points, part.start, candidates, graph.neighbours[part], graph.similarities[part])
    finally:
        faiss.omp_set_num_threads(threads)
    recall = _recall(blocks, graph)
    if recall < LOW:
        warnings.warn(
            f"the graph of neighbours has only {recall:.0%} of the nearest ones: without clusters, faiss misses many."
            " Leave out neighbours=, or select from fewer rows",
            stacklevel=2,
        )
    return Found(graph, search, recall)


def _vectors(metric: Metric, blocks: Blocks, part: slice | torch.Tensor) -> np.ndarray:
    """Return rows as faiss compares them: of length 1 for angles, so that products are cosines."""
    side = blocks.side(part)
    if metric.code == COSINE:
        return (side.rows / side.size.clamp(min=1e-30)[:, None]).to(torch.float32).numpy()
    return side.rows.numpy()


def _index(faiss: Any, metric: Metric, blocks: Blocks, search: str) -> Any:
    """Return an index of all samples. Its cells come from a fixed random sample, so that they are always the same."""
    n, width, angle = metric.size, metric.space.rows.shape[1], metric.code == COSINE
    index: Any = faiss.IndexFlatIP(width) if angle else faiss.IndexFlatL2(width)
    if search == "inverted":
        kind = faiss.METRIC_INNER_PRODUCT if angle else faiss.METRIC_L2
        index = faiss.IndexIVFFlat(index, width, cells_of(n), kind)
        index.cp.seed, index.cp.niter, index.cp.spherical, index.nprobe = 1, 10, angle, PROBES
        index.cp.min_points_per_centroid = 1  # faiss would print a warning
        index.train(_vectors(metric, blocks, torch.from_numpy(_drawn(n, PER_CELL * cells_of(n), 1))))
    for part in tiles(n, QUERIES):
        index.add(_vectors(metric, blocks, part))
    return index


def cells_of(n: int) -> int:
    """Return the number of cells of an inverted file."""
    return int(4 * n**0.5)


def _drawn(n: int, count: int, key: int) -> np.ndarray:
    order = np.arange(n, dtype=np.int32)
    sample_compiled(order, n, min(n, count), np.uint64(stream(0, n, key)))
    return np.sort(order[:count]).astype(np.int64)


def _recall(blocks: Blocks, graph: Graph) -> float:
    """Return the share of the exact neighbours of random rows that the graph has; equally near ones count as found."""
    rows = _drawn(len(graph.neighbours), MEASURED, 2)
    kept, exact = graph.similarities[rows], blocks.nearest(graph.neighbours.shape[1], rows).similarities
    return float((kept >= exact.min(axis=1, keepdims=True) - TOLERANCE).mean())
