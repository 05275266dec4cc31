"""Which similarity for the first labels? Facility location with other distances, paired with the euclidean one.

    python benchmarks/labelling_kernels.py FEATURES/digits.npz FEATURES/letter.npz ... [--seeds 5]

Files are those of labelling_data.py. Piles of at most 2,000 rows; 1, 2 and 5 labels per class at once, without a model.
The width of a Gaussian is a share of the median distance of 64 rows. Prints the mean difference in accuracy to the
euclidean distance, in points, and its standard error.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from labelling import load
from smdl.engine.objective import Objective
from smdl.engine.pool import Pool
from smdl.engine.selection import select
from smdl.labelling.probe import STRENGTH, Probe
from smdl.labelling.simulation import draw

SHARES, PER_CLASS, PILE = (0.25, 0.35, 0.5, 0.7, 1.0), (1, 2, 5), 2000


def median_distance(features: np.ndarray) -> float:
    some = features[:: max(1, len(features) // 64)][:64].astype(np.float64)
    gaps = np.sqrt(np.square(some[:, None] - some[None]).sum(axis=-1))[np.triu_indices(len(some), 1)]
    return float(np.median(gaps[gaps > 0]))


def kernels(features: np.ndarray) -> dict[str, dict[str, Any]]:
    middle = median_distance(features)
    gaussians = {f"gaussian {share}": {"distance": "gaussian", "sigma": share * middle} for share in SHARES}
    return {"euclidean": {}, "cosine": {"distance": "cosine"}, "correlation": {"distance": "correlation"}, **gaussians}


def accuracies(path: Path, seed: int) -> dict[str, list[float]]:
    """Return the accuracies, in %, after 1, 2 and 5 labels per class of each kernel."""
    features, targets = load(path.parent, path.stem)
    data, classes = draw(features, targets, 100 + seed, PILE), int(targets.max()) + 1
    pool, probe = Pool(data.features), Probe(None, np.concatenate([data.features, data.test]))
    at_test = np.arange(len(data.features), len(data.features) + len(data.test))
    found: dict[str, list[float]] = {}
    for name, options in kernels(data.features).items():
        chosen = select(pool, Objective(facility_location=1.0, **options), PER_CLASS[-1] * classes).on_host().indices
        found[name] = []
        for rows in (chosen[: count * classes] for count in PER_CLASS):
            guessed = probe.fit(rows, data.targets[rows], STRENGTH).probabilities(at_test).argmax(axis=1)
            found[name].append(100 * float((guessed == data.test_targets).mean()))
    return found


def main() -> None:
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for path in options.files:
        runs = [accuracies(path, seed) for seed in range(options.seeds)]
        for name in runs[0]:
            gaps = np.array([np.subtract(run[name], run["euclidean"]) for run in runs])
            error = gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
            cells = ", ".join(f"{gap:+.1f} ± {each:.1f}" for gap, each in zip(gaps.mean(axis=0), error, strict=True))
            print(f"{path.stem} {name}: {cells}", flush=True)


if __name__ == "__main__":
    main()
