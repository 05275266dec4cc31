"""How many injected label errors `loader.suspects()` finds, beside cleanlab:

    python benchmarks/suspects.py --out suspects.jsonl [--data digits,fashion-mnist] [--noise 0.05,0.4] [--seeds 3]

Four lists are compared, for the same labels: `loader.suspects()` after the first epoch that ends beyond a third of the
run, and after the run; `find_label_issues` of cleanlab with the probabilities of the same trained model; and the same
with out-of-sample probabilities, from three further models of the same form, each trained on two thirds of the samples
for as many epochs (cross-validation, as cleanlab advises).
Each line of the file is one run. An interrupted command is resumed by running it again.
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
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.common.environment import commit
from smdl.experiments.arms import merged, with_overrides
from smdl.scoring.model_access import eval_mode
from smdl.training.build import make_optimizer
from smdl.training.config import TrainConfig
from smdl.training.datasets.load import load
from smdl.training.evaluation import batches_of
from smdl.training.loop import TrainingRun
from smdl.training.models import make_model
from smdl.training.schedule import rate

BASE = {
    "data": {"test_size": 500, "resolution": 16},
    "model": {"name": "resnet8", "width": 0.5},
    "schedule": {"name": "cosine", "warmup": 0.1},
    "method": "recommended",
    "batch_size": 32,
    "steps": 600,
    "threads": 1,
    "train_evaluation": 1,
}
TRAIN_SIZES = {"digits": None, "fashion-mnist": 4000, "cifar10": 4000}
FOLDS = 3
LISTS = {
    "early": "`suspects`, a third of the run",
    "suspects": "`suspects`, at the end",
    "in_sample": "cleanlab, same model",
    "cross": "cleanlab, cross-validated",
}


def run(data: str, noise: float, seed: int) -> dict[str, Any]:
    """Train one model. Return, for each list, [precision at k = number of errors, precision, recall], and seconds."""
    values = {"name": data, "train_size": TRAIN_SIZES[data], "label_noise": noise, "seed": seed}
    config = with_overrides(TrainConfig(), merged(BASE, {"data": values, "seed": seed}))
    training = TrainingRun(config)
    loader, (images, labels) = training.loader, whole(training.splits.train)
    clean = load(with_overrides(TrainConfig(), merged(BASE, {"data": {**values, "label_noise": 0.0}})).data)
    wrong = (labels != whole(clean.train)[1]).numpy()
    torch.manual_seed(seed)
    found, noise_found, clock, seconds = {}, 0.0, Clock(), {"training": 0.0}
    while training.epoch < training.epochs:
        for _ in training.steps():
            pass
        training.epoch += 1
        seconds["training"] += clock()
        name = "suspects" if training.epoch == training.epochs else "early"
        if name not in found and 3 * training.epoch >= training.epochs:
            listed = loader.suspects()
            seconds[name], noise_found = clock(), listed.noise
            found[name] = judged(wrong, loader.suspects(int(wrong.sum())).indices, listed.indices)
            clock()
    for name in ("in_sample", "cross"):
        fresh = name == "in_sample"
        probabilities = predicted(training.model, images) if fresh else cross_validated(config, images, labels)
        given = labels.numpy()
        ranking = np.argsort(get_label_quality_scores(given, probabilities), kind="stable")
        issues = find_label_issues(given, probabilities, return_indices_ranked_by="self_confidence", n_jobs=1)
        found[name] = judged(wrong, ranking, issues)
        seconds[name] = clock()
    error = training.evaluate()["test_error"]
    shown = {"estimated": noise_found, "test_error": error, "errors": int(wrong.sum())}
    return {"key": [data, noise, seed], **found, "seconds": seconds, **shown}


class Clock:
    """Returns the CPU seconds since its last call."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def __call__(self) -> float:
        before, self.last = self.last, time.process_time()
        return self.last - before


