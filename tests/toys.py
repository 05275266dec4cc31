"""Toys for the tests of the loader: data sets of every form, a model with everything in it, a training loop."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import smdl
from smdl.strategies.loss_rank import LossRank
from smdl.strategies.submodular import Submodular
from smdl.streaming import Filter

WIDTH, CLASSES = 4, 3


class Tuples(Dataset):
    """(x, y); remembers what was read."""

    def __init__(self, n: int = 30, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.y = torch.randint(0, CLASSES, (n,), generator=generator)
        self.x = torch.randn(n, WIDTH, generator=generator) + self.y[:, None]
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, row: int) -> Any:
        self.reads.append(row)
        return self.x[row], self.y[row]


class Strings(Tuples):
    def __getitem__(self, row: int) -> Any:
        return (*super().__getitem__(row), f"sample {row}")


class Dicts(Tuples):
    def __getitem__(self, row: int) -> Any:
        x, y = super().__getitem__(row)
        return {"pixels": x, "meta": {"name": f"sample {row}", "label": y}}


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


class NamedTuples(Tuples):
    def __getitem__(self, row: int) -> Any:
        return Pair(*super().__getitem__(row))


class ManyAtOnce(Tuples):
    """Reads only by __getitems__, and wants a list, as torch gives it."""

    def __getitem__(self, row: int) -> Any:
        raise AssertionError("read one by one")

    def __getitems__(self, rows: list[int]) -> list[Any]:
        assert type(rows) is list
        self.reads += rows
        return [(self.x[row], self.y[row]) for row in rows]


class Shifted(Tuples):
    """The same samples under another transform."""

    def __getitem__(self, row: int) -> Any:
        x, y = super().__getitem__(row)
        return x + 100, y


class Net(nn.Module):
    """Whatever scoring could leave a trace in: BatchNorm, dropout, and modules to freeze."""

    body: nn.Sequential
    head: nn.Linear

    def __init__(self, dropout: float = 0.0, seed: int = 0, bias: bool = True) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.body = nn.Sequential(nn.Linear(WIDTH, 6), nn.BatchNorm1d(6), nn.Dropout(dropout), nn.ReLU())
            self.head = nn.Linear(6, CLASSES, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


#: Every strategy with every refresh it has: options of DataLoader, made anew for each (strategies have state).
CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "uniform": lambda: {"strategy": "uniform"},
    "uniform_full": lambda: {"strategy": "uniform", "refresh": smdl.Full(3)},
    "loss": lambda: {"strategy": LossRank(sort_every=6)},
    "loss_recomputed": lambda: {"strategy": LossRank(recompute=True), "refresh_every": 3},
    "recommended": dict,
    "recommended_full": lambda: {"refresh_every": 3},
    "paper": lambda: {"objective": "paper"},
    "paper_pool": lambda: {"objective": "paper", "refresh": smdl.RandomPool(2.5)},
    "replacement": lambda: {
        "strategy": Submodular("recommended", optimizer="stochastic", epsilon=0.5),
        "refresh": smdl.Full(3),
        "replacement": True,
    },
}
ADAPTIVE: dict[str, Callable[[], dict[str, Any]]] = {
    "adaptive": lambda: {"batch_size": (2, 6), "size_penalty": 0.015, "drop_last": True},
    "adaptive_full": lambda: {"batch_size": (2, 6), "size_penalty": 0.01, "drop_last": True, "refresh_every": 3},
}


def make(case: str, dataset: Dataset, model: nn.Module, **options: Any) -> smdl.DataLoader:
    """The loader of a case."""
    return smdl.DataLoader(dataset, model, **{"batch_size": 4, **{**CASES, **ADAPTIVE}[case](), **options})


def begun(case: str, data: Dataset | None = None, **options: Any) -> tuple[smdl.DataLoader, Net, torch.optim.SGD]:
    """A run of a case at its beginning: loader, model and optimizer, all of which have a state."""
    model = Net()
    return make(case, data or Tuples(30), model, seed=5, **options), model, sgd(model)


def train(loader: Any, model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> list[list[int]]:
    """Plain training over as many epochs as it takes; the indices of each batch."""
    seen: list[list[int]] = []
    while len(seen) < steps:
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            seen.append(loader.batch.indices.tolist())
            if len(seen) == steps:
                break
    return seen


def epoch_of(loader: smdl.DataLoader) -> list[list[int]]:
    """The indices of each batch of an epoch that trains nothing."""
    seen = []
    for _ in loader:
        seen.append(numbers_of(loader).tolist())
        loader.observe(torch.linspace(1, 2, len(seen[-1])))
    return seen


def numbers_of(loader: smdl.DataLoader | Filter) -> np.ndarray:
    """Of the samples in the batch in hand."""
    assert loader.batch is not None
    return loader.batch.indices


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
