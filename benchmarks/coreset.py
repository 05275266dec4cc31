"""Test accuracy of a linear probe on 1 %, 5 % and 10 % of a pile of images, chosen by an objective or at random:

    python benchmarks/coreset.py --out coreset.jsonl [--data fashion-mnist,cifar10] [--piles plain,copies] [--seeds 5]

A seed draws another pile of about 10,000 training images, 4,000 test images, and all random choices. Features need no
labels: 64 random patches of the pile, whitened, and their negatives are the filters of one convolution (Coates and Ng,
2011). Its positive part is averaged over the four quarters of the image, and the first 64 principal components are
kept. The probe is logistic regression. All choices of one pile have the same features, probe and test images.
Each line of the file is one pile. An interrupted command is resumed by running it again.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import smdl
from smdl.common.environment import commit
from smdl.experiments.statistics import paired_difference
from smdl.training.config import DataConfig
from smdl.training.datasets.load import load
from smdl.training.evaluation import batches_of

FRACTIONS = (0.01, 0.05, 0.1)
PATCHES, FILTERS, SIDE, STRIDE, WIDTH = 10_000, 64, 6, 2, 64
DECAY = 10.0  # the probe minimises the sum of the losses + DECAY / 2 · ‖W‖²
PILES: dict[str, dict[str, Any]] = {
    "plain": {"train_size": 10_000},
    "copies": {"train_size": 10_000, "duplicates": 0.9},
    "imbalanced": {"train_size": 40_000, "imbalance": 50.0},
}
LOCATION = smdl.Objective(facility_location=1.0)
OBJECTIVES = {
    "facility_location": LOCATION,
    "redundancy": smdl.Objective(redundancy=1.0),
    "feature_coverage": smdl.Objective(feature_coverage=1.0),
    "log_determinant": smdl.Objective(log_determinant=1.0, kernel="gaussian"),
}

Picks = tuple[np.ndarray, Tensor]  # chosen rows, and the weights of their losses


def run(data: str, pile: str, seed: int) -> dict[str, Any]:
    """Return the test accuracy in % of every choice at every fraction, and the CPU seconds of each part."""
    start = time.process_time()
    splits = load(DataConfig(name=data, test_size=4000, augment=False, seed=seed, **PILES[pile]))
    (images, labels), (test_images, test_labels) = whole(splits.train), whole(splits.test)
    rows, test_rows = features(images, test_images, seed)
    seconds, accuracy = {"features": time.process_time() - start}, {}
    sizes = [round(fraction * len(rows)) for fraction in FRACTIONS]
    start = time.process_time()
    for name, picks in choices(rows, labels, sizes, seed):
        for fraction, (chosen, weights) in zip(FRACTIONS, picks, strict=True):
            probe = fitted(rows[chosen], labels[chosen], weights, len(splits.classes))
            accuracy[f"{name} {fraction}"] = tested(probe, test_rows, test_labels)
        seconds[name], start = time.process_time() - start, time.process_time()
    everything = fitted(rows, labels, torch.ones(len(rows)), len(splits.classes))
    accuracy["everything"] = tested(everything, test_rows, test_labels)
    return {"key": [data, pile, seed], "rows": len(rows), "accuracy": accuracy, "seconds": seconds}


def whole(dataset: Any) -> tuple[Tensor, Tensor]:
    """Return all inputs and labels of a dataset."""
    inputs, labels = zip(*(batch[:2] for batch in batches_of(dataset, 500)), strict=True)
    return torch.cat(inputs), torch.cat(labels)


def features(images: Tensor, test_images: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Return the principal components of pooled random convolutions, for the pile and for the test images."""
    filters = random_filters(images, torch.Generator().manual_seed(seed))

    def pooled(part: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(F.relu(F.conv2d(part, filters, stride=STRIDE)), 2).flatten(1)

    wide, test_wide = (torch.cat([pooled(part) for part in given.split(500)]) for given in (images, test_images))
    centred = wide - wide.mean(0)
    directions = torch.linalg.eigh(centred.T @ centred)[1][:, -WIDTH:]
    return centred @ directions, (test_wide - wide.mean(0)) @ directions


def random_filters(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return whitened random patches and their negatives, (2 · FILTERS, C, SIDE, SIDE)."""
    rows = torch.randint(len(images), (PATCHES,), generator=generator)
    y, x = torch.randint(images.shape[2] - SIDE + 1, (2, PATCHES), generator=generator)
    near = torch.arange(SIDE)
    vertical, horizontal = (y[:, None] + near)[:, :, None], (x[:, None] + near)[:, None, :]
    patches = images[rows[:, None, None], :, vertical, horizontal].flatten(1)  # (PATCHES, SIDE · SIDE · C)
    patches = patches - patches.mean(1, keepdim=True)
    patches = patches / (patches.square().mean(1, keepdim=True) + 0.1).sqrt()
    values, vectors = torch.linalg.eigh(patches.T @ patches / PATCHES)
    whitening = vectors / (values + 0.1).sqrt() @ vectors.T
    filters = F.normalize(patches[:FILTERS] @ whitening, dim=1) @ whitening
    filters = filters.view(FILTERS, SIDE, SIDE, -1).permute(0, 3, 1, 2)
    return torch.cat([filters, -filters])


def choices(rows: Tensor, labels: Tensor, sizes: list[int], seed: int) -> Iterator[tuple[str, list[Picks]]]:
    """Yield the name of each way of choosing, and its picks for each size. The first picks of a greedy selection are
    the selection of the smaller size."""
    rng = np.random.default_rng(seed)
    random, balanced = rng.permutation(len(rows)), in_turn(rng.permutation(len(rows)), labels)
    yield "random", [unweighted(random[:size]) for size in sizes]
    yield "balanced random", [unweighted(balanced[:size]) for size in sizes]
    halves = torch.cat([rows.clamp(min=0), (-rows).clamp(min=0)], dim=1)  # feature_coverage needs features ≥ 0
    for name, objective in OBJECTIVES.items():
        given = halves if name == "feature_coverage" else rows
        chosen = smdl.select(given.numpy(), objective, max(sizes), optimizer="lazy", seed=seed)
        yield name, [unweighted(chosen.indices[:size]) for size in sizes]
        if name == "facility_location":
            parts = [chosen.part(slice(size)) for size in sizes]
            yield f"{name}, weighted", [(part.indices, share_weights(part.shares)) for part in parts]
    order = np.empty(0, int)
    for label in labels.unique():
        members = np.flatnonzero(labels.numpy() == int(label))
        chosen = smdl.select(
            rows[members].numpy(), LOCATION, min(len(members), max(sizes)), optimizer="lazy", seed=seed
        )
        order = np.append(order, members[chosen.indices])
    order = in_turn(order, labels)
    yield "facility_location, per class", [unweighted(order[:size]) for size in sizes]


def in_turn(order: np.ndarray, labels: Tensor) -> np.ndarray:
    """Return the rows of this order so that one row of each class follows the other."""
    classes = labels.numpy()[order]
    rank = np.empty(len(order), int)
    for label in np.unique(classes):
        rank[classes == label] = np.arange((classes == label).sum())
    return order[np.argsort(rank, kind="stable")]


def unweighted(chosen: np.ndarray) -> Picks:
    return chosen, torch.ones(len(chosen))


def share_weights(shares: np.ndarray | None) -> Tensor:
    """Return weights with mean 1 from the number of rows that each pick represents."""
    assert shares is not None
    return torch.from_numpy(shares / shares.mean()).float()


def fitted(rows: Tensor, labels: Tensor, weights: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (scale, W, b) of a logistic regression on the rows, each column divided by its deviation."""
    scale = rows.std(0).clamp(min=1e-6)
    weight = torch.zeros(rows.shape[1], classes, requires_grad=True)
    bias = torch.zeros(classes, requires_grad=True)
    optimizer = torch.optim.LBFGS([weight, bias], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        losses = F.cross_entropy(rows / scale @ weight + bias, labels, reduction="none")
        total = (losses @ weights + DECAY / 2 * weight.square().sum()) / len(rows)
        total.backward()
        return total

    optimizer.step(loss)
    return scale, weight.detach(), bias.detach()


def tested(probe: tuple[Tensor, Tensor, Tensor], rows: Tensor, labels: Tensor) -> float:
    scale, weight, bias = probe
    return 100 * float(((rows / scale @ weight + bias).argmax(1) == labels).float().mean())


def show(lines: list[dict[str, Any]]) -> None:
    """Print one table per data set and pile: accuracy of random choice, then differences to it."""
    print(f"Commit {', '.join(sorted({line['commit'] for line in lines}))}.")
    for data, pile in dict.fromkeys(tuple(line["key"][:2]) for line in lines):
        these = [line for line in lines if line["key"][:2] == [data, pile]]
        found = {name: [line["accuracy"][name] for line in these] for name in these[0]["accuracy"]}
        print(f"\n{data}, {pile}: {len(these)} piles of {median(line['rows'] for line in these):.0f} rows,", end=" ")
        print(f"accuracy on everything {fmean(found['everything']):.1f} %\n")
        print(f"| choice | {' | '.join(f'{fraction:.0%}' for fraction in FRACTIONS)} |\n|{' --- |' * 4}")
        for name in dict.fromkeys(key.rsplit(" ", 1)[0] for key in found if key != "everything"):
            cells = [shown(found, name, fraction) for fraction in FRACTIONS]
            print(f"| {name} | {' | '.join(cells)} |")
    for name in lines[0]["seconds"]:
        print(f"CPU seconds, {name}: {median(line['seconds'][name] for line in lines):.2f}")


def shown(found: dict[str, list[float]], name: str, fraction: float) -> str:
    """Return the mean accuracy; or the mean difference to random choice with its 95 % interval, bold without a 0."""
    values, baseline = found[f"{name} {fraction}"], found[f"random {fraction}"]
    if name == "random":
        return f"{fmean(values):.1f} %"
    gap = paired_difference(values, baseline)
    assert gap.mean is not None
    cell = f"{gap.mean:+.1f}" + ("" if gap.half is None else f" ± {gap.half:.1f}")
    return f"**{cell}**" if gap.half is not None and abs(gap.mean) > gap.half else cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="fashion-mnist,cifar10")
    parser.add_argument("--piles", default=",".join(PILES))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done, now = {tuple(line["key"]) for line in lines}, commit()  # now: the checkout may change during the runs
    for seed in range(options.seeds):
        for pile in options.piles.split(","):
            for data in options.data.split(","):
                if (data, pile, seed) not in done:
                    lines.append({**run(data, pile, seed), "commit": now})
                    with options.out.open("a") as file:
                        print(json.dumps(lines[-1]), file=file)
    show(sorted(lines, key=lambda line: line["key"]))


if __name__ == "__main__":
    main()
