"""What `smdl.balanced_softmax` gains on a long tail, beside balanced batches and a refitted last layer, at equal steps:

    python benchmarks/tail_loss.py cifar10 --data ../shared/data --out tail.jsonl [--seeds 8]

The runs are those of the setting in benchmarks/oracle.py, with the regime long-tail. A class of the training set has up
to 20 times the samples of another; all classes of the test set are alike. Each line of the file is one run. An
interrupted command is resumed by running it again.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor, nn

import smdl
from oracle import SETTINGS
from smdl.common.environment import commit
from smdl.scoring.reading import stored_labels
from smdl.training.config import DataConfig, ModelConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from smdl.training.loop import TrainingRun

#: The method, whether the loss is balanced softmax, and how the last layer is fitted again, by the name of the arm.
ARMS = {
    "uniform": ("uniform", False, None),
    "balanced": ("balanced", False, None),
    "uniform+refit": ("uniform", False, "classes"),
    "uniform, balanced softmax": ("uniform", True, None),
}


class BalancedSoftmax(nn.CrossEntropyLoss):
    """The loss with the class sizes of one training set."""

    def __init__(self, counts: Tensor) -> None:
        super().__init__()
        self.counts = counts

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002, the names of the parent
        return smdl.balanced_softmax(input, target, self.counts)


def run(setting: str, root: str, arm: str, seed: int) -> float:
    """Train once. Return the accuracy on the test set, in %."""
    method, softmax, refit = ARMS[arm]
    chosen = SETTINGS[setting]
    data = {"name": setting, "root": root, "imbalance": 20, "seed": seed, **chosen["data"]}
    training = TrainingRun(
        TrainConfig(
            data=DataConfig(**data),
            model=ModelConfig("resnet8"),
            optimizer=OptimizerConfig(lr=0.1),
            schedule=ScheduleConfig("cosine"),
            method=method,
            steps=chosen["steps"],
            seed=seed,
            threads=1,
            train_evaluation=0,
            refit=refit,
        )
    )
    if softmax:
        labels = stored_labels(training.splits.train)
        assert labels is not None
        training.loss = BalancedSoftmax(torch.from_numpy(np.bincount(labels)))
    while training.epoch < training.epochs:
        for _ in training.steps():
            pass
        training.epoch += 1
    if refit:
        training.refit()
    error = training.evaluate()["test_error"]
    assert error is not None
    return 100 * (1 - error)


def main() -> None:
    """Train what is not trained yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--data", required=True, help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first_seed", type=int, default=20)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    found, now = {tuple(line["key"]): line["accuracy"] for line in lines}, commit()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    for seed in seeds:
        for arm in ARMS:
            key = (options.setting, arm, seed)
            if key not in found:
                found[key] = run(options.setting, options.data, arm, seed)
                with options.out.open("a") as file:
                    print(json.dumps({"key": key, "accuracy": found[key], "commit": now}), file=file, flush=True)
    print(f"{options.setting}, long tail 20 ×, commit {now}, seeds {seeds.start} to {seeds.stop - 1}; accuracy, %\n")
    half = t.ppf(0.975, len(seeds) - 1) / len(seeds) ** 0.5
    print("| method | accuracy | against uniform |\n| --- | --- | --- |")
    for arm in ARMS:
        values = [found[options.setting, arm, seed] for seed in seeds]
        gains = [value - found[options.setting, "uniform", seed] for value, seed in zip(values, seeds, strict=True)]
        against = f"{fmean(gains):+.1f} ± {half * stdev(gains):.1f}" if arm != "uniform" else ""
        print(f"| {arm} | {fmean(values):.1f} ± {half * stdev(values):.1f} | {against} |")


if __name__ == "__main__":
    main()
