"""Compare the cost of a selection with plain NumPy, plain torch and other packages.

python benchmarks/selection.py [--only minibatch,whole,peers,growth,start] [--repeat N] [--quick] [--out FILE]

The sides take turns within one run and their medians are compared, because times of different runs are not comparable.
Nothing is asserted: every target is printed together with "met" or "missed".
"""

import os

# One thread per side. The libraries read these when they are imported.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = "1"

import argparse
import functools
import platform
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np
import torch
from numba.core.dispatcher import Dispatcher

import smdl
from data import CLASSES, SEED, WIDTH, Arrays
from growth import growth, start
from peers import PACKAGES, installed, peers
from plain import Scores, facility_location, farthest, get_mini_batch, gradients
from timing import Report, Side, commit, prepared, processor, race, verdict

SIZE = 50
EPSILON = 0.01
PARTITIONS = 10

MINIBATCH = {
    "paper": smdl.Objective.paper(),
    "redundancy": smdl.Objective(redundancy=1.0),
    "facility location": smdl.Objective(facility_location=1.0),
    "facility location, gradients": smdl.Objective(facility_location=1.0, space="gradients"),
}
# upper limit of CPU ms by objective and n
TARGETS = {(name, n): 0.3 for name in ("paper", "redundancy") for n in (150, 500)}
TARGETS |= {(name, n): ms for name in list(MINIBATCH)[2:] for n, ms in ((150, 0.2), (500, 2.0))}

WHOLE = {"paper": smdl.Objective.paper(), "0.5 U + 0.5 R": smdl.Objective(uncertainty=0.5, redundancy=0.5)}
# lower limit of the speedup over NumPy, by objective
AHEAD = {"paper": 100, "0.5 U + 0.5 R": 20}


def minibatch(report: Report, repeat: int, quick: bool) -> None:
    """Select 50 of a small pool: the cost of a training step, including Gram matrices."""
    report.table(f"Mini-batch: {SIZE} of a pool of n, one thread")
    cases = [(n, name, Arrays(n)) for n in (150, 500, 2000) for name in MINIBATCH]
    for _, name, arrays in cases:
        smdl.select(arrays.pool(), MINIBATCH[name], SIZE)
    before = signatures()
    for n, name, arrays in cases:
        _minibatch_case(report, n, name, arrays, (20 if quick else 100) * repeat)
    after = signatures()
    report.say()
    report.say(f"Compiled during the timed calls: {after - before} (signatures before {before}, after {after}).")


def _minibatch_case(report: Report, n: int, name: str, arrays: Arrays, repeat: int) -> None:
    objective = MINIBATCH[name]

    def prepare(pool: smdl.Pool) -> smdl.Pool:
        _ = objective.on(pool).geometry.points  # scores and norms; similarities belong to the selection
        return pool

    def fresh() -> smdl.Pool:
        return prepare(arrays.pool())

    preparation = race([Side("preparation", prepare, arrays.pool)], 20)["preparation"].cpu
    first = int(smdl.select(fresh(), objective, SIZE).indices[0])
    sides = [
        Side("smdl", lambda pool: smdl.select(pool, objective, SIZE).indices, fresh, preparation),
        Side("torch loop", lambda pool: _torch_loop(pool, objective, first), fresh, preparation),
    ]
    times = race(sides, repeat, budget=2)
    judge = fresh()
    for side in sides:
        of, target = times[side.name], TARGETS.get((name, n)) if side.name == "smdl" else None
        value = smdl.evaluate(judge, objective, of.picks).value if of.picks is not None else float("nan")
        ratio = of.cpu / times["smdl"].cpu
        goal = ("", "") if target is None else (f"≤ {target} ms", verdict(of.cpu <= target))
        report.row(f"{name}, n = {n}", side.name, side.preparation, of.cpu, of.wall, ratio, value, *goal, of.runs)


def _torch_loop(pool: smdl.Pool, objective: smdl.Objective, first: int) -> np.ndarray:
    """Maximise the same objective by naive greedy in torch, with the same scores."""
    problem = objective.on(pool)
    if "facility_location" in objective.weights:
        points = gradients(pool.features, pool.errors) if objective.space == "gradients" else pool.features
        return facility_location(points, problem.geometry.metric.bound, SIZE)
    modular = torch.from_numpy(problem.modular).float()
    return farthest(
        pool.features, modular, problem.coefficient("redundancy"), problem.geometry.metric.bound, SIZE, first
    )


def signatures() -> int:
    """Return how many loops of smdl are compiled. If the number rises during a call, the call compiled some."""
    modules = [module for name, module in sys.modules.items() if name.startswith("smdl")]
    kernels = {id(k): k for module in modules for k in vars(module).values() if isinstance(k, Dispatcher)}
    return sum(len(kernel.signatures) for kernel in kernels.values())


def whole(report: Report, repeat: int, quick: bool) -> None:
    """Select in the setting of the paper: 50 of 50 000, ten partitions, ε = 0.01."""
    n = 5000 if quick else 50_000
    arrays = Arrays(n)
    report.table(f"Whole set: {SIZE} of {n}, {PARTITIONS} partitions, ε = {EPSILON}")
    for name, objective in WHOLE.items():
        _whole_case(report, name, objective, arrays, 5 * repeat)
    _quality(report, arrays, Arrays(500 if quick else 2000))


