"""Measure how the cost of a batch depends on its parameters: `python benchmarks/complexity.py`

The supplement of the paper says that a batch costs m × r² × d (m partitions, r candidates per step, d features). This
script times Algorithm 1 in plain NumPy, the same algorithm in smdl, and the default of smdl, and varies r, d, m and the
batch size b. The sides take turns. It then fits the exponent x of time ~ quantity^x by least squares on the logarithms.
The number of distances in Algorithm 1 as written is m · r · b²/2 · d for the parts: linear in r, quadratic in b.
"""

import argparse
import math
from pathlib import Path

import numpy as np

import smdl
from data import Arrays, features
from plain import Scores, get_mini_batch
from timing import Report, Side, race

N, SIZE = 20_000, 50
COLUMNS = (
    "varied",
    "m",
    "r",
    "d",
    "b",
    "m·r²·d /10⁶",
    "NumPy, CPU ms",
    "smdl, Algorithm 1, CPU ms",
    "smdl default, CPU ms",
)
BASE = {"m": 10, "epsilon": 0.01, "d": 64, "b": SIZE}
SWEEPS = {
    "r": [{"epsilon": epsilon} for epsilon in (0.5, 0.1, 0.01, 1e-4, 1e-8)],
    "d": [{"d": d} for d in (16, 64, 256)],
    "m": [{"m": m} for m in (2, 5, 10, 20)],
    "b": [{"b": b} for b in (25, 50, 100)],
}


def pool_of(d: int) -> smdl.Pool:
    """Return a pool with d features, concatenated from several seeds if d is above 64."""
    wide = np.hstack([features(N, seed) for seed in range(math.ceil(d / 64))])[:, :d]
    return smdl.Pool(np.ascontiguousarray(wide), Arrays(N).probabilities)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/bench/complexity.md"))
    options = parser.parse_args()
    report = Report()
    report.table(f"b of {N} by 0.5 U + 0.5 R; r = ⌈N / (m·b) · ln(1/ε)⌉", COLUMNS)
    objective = smdl.Objective(uncertainty=0.5, redundancy=0.5)
    slopes = {}
    for varied, settings in SWEEPS.items():
        measured = []
        for setting in settings:
            at = {**BASE, **setting}
            m, epsilon, d, b = (at[name] for name in BASE)
            r = math.ceil(N / m / b * math.log(1 / epsilon))
            pool = pool_of(d)
            problem = objective.on(pool)
            plain = Scores(
                pool.features.numpy(), problem.modular, problem.coefficient("redundancy"), problem.geometry.metric.bound
            )
            sides = [
                Side("NumPy", lambda _, p=plain, at=(b, m, epsilon): get_mini_batch(p, *at, seed=0)),
                Side(
                    "Algorithm 1",
                    lambda _, p=pool, b=b, m=m, e=epsilon: smdl.select(
                        p, objective, b, optimizer="stochastic", partitions=m, epsilon=e, threads=1
                    ),
                ),
                Side("default", lambda _, p=pool, b=b: smdl.select(p, objective, b)),
            ]
            times = race(sides, options.repeat, budget=20.0)
            cpu = [times[side.name].cpu for side in sides]
            report.row(varied, m, r, d, b, m * r * r * d / 1e6, *cpu)
            measured.append(({"r": r, "d": d, "m": m, "b": b}[varied], *cpu))
        logs = np.log(np.array(measured, float))
        slopes[varied] = [np.polyfit(logs[:, 0], logs[:, 1 + k], 1)[0] for k in range(3)]
    claimed = {"r": 2.0, "d": 1.0, "m": "1, and −2 through r", "b": "−2 through r"}
    report.table(
        "time ~ quantity^x; r changes with m and b, except where r itself is varied",
        ("quantity", "x claimed", "x of NumPy", "x of smdl, Algorithm 1", "x of smdl default"),
    )
    for varied, found in slopes.items():
        report.row(varied, claimed[varied], *(f"{x:.2f}" for x in found))
    report.save(options.out)


if __name__ == "__main__":
    main()
