"""A preview: what a step of each method costs on this data and this model, and what the data looks like."""

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smdl.common.messages import choice, positive
from smdl.common.progress import Display
from smdl.common.units import size_text
from smdl.engine.pool import host
from smdl.experiments.calibration import SHARE, ConfigSide, take_turns
from smdl.experiments.timed_side import TimedSide
from smdl.loading.loader import DataLoader
from smdl.loading.methods import METHODS, Method, as_method
from smdl.scoring.reading import ReadRequest, stored_labels, worker_errors
from smdl.scoring.training_step import descend, training_losses
from smdl.scoring.weighted_loss import weighted_mean
from smdl.training.config import TrainConfig
from smdl.training.datasets.load import Splits
from smdl.training.generators import seeded_generators

#: Samples whose features are compared with each other, and how many are compared at once.
EXAMINED, BLOCK = 4000, 500
#: Near-duplicates are nearer to each other than this part of the median distance between two samples.
NEAR = 0.1
#: Steps per turn, and most rounds. Turns are short: on a busy machine, many short ones vary less than a few long ones.
TURN, ROUNDS = 2, 100
#: A measurement of fewer rounds is called rough.
FEW = 10
NO_PREDICTION = "This predicts no accuracy: nothing known does. `smdl compare` and `smdl.compare` measure it."


@dataclass(frozen=True)
class MethodCost:
    """What a step of a method costs."""

    method: str
    seconds_per_step: float
    ratio: float  # of its step time to that of plain SGD in the same round: the median
    ratio_range: tuple[float, float]  # of the middle half of the rounds
    forwards_per_step: float  # samples forwarded for scoring
    memory: int  # bytes that it keeps about the samples
    reference_seconds: float | None  # of training a reference model, once per run

    @property
    def break_even(self) -> float:
        """The share of the steps that the method must save to pay: at equal time it has 1/ratio of the steps."""
        return max(0.0, 1 - 1 / self.ratio)


@dataclass(frozen=True)
class DataLook:
    """What the training set looks like."""

    samples: int
    class_counts: list[int]  # empty if the targets are no classes
    counted: int  # samples in class_counts: the examined ones where the dataset does not hold its labels
    near_duplicates: float  # share of the examined samples with another one next to them, by features of the model
    examined: int

    @property
    def imbalance(self) -> float:
        """The ratio of the size of the largest class to that of the smallest one that has samples."""
        present = [count for count in self.class_counts if count] or [1]
        return max(present) / min(present)

    def __str__(self) -> str:
        empty = self.class_counts.count(0)
        classes = f"{len(self.class_counts)} classes{f', {empty} of them empty' if empty else ''}"
        some = "" if self.counted == self.samples else f", of {self.counted:,} drawn at random"
        found = f"{self.near_duplicates:.0%}"
        if self.examined < self.samples:  # the twin of a sample may be among the others
            found = f"at least {found}, from {self.examined:,} samples drawn at random"
        balance = f", {classes}; the largest class has {self.imbalance:.1f} × the samples of the smallest{some}"
        return (
            f"The data: {self.samples:,} samples{balance if self.class_counts else ''}."
            f"\nNear-duplicates, by the features of this model: {found}."
        )


@dataclass(frozen=True)
class Preview:
    """The costs of the methods, the first of which is plain SGD, and a look at the data. `print` shows it."""

    costs: list[MethodCost]
    data: DataLook
    skipped: dict[str, str]  # method -> why it cannot be used here
    rounds: int  # in which all methods had their turn

    def table(self) -> str:
        """Return the costs as a table of at most 80 columns."""
        from rich.console import Console
        from rich.table import Table

        table = Table(show_edge=False, box=None, padding=(0, 2, 0, 0))
        for name in ("method", "time\n/ step", "× plain\nSGD", "middle\nhalf", "memory", "must save,\nof the steps"):
            table.add_column(name, justify="left" if name == "method" else "right", no_wrap=name != "method")
        for cost in self.costs:
            plain, (low, high) = cost is self.costs[0], cost.ratio_range
            milliseconds = 1000 * cost.seconds_per_step
            table.add_row(
                cost.method + (" *" if cost.reference_seconds else ""),
                f"{milliseconds:.{0 if milliseconds >= 100 else 1}f} ms",
                f"{cost.ratio:.2f}",
                "" if plain else f"{low:.2f}–{high:.2f}",
                size_text(cost.memory),
                "" if plain else f"{cost.break_even:.0%}",
            )
        console = Console(width=80)
        with console.capture() as captured:
            console.print(table, highlight=False)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __str__(self) -> str:
        most = max(self.costs[1:], key=lambda cost: cost.ratio, default=None)
        lines = [self.table()]
        if self.rounds < FEW:
            lines.append(f"Rough: only {self.rounds} round{'s' * (self.rounds > 1)} of turns. More `seconds` help.")
        lines += [f"* plus {cost.reference_seconds:.1f} s per run for its reference model ({cost.method})"
                  for cost in self.costs if cost.reference_seconds]  # fmt: skip
        lines += [f"{method} cannot be used here: {why}" for method, why in self.skipped.items()]
        if most is not None:
            lines.append(f"{most.method} must save {most.break_even:.0%} of the steps to pay.")
        return "\n".join([*lines, str(self.data), NO_PREDICTION])


def preview_loader(loader: DataLoader, methods: Sequence[str] | None, seconds: float, display: Display) -> Preview:
    """Measure what each method would cost on the data and a copy of the model of a loader."""
    if not isinstance(loader, DataLoader):
        raise TypeError(choice("loader", type(loader).__name__, "a smdl.DataLoader"))
    with seeded_generators(loader.seed):
        return _preview(lambda method: StepSide(loader, method), methods, seconds, display)


