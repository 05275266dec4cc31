"""Toys for the tests of the loader: data sets of every form, a model with everything in it, a training loop."""

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

import smdl
from smdl.engine.pool import Pool
from smdl.loading.strategies.submodular import Submodular

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


STOCHASTIC = {"optimizer": "stochastic", "epsilon": 0.5}
#: Every method with every source it can have: options of DataLoader.
CASES: dict[str, dict[str, Any]] = {
    "uniform": {"method": "uniform"},
    "uniform_full": {"method": "uniform", "candidates": smdl.Full(3)},
    "balanced": {"method": "balanced"},
    "progressive": {"method": "progressive", "epochs": 3},
    "weighted": {"method": "weighted"},
    "loss": {"method": "loss", "options": {"sort_every": 6}, "epochs": 5},
    "loss_recomputed": {
        "method": "loss",
        "options": {"recompute": True},
        "candidates": smdl.Full(3, replacement=True),
        "epochs": 5,
    },
    "infobatch": {"method": "infobatch", "epochs": 5},
    "evolved_sampling": {"method": "evolved_sampling", "epochs": 5},
    "importance": {"method": "importance", "options": {"threshold": 1.05, "momentum": 0.5}},  # on and off in turns
    "selective_backprop": {"method": "selective_backprop", "options": {"start": 0.3}, "epochs": 2},
    "divbs": {"method": "divbs"},
    "divbs_sampled": {"method": "divbs", "options": {"sampled": True}},
    "rho_loss": {"method": "rho_loss", "options": {"holdout_epochs": 1}, "candidates": smdl.RandomPool(3)},
    "fresh": {"method": "fresh"},
    "recommended": {"method": "recommended"},
    "recommended_balanced": {"method": "recommended", "options": {"test_set": "balanced"}},
    "observed": {"candidates": smdl.Observed(lag=3)},
    "rescored": {"candidates": smdl.Observed(3, lag=1, rescore=0.5)},
    "sketched": {"candidates": smdl.Observed(2, lag=2, sketch=3)},
    "observed_full": {"candidates": smdl.Full(3)},
    "paper": {"method": "paper"},
    "paper_released": {"method": "paper_released", "options": {"partitions": 2, "log_epsilon": 3}},
    "paper_pool": {"method": "paper", "candidates": smdl.RandomPool(2.5)},
    "replacement": {"candidates": smdl.Full(3, replacement=True), "options": STOCHASTIC},
}


class Recorder(Submodular):
    """The strategy of `observed`; keeps what it was given and what it chose."""

    pool: Pool
    seed: int
    chosen: np.ndarray

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator):
        assert pool is not None
        self.pool, self.seed = pool, int(copy.deepcopy(rng).integers(2**63))
        selection = super().select(pool, remaining, batch_size, rng)
        self.chosen = selection.indices
        return selection


def make(case: str, dataset: Dataset, model: nn.Module, **options: Any) -> smdl.DataLoader:
    """The loader of a case."""
    return smdl.DataLoader(dataset, model, **grouped({"batch_size": 4, **CASES[case], **options}))


def grouped(options: dict[str, Any]) -> dict[str, Any]:
    """Return options of a loader with those of smdl.Scoring in one."""
    how = {name: value for name, value in options.items() if name in smdl.Scoring.__dataclass_fields__}
    rest = {name: value for name, value in options.items() if name not in how}
    return {**rest, "scoring": smdl.Scoring(**how)} if how else rest


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
            smdl.weighted_mean(F.cross_entropy(model(x), y, reduction="none"), loader.selection).backward()
            optimizer.step()
            seen.append(loader.selection.indices.tolist())
            if len(seen) == steps:
                break
    return seen


def epoch_of(loader: smdl.DataLoader) -> list[list[int]]:
    """The indices of each batch of an epoch that trains nothing."""
    seen = []
    for batch in loader:
        seen.append(numbers_of(loader).tolist())
        forwarded(loader, batch)
    return seen


def forwarded(loader: smdl.DataLoader, batch: Any) -> None:
    """Do what the loader expects between two batches: a training forward, or losses by hand."""
    if loader.strategy.needs_errors or loader.strategy.needs_label_evidence:
        loader.observe(logits=torch.linspace(1, 2, CLASSES * len(numbers_of(loader))).reshape(-1, CLASSES))
    elif loader.strategy.needs_losses:
        loader.observe(torch.linspace(1, 2, len(numbers_of(loader))))
    elif loader.candidates.needs_features:
        modes = [(module, module.training) for module in loader.model.modules()]
        loader.model.eval()(batch[0])  # BatchNorm takes no batch of one sample otherwise
        for module, training in modes:
            module.training = training


def numbers_of(loader: smdl.DataLoader | smdl.SelectiveLoader) -> np.ndarray:
    """The indices of the samples in the current batch."""
    assert loader.selection is not None
    return loader.selection.indices


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)


def same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
