"""How many random samples and candidates does a pick of facility location need? `python benchmarks/subset.py`

Above 65,536 rows, facility location is measured on a random sample and picks among random candidates. This chooses 500
of about 50,000 rows with other numbers of both, and prints the value on rows that the picks were not chosen by: as a
share of what all rows as candidates and 50 samples per pick gain over a random choice.
"""

import argparse
import os
from statistics import fmean
from unittest import mock

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")

import numpy as np
import torch

import coreset
import data
import smdl
from smdl.engine.greedy import subset
from smdl.engine.terms.facility_location import FacilityLocation
from smdl.training.config import DataConfig
from smdl.training.datasets.load import load
from timing import commit, processor

ROWS, SIZE, TEST = 50_000, 500, 8_000
#: Candidates per pick, samples per pick.
GRID = ((8, 8), (4, 64), (8, 32), (16, 16), (32, 8), (64, 4), (16, 32), (32, 16), (32, 32), (50, 20), (50, 50))


def rows_of(name: str) -> np.ndarray:
    if name == "clusters":
        return data.features(ROWS)
    splits = load(DataConfig(name=name, train_size=ROWS, test_size=1000, augment=False))
    images, others = (coreset.whole(part)[0] for part in (splits.train, splits.test))
    return coreset.features(images, others, seed=0)[0].numpy()


class Rated:
    """Rows to choose from, and other rows on which a choice is rated."""

    def __init__(self, rows: np.ndarray, seed: int) -> None:
        order = np.random.default_rng(seed).permutation(len(rows))
        self.rows, self.others, self.seed = rows, torch.from_numpy(order[:TEST]), seed
        self.among = order[TEST:]
        term = smdl.Objective(facility_location=1.0, sample=SIZE).on(smdl.Pool(rows)).set_terms["facility_location"]
        assert isinstance(term, FacilityLocation)
        self.term = term

    def value(self, chosen: np.ndarray) -> float:
        return self.term.mean_coverage(torch.from_numpy(chosen), self.others)

    def greedy(self, candidates: int, samples: int) -> float:
        objective = smdl.Objective(facility_location=1.0, sample=samples * SIZE)
        with mock.patch.multiple(subset, FEWEST=candidates * SIZE, PER_PICK=candidates):
            chosen = smdl.select(self.rows, objective, SIZE, optimizer="subset", seed=self.seed, among=self.among)
        return self.value(chosen.indices)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data", nargs="+", default=["clusters", "fashion-mnist", "cifar10"])
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    table: dict[str, dict[str, str]] = {"random": {}, "all, 50": {}} | {f"{c}, {s}": {} for c, s in GRID}
    for name in options.data:
        rated = [Rated(rows, seed) for rows in [rows_of(name)] for seed in range(options.seeds)]
        random = fmean(each.value(each.among[-SIZE:]) for each in rated)
        best = fmean(each.greedy(ROWS, 50) for each in rated)
        table["random"][name], table["all, 50"][name] = f"{random:.4f}", f"{best:.4f}"
        for candidates, samples in GRID:
            found = fmean(each.greedy(candidates, samples) for each in rated)
            table[f"{candidates}, {samples}"][name] = f"{(found - random) / (best - random):.2f}"
    print(f"commit {commit()}, {processor()}, {options.seeds} seeds\n")
    print(f"| candidates, samples per pick | {' | '.join(options.data)} |\n|{' --- |' * (1 + len(options.data))}")
    for label, found in table.items():
        print(f"| {label} | {' | '.join(found[name] for name in options.data)} |")


if __name__ == "__main__":
    main()
