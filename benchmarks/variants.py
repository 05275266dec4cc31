"""Variants of the method `observed`, in every regime, on a validation split: what the defaults were chosen by.

    python benchmarks/variants.py --out variants.jsonl [--data digits] [--variants 'lag 0,lag 8'] [--seeds 3]

Each line of the file is one run: accuracy on the validation split (never on the test set) and CPU seconds of training.
An interrupted command is resumed by running it again. The table shows points of accuracy minus uniform's, paired by
seed, with 95 % intervals, at equal steps, and the ratio of CPU seconds to uniform's.
"""

import argparse
import json
import math
import os
import time
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.stats import t as student

import smdl
from smdl.experiments.arms import merged, with_overrides
from smdl.loading.strategies.strategy import drawn
from smdl.loading.strategies.submodular import Submodular
from smdl.training.config import TrainConfig
from smdl.training.loop import TrainingRun

BASE = {
    "data": {"validation": 0.2, "train_size": 5000, "test_size": 500, "resolution": 16},
    "model": {"name": "resnet8", "width": 0.5},
    "schedule": {"name": "cosine", "warmup": 0.1},
    "batch_size": 32,
    "steps": 600,
    "threads": 1,
    "train_evaluation": 1,
}
DIGITS = {"data": {"train_size": None, "test_size": None, "resolution": None}, "steps": 300}
REGIMES = {
    "clean": {},
    "long tail 50": {"data": {"imbalance": 50, "train_size": 10_000}},
    "hidden tail 25": {"data": {"hidden_imbalance": 25, "train_size": 10_000}},
    "duplicates 90 %": {"data": {"duplicates": 0.9}},
    "noise 20 %": {"data": {"label_noise": 0.2}},
    "tiny": {"data": {"train_size": 750}},
}


