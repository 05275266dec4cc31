"""What helps on a tail, at equal steps: quotas of classes, a loss for tails, or a last layer that is fitted again.

    python benchmarks/tails.py cifar10 --data ../shared/data --out tails.jsonl [--tail hidden-tail] [--seeds 8]

The runs are those of the setting in benchmarks/oracle.py, but every seed draws other images. Each line of the file is
one run. An interrupted command is resumed by running it again.
"""

import argparse
import json
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import t
from torch import Tensor, nn

import smdl
from oracle import SETTINGS
from smdl.common.environment import commit
from smdl.experiments.regimes import data_options
from smdl.scoring.reading import stored_labels
from smdl.training.build import without_augmentation
from smdl.training.config import DataConfig, ModelConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from smdl.training.datasets.load import load
from smdl.training.loop import TrainingRun


class Arm(NamedTuple):
    """The method, how the last layer is fitted again, and whether the loss is balanced softmax."""

    method: str
    refit: str | None = None
    softmax: bool = False


ARMS = {
    "uniform": Arm("uniform"),
    "square root": Arm("weighted"),  # a class has a share in proportion to the square root of its size
    "balanced": Arm("balanced"),
    "progressive": Arm("progressive"),
    "balanced softmax": Arm("uniform", softmax=True),
    "uniform+refit": Arm("uniform", "classes"),
    "uniform+refit by errors": Arm("uniform", "errors"),  # AFR
}
MEASURES = {"balanced": "all classes alike", "rare": "rare groups", "worst": "worst group"}


class BalancedSoftmax(nn.CrossEntropyLoss):
    """The loss with the class sizes of one training set."""

    def __init__(self, counts: Tensor) -> None:
        super().__init__()
        self.counts = counts

    def forward(self, input: Tensor, target: Tensor) -> Tensor:  # noqa: A002, the names of the parent
        return smdl.balanced_softmax(input, target, self.counts)


def run(setting: str, root: str, tail: str, name: str, seed: int) -> dict[str, float]:
    """Train once. Return accuracies on the test set, in %."""
    arm, chosen = ARMS[name], SETTINGS[setting]
    data = DataConfig(**{"name": setting, "root": root, **data_options(tail), "seed": seed, **chosen["data"]})
    splits = load(data)
    labels = stored_labels(without_augmentation(splits.train))
    assert labels is not None
    counts = np.bincount(labels)
    training = TrainingRun(
        TrainConfig(
            data=data,
            model=ModelConfig("resnet8"),
            optimizer=OptimizerConfig(lr=0.1),
            schedule=ScheduleConfig("cosine"),
            method=arm.method,
            options={"weights": counts[labels] ** -0.5} if name == "square root" else {},
            steps=chosen["steps"],
            seed=seed,
            threads=1,
            train_evaluation=0,
            refit=arm.refit,
        ),
        splits=splits,
    )
    if arm.softmax:
        training.loss = BalancedSoftmax(torch.from_numpy(counts))
    while training.epoch < training.epochs:
        for _ in training.steps():
            pass
        training.epoch += 1
    if arm.refit:
        training.refit()
    found = training.evaluate()
    return {name: 100 * (1 - found[f"test_{name}_error"]) for name in MEASURES}  # type: ignore[operator]


def main() -> None:
    """Train what is not trained yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tail", choices=["long-tail", "hidden-tail"], default="long-tail")
    parser.add_argument("--arms", default=",".join(ARMS), help="the first one is the baseline")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--first_seed", type=int, default=20)
    options = parser.parse_args()
    lines = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    found: dict[tuple[Any, ...], dict[str, float]] = {tuple(line["key"]): line["accuracy"] for line in lines}
    seeds, arms, now = range(options.first_seed, options.first_seed + options.seeds), options.arms.split(","), commit()
    for seed in seeds:
        for arm in arms:
            key = (options.setting, options.tail, arm, seed)
            if key not in found:
                found[key] = run(options.setting, options.data, options.tail, arm, seed)
                with options.out.open("a") as file:
                    print(json.dumps({"key": key, "accuracy": found[key], "commit": now}), file=file, flush=True)

    def values(arm: str, measure: str) -> np.ndarray:
        return np.array([found[options.setting, options.tail, arm, seed][measure] for seed in seeds])

    half = t.ppf(0.975, len(seeds) - 1) / len(seeds) ** 0.5
    print(f"{options.setting}, {options.tail}, commit {now}, seeds {seeds.start} to {seeds.stop - 1}; accuracy, %\n")
    print(f"| method | {' | '.join(MEASURES.values())} |\n| --- {'| --- ' * len(MEASURES)}|")
    for arm in arms:
        cells = []
        for measure in MEASURES:
            mine, sign = values(arm, measure), ""
            if arm != arms[0]:
                mine, sign = mine - values(arms[0], measure), "+"
            cells.append(f"{fmean(mine):{sign}.1f} ± {half * stdev(mine):.1f}")
        print(f"| {arm} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