def _whole_case(report: Report, name: str, objective: smdl.Objective, arrays: Arrays, repeat: int) -> None:
    objective.on(Arrays(100).pool())
    pool = arrays.pool()
    preparation, problem = prepared(lambda: objective.on(pool))
    scores = Scores(arrays.features, problem.modular, problem.coefficient("redundancy"), problem.geometry.metric.bound)
    direction = arrays.features.mean(axis=0)
    select = functools.partial(smdl.select, pool, objective, SIZE, epsilon=EPSILON, seed=SEED)
    partitioned = functools.partial(select, optimizer="stochastic", partitions=PARTITIONS)
    sides = [
        Side("smdl stochastic", lambda _: partitioned(threads=1).indices, preparation=preparation),
        Side("smdl stochastic, 2 threads", lambda _: partitioned(threads=2).indices, preparation=preparation),
        Side("two such selections at once", lambda _: _at_once(partitioned, 2), preparation=preparation),
        Side("smdl auto", lambda _: select(optimizer="auto", threads=1).indices, preparation=preparation),
        Side("X @ v", lambda _: arrays.features @ direction),
        Side(
            "NumPy, Algorithm 1",
            lambda _: get_mini_batch(scores, SIZE, PARTITIONS, EPSILON, SEED),
            preparation=preparation,
            warm=False,
        ),
    ]
    times = race(sides, repeat)
    ours, product = times["smdl stochastic"], times["X @ v"]
    faster = times["NumPy, Algorithm 1"].cpu / ours.cpu
    passes, lazily = ours.cpu / product.cpu, times["smdl auto"].cpu / product.cpu
    sped = ours.wall / times["smdl stochastic, 2 threads"].wall
    ceiling = 2 * ours.wall / times["two such selections at once"].wall
    goals = {
        "smdl stochastic": _passes(passes, 25, name == "paper"),
        "smdl stochastic, 2 threads": ("≥ 1.6 × one thread", verdict(sped >= 1.6, f"{sped:.2f}×")),
        "two such selections at once": ("", f"what two threads could gain: {ceiling:.2f}×"),
        "smdl auto": _passes(lazily, 8, name == "paper"),
        "NumPy, Algorithm 1": (f"smdl ≥ {AHEAD[name]} ×", verdict(faster >= AHEAD[name], f"{faster:.0f}×")),
    }
    for side in sides:
        of = times[side.name]
        value = float("nan")
        if of.picks is not None and side.name != "X @ v":
            value = smdl.evaluate(pool, objective, of.picks).value
        cells = (side.preparation, of.cpu, of.wall, of.cpu / ours.cpu, value)
        report.row(name, side.name, *cells, *goals.get(side.name, ("", "")), of.runs)


def _at_once(partitioned: Callable[..., smdl.Selection], threads: int) -> np.ndarray:
    """Run independent selections, one per thread, to see how much the cores of the machine can give."""
    with ThreadPoolExecutor(threads) as executor:
        selections = list(executor.map(lambda _: partitioned(threads=1), range(threads)))
    return selections[0].indices


def _passes(measured: float, most: int, wanted: bool) -> tuple[str, str]:
    """Return target and result in passes over the features; only the number if there is no target."""
    if not wanted:
        return "", f"{measured:.1f} × X @ v"
    return f"≤ {most} × X @ v", verdict(measured <= most, f"{measured:.1f}×")


def _quality(report: Report, arrays: Arrays, fewer: Arrays, seeds: int = 5) -> None:
    """Measure how much value the faster optimizers lose."""
    kinds: dict[str, dict[str, Any]] = {
        "stochastic": {"optimizer": "stochastic"},
        "lazy, partitioned": {"optimizer": "lazy", "partitions": PARTITIONS},
        "stochastic, partitioned": {"optimizer": "stochastic", "partitions": PARTITIONS},
    }
    heads = [f"{kind} / naive" for kind in kinds]
    report.table(
        f"Value divided by that of naive greedy, median (minimum) of {seeds} seeds",
        ("objective", "n", "naive", *heads),
    )
    cases = [(name, objective, arrays) for name, objective in WHOLE.items()]
    cases.append(("facility location", smdl.Objective(facility_location=1.0), fewer))
    cases.append(("feature coverage", smdl.Objective(feature_coverage=1.0), arrays))
    for name, objective, given in cases:
        pool = given.pool()
        naive = smdl.select(pool, objective, SIZE, optimizer="naive").value
        cells = []
        for options in kinds.values():
            shares = [smdl.select(pool, objective, SIZE, seed=s, **options).value / naive for s in range(seeds)]
            cells.append(f"{median(shares):.4f} ({min(shares):.4f})")
        report.row(name, len(pool), naive, *cells)


SECTIONS = {"minibatch": minibatch, "whole": whole, "peers": peers, "growth": growth, "start": start}


def conditions(report: Report) -> None:
    """Print the machine, the versions and the seed."""
    versions = {"python": platform.python_version(), "numpy": np.__version__, "torch": torch.__version__}
    versions |= {"numba": numba.__version__, "smdl": installed("smdl") or "?"}
    versions |= {package: installed(package) or "not installed" for package in PACKAGES}
    report.say("# Selection benchmark")
    report.say()
    report.say(f"- machine: {processor()}, {os.cpu_count()} cores, {platform.system()}")
    report.say(f"- versions: {', '.join(f'{name} {version}' for name, version in versions.items())}")
    report.say(f"- commit: {commit()}; seed {SEED}; features float32, d = {WIDTH}, C = {CLASSES}")
    report.say("- medians of sides that take turns; ratio = CPU time divided by that of smdl; compiling is not counted")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(SECTIONS), help="sections, separated by commas")
    parser.add_argument("--repeat", type=int, default=3, help="rounds of the slow sections; quick sections run more")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a check that everything runs")
    parser.add_argument("--out", type=Path, help="also write the output to this file")
    options = parser.parse_args()
    names = options.only.split(",")
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    torch.set_num_threads(1)
    report = Report()
    conditions(report)
    for name in names:
        SECTIONS[name](report, options.repeat, options.quick)
    if options.out:
        report.save(options.out)


if __name__ == "__main__":
    main()