def whole(dataset: Any) -> tuple[Tensor, Tensor]:
    """Return all inputs and labels of a dataset, without augmentation."""
    inputs, labels = zip(*(batch[:2] for batch in batches_of(dataset, 500)), strict=True)
    return torch.cat(inputs), torch.cat(labels)


def judged(wrong: np.ndarray, ranking: np.ndarray, listed: np.ndarray) -> list[float]:
    """Return the precision of the first k of a ranking, k the number of errors; precision and recall of a list."""
    errors = int(wrong.sum())
    hits = int(wrong[listed].sum())
    return [float(wrong[ranking[:errors]].mean()), hits / max(len(listed), 1), hits / errors]


def predicted(model: nn.Module, images: Tensor) -> np.ndarray:
    with eval_mode(model):
        return torch.cat([model(part).softmax(dim=1) for part in images.split(500)]).double().numpy()


def cross_validated(config: TrainConfig, images: Tensor, labels: Tensor) -> np.ndarray:
    """Return the probabilities of each sample by a model that was not trained on it, (n, C)."""
    classes, rng = int(labels.max()) + 1, np.random.default_rng(config.seed)
    probabilities = np.zeros((len(labels), classes))
    for held in np.array_split(rng.permutation(len(labels)), FOLDS):
        rest = np.setdiff1d(np.arange(len(labels)), held)
        model = make_model(config.model, tuple(images.shape[1:]), classes, config.seed)
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimizer = make_optimizer(config.optimizer, model.parameters())
        assert config.steps is not None
        steps = config.steps * len(rest) // len(labels)
        for step, rows in enumerate(shuffled(rest, config.batch_size, steps, rng)):
            for group in optimizer.param_groups:
                group["lr"] = config.optimizer.lr * rate(config.schedule, step / steps)
            optimizer.zero_grad()
            F.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        probabilities[held] = predicted(model, images[held])
    return probabilities


def shuffled(rows: np.ndarray, size: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield `steps` batches, epoch after epoch."""
    done = 0
    while done < steps:
        order = rng.permutation(rows)
        for start in range(0, len(rows) - size + 1, size):
            if done < steps:
                yield order[start : start + size]
            done += 1


def show(lines: list[dict[str, Any]]) -> None:
    commits, seeds = ({line[name] for line in lines} for name in ("commit", "seed"))
    print(f"\nCommit {', '.join(sorted(map(str, commits)))}; seeds {', '.join(map(str, sorted(seeds)))}.")
    print("Precision of the first k, k the number of errors / precision, recall of the list without `count`; in %\n")
    columns = ("data", "noise", *LISTS.values(), "estimated noise, %", "test error, %")
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for data, noise in dict.fromkeys((line["data"], line["noise"]) for line in lines):
        these = [line for line in lines if (line["data"], line["noise"]) == (data, noise)]
        cells = []
        for name in LISTS:
            first, precision, recall = (100 * fmean(column) for column in zip(*(o[name] for o in these), strict=True))
            cells.append(f"{first:.0f} / {precision:.0f}, {recall:.0f}")
        cells += [f"{100 * fmean(line[name] for line in these):.1f}" for name in ("estimated", "test_error")]
        print(f"| {data} | {100 * noise:.0f} % | {' | '.join(cells)} |")
    print()
    for name in ("training", *LISTS):
        print(f"CPU seconds, {name}: {median(line['seconds'][name] for line in lines):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", default="digits,fashion-mnist")
    parser.add_argument("--noise", default="0.05,0.1,0.2,0.4")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done, now = {tuple(line["key"]) for line in lines}, commit()  # now: the checkout may change during the runs
    for seed in range(options.seeds):
        for data in options.data.split(","):
            for noise in map(float, options.noise.split(",")):
                if (data, noise, seed) not in done:
                    lines.append({**run(data, noise, seed), "commit": now})
                    with options.out.open("a") as file:
                        print(json.dumps(lines[-1]), file=file)
    for line in lines:
        line["data"], line["noise"], line["seed"] = line["key"]
    show(sorted(lines, key=lambda line: line["key"]))


if __name__ == "__main__":
    main()
