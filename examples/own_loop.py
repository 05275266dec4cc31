"""Compare methods with a training function of your own.

    python examples/own_loop.py [--minutes 2] [--seeds 3] [--out runs/own-loop]

The model, the optimizer, the schedule and the metric are those of this file. smdl supplies the batches, runs the seeds
in processes, gives every method the same time, tests the differences and writes a report.
"""

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import smdl


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1 797 digits, (N, 64), and their classes, (N,)."""
    data, target = load_digits(return_X_y=True)
    return torch.tensor(data, dtype=torch.float32) / 16, torch.tensor(target)


def training_set() -> Dataset:
    """Return the first 1 200 digits."""
    inputs, targets = digits()
    return TensorDataset(inputs[:1200], targets[:1200])


def train(make_loader, seed):
    """Train a network, and return its metrics on the other digits."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = make_loader(model)  # ends after loader.total_steps batches
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, loader.total_steps)
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    inputs, targets = (part[1200:] for part in digits())
    with torch.no_grad():
        logits = model(inputs)
    return {
        "accuracy": float((logits.argmax(dim=1) == targets).float().mean()),
        "loss": float(nn.functional.cross_entropy(logits, targets)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=2, help="time for everything")
    parser.add_argument("--steps", type=int, help="steps per run: equal steps instead of equal time")
    parser.add_argument("--seeds", type=int, default=3, help="runs per method")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--out", default="runs/own-loop", help="folder of the report")
    given = parser.parse_args()
    report = smdl.compare(
        train,
        training_set,
        methods=("uniform", "balanced", "recommended"),
        seeds=given.seeds,
        minutes=None if given.steps else given.minutes,
        steps=given.steps,
        jobs=given.jobs,
        out=given.out,
    )
    print(report)


if __name__ == "__main__":
    main()