def preview_config(config: TrainConfig, methods: Sequence[str] | None, seconds: float, display: Display) -> Preview:
    """Measure what each method would cost in a run of `smdl train`."""
    loaded: Splits | None = None

    def make(method: str) -> ConfigSide:
        nonlocal loaded
        side = ConfigSide(replace(config, method=method), display, loaded, TURN)
        loaded = side.run.splits  # the same data for all, in memory once
        return side

    return _preview(make, methods, seconds, display)


def usual_methods() -> list[str]:
    """Return the methods that train no second model and do not score the whole dataset at a time."""
    made = {name: method.make() for name, method in METHODS.items()}
    return [
        name
        for name, (strategy, candidates) in made.items()
        if not (strategy.needs_reference or (strategy.needs_scores and candidates.plain_scoring))
    ]


def _preview(make: Callable[[str], Any], methods: Sequence[str] | None, seconds: float, display: Display) -> Preview:
    positive("seconds", seconds)
    started = time.perf_counter()
    if isinstance(methods, str):
        raise TypeError(choice("methods", methods, "a sequence of names"))
    names = dict.fromkeys(["uniform", *(usual_methods() if methods is None else methods)])
    for name in names:
        as_method(name)  # unknown names are errors
    display.phase("loading")
    sides: dict[str, TimedSide] = {}
    skipped = {}
    for name in names:
        try:
            sides[name] = make(name)
        except (ValueError, TypeError) as error:
            if name == "uniform" or methods is not None:
                raise
            skipped[name] = str(error)
    display.phase("looking at the data")
    data = look_at(sides["uniform"].loader)  # before the steps: training moves samples of a class together
    left = max(seconds / 4, seconds - (time.perf_counter() - started))
    found = take_turns(sides, display, left / SHARE, ROUNDS)
    costs = [
        MethodCost(
            name,
            cost["seconds_per_step"],
            cost["ratio"],
            middle_half(cost["ratios"]),
            cost["forwards_per_step"],
            held_bytes(sides[name].loader.state_dict()),
            cost["reference_seconds"],
        )
        for name, cost in found.items()
    ]
    return Preview(costs, data, skipped, len(found["uniform"]["ratios"]))


def middle_half(values: list[float]) -> tuple[float, float]:
    """Return the ends of sorted values without the lowest and the highest quarter."""
    quarter = len(values) // 4
    return values[quarter], values[-1 - quarter]


class StepSide(TimedSide):
    """Plain steps on a copy of the user's model."""

    def __init__(self, loader: DataLoader, method: str) -> None:
        model = copy.deepcopy(loader.model).train()
        mine = sibling(loader, method, model)
        mine.warm_up()
        self.begin(mine, TURN)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        # The rate does not change what a step costs: at this one nothing diverges, and the weights do change.
        self._optimizer = torch.optim.SGD(weights, lr=1e-6, momentum=0.9)
        self._batches = self._endless()

    def _endless(self) -> Iterator[Any]:
        while True:
            yield from self.loader

    def step(self) -> None:
        losses = training_losses(self.loader.scorer, next(self._batches), "pass loss= to the loader")
        descend(self._optimizer, weighted_mean(losses, self.loader.selection))


def sibling(loader: DataLoader, method: str | Method, model: nn.Module) -> DataLoader:
    """Return a loader of the same data and with the same options for another method and another model."""
    options = {**loader.arguments, "epochs": loader.arguments["epochs"] or 100}  # some methods change over a run
    if as_method(method).make()[1].needs_features:
        options["scoring_dataset"] = None  # these candidates are not forwarded for scoring
    return DataLoader(loader.dataset, model, loader.batch_size, method=method, **options)


def held_bytes(state: Any) -> int:
    """Return the bytes of all arrays in the state of a loader: what its method keeps about the samples."""
    if isinstance(state, dict):
        return sum(map(held_bytes, state.values()))
    return state.nbytes if isinstance(state, Tensor | np.ndarray) else 0


def look_at(loader: DataLoader) -> DataLook:
    """Count the classes, and look for near-duplicates among the features of some samples."""
    samples = len(loader.dataset)  # type: ignore[arg-type]
    rows = np.sort(np.random.default_rng(loader.seed).permutation(samples)[:EXAMINED])
    parts = [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]
    requests = [ReadRequest(0, part.tolist(), train=False, score=True) for part in parts]
    with torch.random.fork_rng(devices=[]), worker_errors():
        scores = loader.scorer.all((batch for _, batch in loader.reader.read(requests)), len(rows))
    labels, stored = np.zeros(0, np.int64), stored_labels(loader.dataset)
    if scores.labels is not None:  # where the dataset does not hold them, to read all others could take hours
        labels = host(scores.labels)
        if stored is not None and np.array_equal(stored[rows], labels):
            labels = stored.astype(np.int64)
    shares = near_duplicates(scores.features.flatten(1))
    return DataLook(samples, np.bincount(labels).tolist(), len(labels), shares, len(rows))


def near_duplicates(features: Tensor) -> float:
    """Return the share of the rows, (n, D), with another row nearer than NEAR × the median distance of two rows."""
    if len(features) < 3:
        return 0.0
    nearest, typical = [], []
    for start in range(0, len(features), BLOCK):
        distances = torch.cdist(features[start : start + BLOCK], features, compute_mode="donot_use_mm_for_euclid_dist")
        typical.append(distances.median(dim=1).values)
        rows = torch.arange(len(distances), device=distances.device)
        distances[rows, start + rows] = math.inf  # the row itself
        nearest.append(distances.min(dim=1).values)
    limit = NEAR * torch.cat(typical).median()
    return float(np.mean(host(torch.cat(nearest) <= limit)))
