"""Compare smdl with apricot, submodlib, fpsample and six lines of torch, each on its own objective.

The preparation column is everything before the first pick: the similarity matrix, the neighbour graph or the lists
that a peer needs, and the scores of smdl. `total` is preparation plus selection.
"""

import functools
import importlib.metadata
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse
import torch
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

import smdl
from data import features
from plain import farthest_point
from timing import Report, Side, Times, prepared, race, verdict

SIZE = 50
ROUNDING = 1e-6
PACKAGES = ("apricot-select", "submodlib-py", "fpsample")
TIMES = ("preparation ms", "CPU ms", "wall ms", "ratio to smdl", "total CPU ms", "total ratio")
COLUMNS = ("case", "side", *TIMES, "value", "target", "result", "runs")


def installed(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def peers(report: Report, repeat: int, quick: bool) -> None:
    """Race every peer at two sizes. smdl is ahead if it is faster and its value is at least that of the peer."""
    report.table(f"Peers: {SIZE} of n, one thread per side", COLUMNS)
    small, large = (1000, 5000) if quick else (5000, 50_000)
    limit = 10.0 if quick else 120.0
    for n in (small, large):
        _contest(report, f"feature coverage √, n = {n}", _coverage_sides(n), repeat, limit)
    _contest(report, f"facility location, dense, n = {small}", _dense_sides(small), repeat, limit)
    for n in (small, large):
        _contest(report, f"facility location, 100 neighbours, n = {n}", _neighbour_sides(n), repeat, limit)
    for n in (small, large):
        _contest(report, f"redundancy (farthest point), n = {n}", _farthest_sides(n), repeat, limit)
    for package in PACKAGES:
        if installed(package) is None:
            report.row(package, "not installed", *[""] * (len(COLUMNS) - 2))


Case = tuple[list[Side], Callable[[np.ndarray], float]]  # the sides, and the function that values their picks


def _contest(report: Report, case: str, contest: Case, repeat: int, limit: float) -> None:
    sides, value = contest
    times = race(sides, repeat, limit=limit)
    values = {name: float("nan") if of.picks is None else value(of.picks) for name, of in times.items()}
    for side in sides:
        of, ours = times[side.name], _rival(side, sides, times, values)
        total = side.preparation + of.cpu
        ratio, whole = of.cpu / times[ours.name].cpu, total / (ours.preparation + times[ours.name].cpu)
        higher = values[side.name] / values[ours.name] - 1
        target, result = ("smdl ahead", _result(ratio, whole, higher, of, ours)) if side.peer else ("", "")
        cells = (side.preparation, of.cpu, of.wall, ratio, total, whole, _digits(values[side.name]))
        report.row(case, side.name, *cells, target, result, of.runs)


def _rival(side: Side, sides: Sequence[Side], times: dict[str, Times], values: dict[str, float]) -> Side:
    """Return the fastest smdl side whose value is at least this value, except for rounding; else the best smdl side."""
    ours = [other for other in sides if not other.peer]
    if not side.peer:
        return ours[0]
    equal = [other for other in ours if not values[side.name] / values[other.name] - 1 > ROUNDING]
    return min(equal, key=lambda o: times[o.name].cpu) if equal else max(ours, key=lambda o: values[o.name])


def _result(ratio: float, whole: float, higher: float, of: Times, ours: Side) -> str:
    """Return whether smdl selects faster at no lower value, and whether it is also ahead in total."""
    if of.failed:
        return of.failed
    equal = higher <= ROUNDING
    against = f"against {ours.name}" + ("" if equal else f", whose value is {100 * higher:.2f} % lower")
    return verdict(ratio > 1 and equal, against) + ("" if whole > 1 else "; total **missed**")


def _digits(value: float) -> str:
    return "–" if value != value else f"{value:.5f}"


def _ours(name: str, pool: smdl.Pool, objective: smdl.Objective, preparation: float, **options: Any) -> Side:
    def run(_: None) -> np.ndarray:
        return smdl.select(pool, objective, SIZE, threads=1, **options).indices

    return Side(f"smdl {name}", run, preparation=preparation)


def _valued_by(pool: smdl.Pool, objective: smdl.Objective) -> Callable[[np.ndarray], float]:
    return lambda picks: smdl.evaluate(pool, objective, picks).value


def _coverage_sides(n: int) -> Case:
    rows, objective = features(n), smdl.Objective(feature_coverage=1.0)
    objective.on(smdl.Pool(rows[:100]))
    pool = smdl.Pool(rows)
    preparation, _ = prepared(lambda: objective.on(pool))
    sides = [
        _ours("lazy", pool, objective, preparation, optimizer="lazy"),
        _ours("stochastic ε = 0.01", pool, objective, preparation, optimizer="stochastic"),
        _ours("stochastic ε = 0.9", pool, objective, preparation, optimizer="stochastic", epsilon=0.9),
    ]
    if installed("apricot-select"):
        ms, wide = prepared(lambda: rows.astype(np.float64))  # apricot would convert the rows in every call
        selector = functools.partial(_apricot, "FeatureBasedSelection", wide, preparation=ms)
        for keep in (False, True):
            sides.append(selector(keep=keep, optimizer="lazy"))
            sides.append(selector(keep=keep, optimizer="stochastic", epsilon=0.01))
        sides.append(selector(keep=True, optimizer="stochastic", epsilon=0.9))  # its default
    if installed("submodlib-py"):
        ms, function = prepared(lambda: _submodlib_coverage(rows))
        sides.append(_submodlib(function, ms))
    return sides, _valued_by(pool, objective)


def _dense_sides(n: int) -> Case:
    rows, objective = features(n), smdl.Objective(facility_location=1.0)
    smdl.select(smdl.Pool(rows[:100]), objective, 2)
    pool = smdl.Pool(rows)
    preparation, _ = prepared(lambda: objective.on(pool).geometry.similarities)
    sides = [_ours("lazy", pool, objective, preparation, optimizer="lazy")]
    bound = objective.on(pool).geometry.metric.bound
    ms, matrix = prepared(lambda: bound - pairwise_distances(rows.astype(np.float64)))
    if installed("apricot-select"):
        selector = functools.partial(_apricot, "FacilityLocationSelection", matrix, preparation=ms, optimizer="lazy")
        sides += [selector(keep=False), selector(keep=True)]
    if installed("submodlib-py"):
        more, function = prepared(lambda: _submodlib_location(n, mode="dense", separate_rep=False, sijs=matrix))
        sides.append(_submodlib(function, ms + more))
    return sides, _valued_by(pool, objective)


def _neighbour_sides(n: int, neighbours: int = 100) -> Case:
    rows, objective = features(n), smdl.Objective(facility_location=1.0, neighbours=neighbours)
    smdl.select(smdl.Pool(rows[:200]), objective, 2)
    pool = smdl.Pool(rows)
    preparation, _ = prepared(lambda: objective.on(pool).geometry.graph)
    sides = [_ours("lazy", pool, objective, preparation, optimizer="lazy")]
    ms, graph = prepared(lambda: _graph(rows, neighbours, objective.on(pool).geometry.metric.bound))
    if installed("apricot-select"):
        selector = functools.partial(_apricot, "FacilityLocationSelection", graph, preparation=ms, optimizer="lazy")
        sides += [selector(keep=False), selector(keep=True)]
    if installed("submodlib-py"):
        more, function = prepared(lambda: _submodlib_location(n, mode="sparse", sijs=graph, num_neighbors=neighbours))
        sides.append(_submodlib(function, ms + more, alone=True))
    return sides, _valued_by(pool, objective)


def _graph(rows: np.ndarray, neighbours: int, bound: float) -> scipy.sparse.csr_matrix:
    """Return D − φ of the nearest neighbours of every sample, itself first; apricot needs int32 indices."""
    search = NearestNeighbors(n_neighbors=neighbours, algorithm="brute").fit(rows)
    gaps, nearest = search.kneighbors(rows)
    starts = np.arange(0, gaps.size + 1, neighbours, dtype=np.int32)
    similarities = (bound - gaps).astype(np.float64)
    return scipy.sparse.csr_matrix((similarities.ravel(), nearest.astype(np.int32).ravel(), starts), (len(rows),) * 2)


def _farthest_sides(n: int) -> Case:
    rows, objective = features(n), smdl.Objective(redundancy=1.0)
    objective.on(smdl.Pool(rows[:100]))
    pool = smdl.Pool(rows)
    preparation, _ = prepared(lambda: objective.on(pool))
    first = int(smdl.select(pool, objective, 1).indices[0])  # random, so all sides start from it
    tensor = torch.from_numpy(rows)
    sides = [
        _ours("lazy", pool, objective, preparation, optimizer="lazy"),
        Side("six lines of torch", lambda _: farthest_point(tensor, SIZE, first), peer=True),
    ]
    if installed("fpsample"):
        import fpsample

        for name in ("fps_sampling", "bucket_fps_kdtree_sampling"):
            sampling = getattr(fpsample, name)
            run = functools.partial(_fpsample, sampling, rows, first)
            sides.append(Side(f"fpsample {name}", run, peer=True))
    return sides, _valued_by(pool, objective)


def _fpsample(sampling: Callable[..., np.ndarray], rows: np.ndarray, first: int, _: None) -> np.ndarray:
    return sampling(rows, SIZE, first).astype(np.int64)


def _apricot(name: str, given: Any, *, keep: bool, preparation: float, optimizer: str, **options: float) -> Side:
    """Return a side for a selector of apricot. It compiles its kernels in every fit unless `keep` caches them."""
    import apricot

    selector = getattr(apricot, name)
    extra = {"metric": "precomputed"} if name.startswith("Facility") else {}

    def fit(data: Any, size: int) -> np.ndarray:
        kernels = _cached_kernels() if keep else warnings.catch_warnings()
        with kernels:
            warnings.simplefilter("ignore")
            return (
                selector(size, optimizer=optimizer, optimizer_kwds=options, random_state=0, **extra).fit(data).ranking
            )

    if keep:
        fit(given[:60, :60] if extra else given[:60], 2)  # compiles the kernels
    detail = "".join(f" ε = {epsilon}" for epsilon in options.values())
    title = f"apricot {optimizer}{detail}, {'kernels kept' if keep else 'stock'}"
    return Side(title, lambda _: fit(given, SIZE), preparation=preparation, warm=False, peer=True)


@functools.cache
def _kernel_makers() -> list[tuple[Any, str, Any]]:
    """Return the functions of apricot that make kernels, each with a cache."""
    from apricot.functions import facilityLocation, featureBased

    makers = ("calculate_gains", "calculate_gains_sparse", "calculate_gains_sieve")
    return [(m, name, functools.cache(getattr(m, name))) for m in (featureBased, facilityLocation) for name in makers]


@contextmanager
def _cached_kernels() -> Iterator[None]:
    """Cache the kernels of apricot from one fit to the next."""
    stock = [(module, name, getattr(module, name)) for module, name, _ in _kernel_makers()]
    for module, name, maker in _kernel_makers():
        setattr(module, name, maker)
    try:
        with warnings.catch_warnings():
            yield
    finally:
        for module, name, maker in stock:
            setattr(module, name, maker)


def _submodlib_coverage(rows: np.ndarray) -> Any:
    from submodlib import FeatureBasedFunction
    from submodlib_cpp import FeatureBased

    return FeatureBasedFunction(len(rows), rows.tolist(), rows.shape[1], sparse=False, mode=FeatureBased.squareRoot)


def _submodlib_location(n: int, **options: Any) -> Any:
    from submodlib import FacilityLocationFunction

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FacilityLocationFunction(n, **options)


def _submodlib(function: Any, preparation: float, alone: bool = False) -> Side:
    def run(_: None) -> np.ndarray:
        stops = {"stopIfZeroGain": False, "stopIfNegativeGain": False}
        picks = function.maximize(SIZE, "LazyGreedy", **stops, verbose=False, show_progress=False)
        return np.array([index for index, _ in picks])

    return Side("submodlib lazy", run, preparation=preparation, warm=False, peer=True, alone=alone)