class PartlyUniform(Submodular):
    """A quarter of the batch is drawn at random, the rest is selected."""

    def select(self, pool: Any, remaining, batch_size, rng):
        chosen = super().select(pool, remaining, batch_size - batch_size // 4, rng)
        rest = np.setdiff1d(remaining, chosen.indices)
        return drawn(np.concatenate([chosen.indices, rng.choice(rest, batch_size - len(chosen), replace=False)]))


class WithinClasses(Submodular):
    """Facility location within each class; every class keeps its share of the pool."""

    def select(self, pool: Any, remaining, batch_size, rng):
        labels, chosen = pool.labels.numpy()[remaining], []
        order = rng.permutation(len(remaining))
        quotas = np.bincount(labels[order[:batch_size]], minlength=labels.max() + 1)
        for label, quota in enumerate(quotas):
            if quota:
                rows = remaining[labels == label]
                chosen.append(smdl.select(pool, self.objective, int(quota), among=rows, seed=0).on_host().indices)
        return drawn(np.concatenate(chosen))


class Proportional(smdl.Strategy):
    """Draws without replacement, with probability proportional to a score."""

    needs_scores = True

    def score(self, pool: smdl.Pool) -> torch.Tensor:
        raise NotImplementedError

    def select(self, pool: Any, remaining, batch_size, rng):
        scores = self.score(pool).double().numpy()[remaining] + 1e-6
        return drawn(rng.choice(remaining, batch_size, replace=False, p=scores / scores.sum()))


class LossDraw(Proportional):
    def score(self, pool: smdl.Pool) -> torch.Tensor:
        assert pool.losses is not None
        return pool.losses


class NormDraw(Proportional):
    """By the norm of the last-layer gradient, ‖e‖ · √(‖f‖² + 1)."""

    def score(self, pool: smdl.Pool) -> torch.Tensor:
        return pool.errors.norm(dim=1) * (pool.features.square().sum(dim=1) + 1).sqrt()


class FittedPool(Submodular):
    """The pool shrinks to the batch as the mean loss falls from half of ln C to 0."""

    def select(self, pool: Any, remaining, batch_size, rng):
        share = min(1.0, float(pool.losses.mean()) / (0.5 * math.log(pool.classes)))
        kept = batch_size + math.ceil(share * (len(remaining) - batch_size))
        return super().select(pool, remaining[:kept], batch_size, rng)


def observed(method: str = "observed", **options: Any) -> dict[str, Any]:
    return {"method": method, "candidates": {"source": "observed", **options}}


VARIANTS = {
    "uniform": {"method": "uniform"},
    "balanced": {"method": "balanced"},
    "fresh": {"method": "fresh"},
    "observed": {"method": "observed"},
    "lag 0": observed(lag=0),
    "lag 1": observed(lag=1),
    "lag 2": observed(lag=2),
    "lag 4": observed(lag=4),
    "lag 8": observed(lag=8),
    "factor 2": observed(factor=2),
    "factor 4": observed(factor=4),
    "factor 6": observed(factor=6),
    "start 2": observed(start=2),
    "rescore 0.5": observed(rescore=0.5),
    "quarter uniform": observed("variants:PartlyUniform"),
    "within classes": observed("variants:WithinClasses"),
    "loss draw": observed("variants:LossDraw"),
    "norm draw": observed("variants:NormDraw"),
    "fitted pool": observed("variants:FittedPool"),
}


def run(task: tuple[list[Any], dict[str, Any]]) -> dict[str, Any]:
    """Train one run; return its key, its validation accuracy in points and the CPU seconds of training."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    key, values = task
    training = TrainingRun(with_overrides(TrainConfig(), values))
    torch.manual_seed(training.config.seed)
    started = time.process_time()
    while training.epoch < training.epochs:
        for _ in training.steps():
            pass
        training.epoch += 1
    seconds = time.process_time() - started
    error = training.evaluate()["validation_error"]
    assert error is not None
    return {"key": key, "accuracy": 100 * (1 - error), "seconds": seconds}


def tasks(names: list[str], regimes: list[str], data: str, root: str | None, seeds: int, done: set[tuple]) -> list:
    found = []
    for seed in range(seeds):
        for regime in regimes:
            for name in names:
                key = [data, regime, name, seed]
                if tuple(key) not in done:
                    values = merged(merged(merged(BASE, REGIMES[regime]), VARIANTS[name]), {"seed": seed})
                    values = merged(values, DIGITS if data == "digits" else {})
                    found.append((key, merged(values, {"data": {"name": data, "root": root}})))
    return found


def show(lines: list[dict[str, Any]]) -> None:
    table: dict[tuple, dict[int, dict[str, Any]]] = defaultdict(dict)
    for line in lines:
        data, regime, name, seed = line["key"]
        table[data, regime, name][seed] = line
    for data, regime in dict.fromkeys(key[:2] for key in table):
        base = table.get((data, regime, "uniform"), {})
        if not base:
            continue
        print(f"\n{data}, {regime}: uniform {fmean(one['accuracy'] for one in base.values()):.1f} %")
        for other, name in ((key, key[2]) for key in table if key[:2] == (data, regime) and key[2] != "uniform"):
            seeds = sorted(set(base) & set(table[other]))
            gaps = [table[other][seed]["accuracy"] - base[seed]["accuracy"] for seed in seeds]
            ratio = median(table[other][seed]["seconds"] / base[seed]["seconds"] for seed in seeds)
            half = student.ppf(0.975, len(gaps) - 1) * stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
            print(f"  {name:18s} {fmean(gaps):+6.2f} ± {half:5.2f}  ({len(gaps)} seeds, {ratio:.2f} × the CPU time)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--root")
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--regimes", default=",".join(REGIMES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    names = list(dict.fromkeys(["uniform", *options.variants.split(",")]))
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    due = tasks(
        names,
        options.regimes.split(","),
        options.data,
        options.root,
        options.seeds,
        {tuple(line["key"]) for line in lines},
    )
    print(f"{len(lines)} runs done, {len(due)} to do", flush=True)
    with ProcessPoolExecutor(options.jobs) as pool, options.out.open("a") as file:
        for line in pool.map(run, due):
            lines.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
    show(lines)


if __name__ == "__main__":
    main()
