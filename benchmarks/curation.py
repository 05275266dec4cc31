"""Near-copies in real data, and what leaving them out is worth on a task.

    python benchmarks/labelling_data.py gtsrb banking77 hate_speech --data DIR --out FEATURES
    python benchmarks/curation.py tracks texts task --features FEATURES --data DIR

tracks   traffic signs filmed in tracks of 30 frames: what each threshold of smdl.deduplicate keeps of them
texts    near-copies within the training texts, and of them in the test texts, by MiniLM embeddings
task     the accuracy on the test rows of a logistic regression that is trained on k rows of 70 % of the pool, which
         are drawn per seed: random rows, facility location, and both after smdl.deduplicate(0.95). All rows of k have
         their labels. The difference to random rows is paired by seed, with a t interval of 95 %
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
import torch
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize

import smdl

THRESHOLDS = (0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99)
SIMILARITY, POOL = 0.95, 0.7
TASKS, SIZES = ("gtsrb", "banking77", "hate_speech"), (200, 1000)
METHODS = ("random", "facility location", "dedup, random", "dedup, facility location")


def load(folder: Path, task: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"{task}.npz") as found:
        return {name: found[name] for name in found.files}


def drawn(rows: int, stream: int = 1, most: int = 10_000) -> np.ndarray:
    """Return which rows of the data labelling_data.py has kept, in its order."""
    return np.random.default_rng([0, stream]).permutation(rows)[:most]


def tracks(features: Path, data: Path) -> None:
    with np.load(data / "gtsrb/gtsrb.npz") as found:
        track = found["train_tracks"][drawn(len(found["train_tracks"]))]
    values, count = load(features, "gtsrb")["train"], len(np.unique(track))
    search = smdl.deduplicate(values, min(THRESHOLDS))
    print(f"tracks: {len(values):,} frames of {count} tracks, recall {search.recall:.4f}")
    print("| similarity | frames kept | per track | tracks without a kept frame | copies of another track |")
    print("| --- " * 5 + "|")
    for similarity in THRESHOLDS:
        found = search.at(similarity)
        lost = count - len(np.unique(track[found.kept]))
        foreign = int((track[found.copy_of] != track).sum())
        per_track = len(found.kept) / count
        print(f"| {similarity} | {len(found.kept):,} | {per_track:.1f} | {lost} | {foreign:,} |", flush=True)


def texts(features: Path, data: Path) -> None:
    print("| texts | similarity | train rows | near-copies | near-copies of test rows |")
    print("| --- " * 5 + "|")
    shown = []
    for task, file, column in (("banking77", "banking77_train", "text"), ("hate_speech", "hate_speech", "tweet")):
        parts = load(features, task)
        with (data / f"text/{file}.csv").open(newline="") as lines:
            every = [line[column] for line in csv.DictReader(lines)]
        order = (
            np.arange(len(every)) if task == "banking77" else np.random.default_rng(0).permutation(len(every))[3000:]
        )
        words = [every[order[i]] for i in drawn(len(order))]
        search = smdl.deduplicate(parts["train"], 0.8)
        leaks = smdl.deduplicate(parts["train"], 0.8, against=parts["test"])
        for similarity in (0.8, 0.9, 0.95, 0.99):
            found, leaked = search.at(similarity), int((leaks.at(similarity).against >= 0).sum())
            rows = f"{len(parts['train']):,} | {len(found) - len(found.kept):,} | {leaked:,}"
            print(f"| {task} | {similarity} | {rows} |", flush=True)
        for similarity in (0.85, 0.9, 0.95, 0.99):
            above, _ = search.at(similarity).pairs(4)
            shown += [f"{task}, {similarity}: {words[a][:90]!r} ~ {words[b][:90]!r}" for a, b in above.tolist()]
    print(*shown, sep="\n")


def choose(method: str, values: np.ndarray, size: int, seed: int) -> np.ndarray:
    kept = smdl.deduplicate(values, SIMILARITY).kept if method.startswith("dedup") else np.arange(len(values))
    size = min(size, len(kept))
    if method.endswith("random"):
        return np.random.default_rng([seed, 7]).choice(kept, size, replace=False)
    return kept[smdl.select(values[kept], size=size, seed=seed).indices]


def task(features: Path, seeds: int) -> None:
    print("| task | rows | method | accuracy, % | against random rows |")
    print("| --- " * 5 + "|")
    for name in TASKS:
        parts = load(features, name)
        train, test = (np.asarray(normalize(parts[part])) for part in ("train", "test"))
        for size in SIZES:
            found: dict[str, list[float]] = {method: [] for method in METHODS}
            for seed in range(seeds):
                rows = np.random.default_rng([seed, 3]).permutation(len(train))[: int(POOL * len(train))]
                for method in METHODS:
                    picked = rows[choose(method, train[rows], size, seed)]
                    model = LogisticRegression(C=30, max_iter=300).fit(train[picked], parts["train_labels"][picked])
                    found[method].append(100 * float(model.score(test, parts["test_labels"])))
            for method, scores in found.items():
                gap = np.subtract(scores, found["random"])
                half = stats.t.ppf(0.975, seeds - 1) * gap.std(ddof=1) / seeds**0.5
                against = "" if method == "random" else f"{gap.mean():+.1f} ± {half:.1f}"
                print(f"| {name} | {size:,} | {method} | {np.mean(scores):.1f} | {against} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=("tracks", "texts", "task"))
    parser.add_argument("--features", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*converge.*")
    for part in options.parts:
        if part == "task":
            task(options.features, options.seeds)
        else:
            {"tracks": tracks, "texts": texts}[part](options.features, options.data)


if __name__ == "__main__":
    main()
