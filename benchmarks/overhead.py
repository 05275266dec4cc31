"""Compare the cost of a training step of each method with that of plain SGD.

python benchmarks/overhead.py [--only resnet,small,forwards,reading,mlp] [--rounds N]

resnet    ResNet-20, random images of 3 × 32 × 32 in memory, batches of 50, two threads
small     ResNet-8, random images of 3 × 16 × 16, batches of 50, one thread: a step of about 20 ms
forwards  the same as resnet for the methods that forward candidates
reading   each sample takes 5 ms to read, two workers, batches of 20, a small network
mlp       768 inputs in memory, batches of 50, one thread: overheads show most

The sides take turns within one run. A ratio is the median over rounds of the ratio of a turn to that of plain SGD in
the same round; its range is in brackets. The first round does not count. Targets are printed with "met" or "missed".
"""

import os

# On a busy machine, threads that spin while they wait for each other would be most of what is measured.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import argparse
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

import smdl
from smdl.experiments.typical_step import fill_cache, make_typical
from smdl.training.config import ModelConfig
from smdl.training.datasets.in_memory import InMemory, identity_collate
from smdl.training.models import make_model
from timing import Report, clock, commit, processor, verdict

BATCH, SAMPLES, CLASSES = 50, 2000, 10
RATIO, SHARE = 1.05, 0.02  # the most that a step of `recommended` may cost, and the selection of `observed`
SMALL_RATIO = 1.15  # the most that a step may cost if it takes 2 ms
SLEEP = 0.005
COLUMNS = ("side", "wall ms per step", "ratio", "CPU ms per step", "CPU ratio", "selection", "target")


class Slow(Dataset):
    """Samples that take 5 ms each to read."""

    def __init__(self, data: InMemory) -> None:
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        time.sleep(SLEEP)
        return self.data[row]


@dataclass
class Turn:
    """Milliseconds per step: of the process, on the clock, and of what the loader spent on scoring and selection."""

    cpu: float
    wall: float
    chosen: float


@dataclass
class Side:
    """A network that is trained a few steps at a time."""

    name: str
    loader: smdl.DataLoader
    turns: list[Turn] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.loader.model.parameters(), lr=0.01, momentum=0.9)
        make_typical(self.loader)
        self._steps = self._train()

    def _train(self) -> Iterator[None]:
        while True:
            for inputs, targets in self.loader:
                self.optimizer.zero_grad()
                F.cross_entropy(self.loader.model(inputs), targets).backward()
                self.optimizer.step()
                yield

    def train(self, steps: int) -> None:
        for _ in range(steps):
            next(self._steps)

    def turn(self, steps: int) -> None:
        before = self._chosen()
        cpu, wall, _ = clock(lambda: self.train(steps))
        self.turns.append(Turn(cpu / steps, wall / steps, 1000 * (self._chosen() - before) / steps))

    def _chosen(self) -> float:
        return self.loader.seconds["scoring"] + self.loader.seconds["selection"]


def take_turns(sides: Sequence[Side], rounds: int, steps: int, untimed: int = 0) -> None:
    """Train each side in turn. A turn starts with `untimed` steps."""
    for number in range(rounds + 1):
        for side in sides:
            side.train(untimed)
            side.turn(steps)
            if number == 0:
                fill_cache(side.loader)
    for side in sides:
        del side.turns[0]  # caches fill and loops compile


def ratios(side: Side, to: Side, of: Callable[[Turn], float]) -> list[float]:
    return [of(turn) / of(plain) for turn, plain in zip(side.turns, to.turns, strict=True)]


def spread(values: list[float]) -> str:
    return f"{median(values):.3f} ({min(values):.3f}–{max(values):.3f})"


def in_memory(*shape: int, samples: int = SAMPLES) -> InMemory:
    """Return random inputs around a centre of each class: with labels that nothing predicts, no network would learn."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(CLASSES, (samples,), generator=generator)
    centres = torch.randn(CLASSES, *shape, generator=generator)
    return InMemory(torch.randn(samples, *shape, generator=generator) + 0.3 * centres[labels], labels)


def make(data: InMemory, model: str, method: str, **options: Any) -> smdl.DataLoader:
    """Return a loader of this data with a network of its own."""
    network = make_model(ModelConfig(name=model), data.images.shape[1:], CLASSES, seed=0)
    if method == "paper":  # given, so that no reference model is trained
        options["reference"] = torch.rand(len(data), 64, generator=torch.Generator().manual_seed(1))
    options = {"batch_size": BATCH, "epochs": 100, "collate_fn": identity_collate, **options}
    dataset = options.pop("dataset", data)
    return smdl.DataLoader(dataset, network, method=method, **options)


def rows(report: Report, sides: Sequence[Side], target: Callable[[Side, float], str] = lambda *_: "") -> None:
    for side in sides:
        cpu, wall = (ratios(side, sides[0], of) for of in (lambda turn: turn.cpu, lambda turn: turn.wall))
        share = sum(turn.chosen for turn in side.turns) / sum(turn.wall for turn in side.turns)
        times = [median(getattr(turn, kind) for turn in side.turns) for kind in ("wall", "cpu")]
        report.row(side.name, times[0], spread(wall), times[1], spread(cpu), f"{share:.1%}", target(side, median(wall)))


def resnet(report: Report, rounds: int) -> None:
    """The methods that forward nothing but the batch."""
    data = in_memory(3, 32, 32)
    sides = [Side(method, make(data, "resnet20", method)) for method in ("uniform", "recommended", "observed", "loss")]
    _resnet(report, sides, rounds)
    share = [turn.chosen / turn.wall for turn in sides[2].turns]
    report.say()
    report.say(
        f"Selection from the cache, share of the step of `observed`: median {median(share):.2%}"
        f" ({min(share):.2%}–{max(share):.2%}). Target ≤ {SHARE:.0%}: {verdict(median(share) <= SHARE)}."
    )


def forwards(report: Report, rounds: int) -> None:
    """The methods that forward candidates: a pool at every step, or all samples every five steps."""
    data, half = in_memory(3, 32, 32), in_memory(3, 32, 32, samples=SAMPLES // 2)
    sides = [Side(method, make(data, "resnet20", method)) for method in ("uniform", "fresh", "paper")]
    sides.append(Side(f"paper, {SAMPLES // 2} samples", make(half, "resnet20", "paper")))
    _resnet(report, sides, rounds)


def _resnet(report: Report, sides: list[Side], rounds: int) -> None:
    torch.set_num_threads(2)
    report.table(
        f"ResNet-20, 3 × 32 × 32, batches of {BATCH} of {SAMPLES} samples, two threads, {rounds} turns of 5 steps",
        COLUMNS,
    )
    take_turns(sides, rounds, 5)  # whole windows of the paper's method
    rows(report, sides, lambda side, ratio: _goal(ratio, RATIO) if side.name == "recommended" else "")


def reading(report: Report, rounds: int) -> None:
    torch.set_num_threads(1)
    steps, untimed, size = 20, 12, 20
    report.table(
        f"Reading: {1000 * SLEEP:g} ms per sample, two workers, batches of {size}, {rounds} turns of {steps} steps",
        ("side", "steps per second", "ratio of steps per second", "workers"),
    )
    data = in_memory(768)
    sources: dict[str, dict[str, Any]] = {"uniform": {"method": "uniform"}}
    for lag in (0, 1, 2, 4, 8):
        sources[f"observed, lag {lag}"] = {"method": "observed", "candidates": smdl.Observed(lag=lag)}
    sources["fresh"] = {"method": "fresh"}
    sides = []
    for name, options in sources.items():
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="num_workers is")  # the table tells how many are used
            plain = {"dataset": Slow(data), "batch_size": size, "num_workers": 2, "collate_fn": None}
            sides.append(Side(name, make(data, "mlp", **options, **plain)))
    # Workers read on while other sides have their turn: the first steps of a turn find their batches ready.
    take_turns(sides, rounds, steps, untimed)
    for side in sides:
        speeds = [1 / ratio for ratio in ratios(side, sides[0], lambda turn: turn.wall)]
        report.row(side.name, 1000 / median(turn.wall for turn in side.turns), spread(speeds), _workers(side))


def mlp(report: Report, rounds: int) -> None:
    torch.set_num_threads(1)
    report.table(
        f"MLP on 768 inputs in memory, batches of {BATCH}, one thread, {rounds} turns of 40 steps (one epoch)", COLUMNS
    )
    data = in_memory(768)
    sides = [
        Side(method, make(data, "mlp", method)) for method in ("uniform", "recommended", "observed", "loss", "fresh")
    ]
    take_turns(sides, rounds, len(sides[0].loader))
    rows(report, sides, lambda side, ratio: _goal(ratio, SMALL_RATIO) if side.name == "recommended" else "")


def small(report: Report, rounds: int) -> None:
    torch.set_num_threads(1)
    report.table(
        f"ResNet-8, 3 × 16 × 16, batches of {BATCH} of {SAMPLES} samples, one thread, {rounds} turns of 40 steps",
        COLUMNS,
    )
    data = in_memory(3, 16, 16)
    sides = [Side(method, make(data, "resnet8", method)) for method in ("uniform", "recommended", "observed")]
    take_turns(sides, rounds, len(sides[0].loader))
    rows(report, sides, lambda side, ratio: _goal(ratio, RATIO) if side.name == "recommended" else "")


def _goal(value: float, most: float) -> str:
    return f"≤ {most}: {verdict(value <= most)}"


def _workers(side: Side) -> int:
    return side.loader.reader.workers


CASES = {
    "resnet": (resnet, 24),
    "small": (small, 12),
    "forwards": (forwards, 6),
    "reading": (reading, 5),
    "mlp": (mlp, 40),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(CASES), help="cases, separated by commas")
    parser.add_argument("--rounds", type=int, help="turns per side; by default " + _defaults())
    options = parser.parse_args()
    names = options.only.split(",")
    for name in names:
        if name not in CASES:
            parser.error(f"unknown case {name!r}; choose from {', '.join(CASES)}")
    report = Report()
    report.say(f"- machine: {processor()}, {os.cpu_count()} cores; torch {torch.__version__}; commit {commit()}")
    for name in names:
        run, rounds = CASES[name]
        before = os.getloadavg()[0]
        run(report, options.rounds or rounds)
        report.say()
        report.say(f"Load average before and after: {before:.1f}, {os.getloadavg()[0]:.1f}.")


def _defaults() -> str:
    return ", ".join(f"{rounds} ({name})" for name, (_, rounds) in CASES.items())


if __name__ == "__main__":
    main()
