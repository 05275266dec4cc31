"""Data sets of the user: package.module:factory returns (train, test).

Subsets, splits, imbalance, duplicates and label noise of the config work on them as on any other data set.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from smdl.common.factory import load_object
from smdl.common.messages import choice
from smdl.common.progress_bar import progress_bar
from smdl.scoring.reading import are_confirmed, check_labels, stored_labels
from smdl.training.config import DataConfig
from smdl.training.datasets.in_memory import InMemory
from smdl.training.datasets.problems import DataError


@dataclass(eq=False, repr=False)
class LabelledSubset(Dataset[tuple[Any, int]]):
    """Some samples of a data set, with given labels."""

    dataset: Any
    indices: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self.dataset[int(self.indices[index])][0], int(self.labels[index])


def labelled_subset(dataset: Any, indices: np.ndarray, labels: np.ndarray) -> InMemory | LabelledSubset:
    """Return these samples with these labels. A subset of an InMemory data set is InMemory too."""
    rows, targets = torch.from_numpy(indices), torch.from_numpy(labels)
    if isinstance(dataset, InMemory):
        return dataset.labelled_subset(rows, targets)
    return LabelledSubset(dataset, rows, targets)


def make_datasets(config: DataConfig) -> tuple[Any, Any]:
    """Return (train, test) from the factory `config.name`. The factory gets the config if it takes an argument."""
    for option in ("resolution", "augment"):
        if getattr(config, option) is not None:
            raise DataError(
                f"data.{option} works with the built-in sets and folders only. Do it inside {config.name}, "
                "which may take the config as an argument."
            )
    factory = load_object(config.name, "data.name")
    if not callable(factory):
        raise DataError(choice(f"data.name {config.name}", type(factory).__name__, "a function"))
    datasets: Any = factory(config) if _takes_argument(factory) else factory()
    if not isinstance(datasets, Sequence) or len(datasets) != 2 or not all(map(_is_map_style, datasets)):
        raise DataError(
            choice(
                f"what {config.name} returns", _type_name(datasets), "(train, test), data sets with a length and items"
            )
        )
    for part, dataset in zip(("train", "test"), datasets, strict=True):
        if not len(dataset):
            raise DataError(f"the {part} set of {config.name} is empty")
    return datasets[0], datasets[1]


def shape_of(dataset: Any, name: str) -> tuple[int, ...]:
    """Return the shape of the first input."""
    with torch.random.fork_rng(devices=[]):
        inputs, _ = _pair(dataset, 0, name)
    if not hasattr(inputs, "shape"):
        raise DataError(choice(f"an input of {name}", type(inputs).__name__, "a tensor or array"))
    return tuple(inputs.shape)


def labels_of(dataset: Any, name: str) -> np.ndarray:
    """Return the class numbers that the data set holds, or else read them from every item."""
    stored = stored_labels(dataset)
    with torch.random.fork_rng(devices=[]):
        if stored is not None:
            labels = check_labels(stored, name)
            if are_confirmed(labels, lambda rows: _labels_at(dataset, rows.tolist(), name)):
                return labels
        with progress_bar(f"reading the labels of {name}", len(dataset)) as advance:
            return _labels_at(dataset, range(len(dataset)), name, advance)


def _labels_at(
    dataset: Any, rows: Sequence[int], name: str, advance: Callable[[int], None] = lambda _: None
) -> np.ndarray:
    labels = np.empty(len(rows), np.int64)
    for place, row in enumerate(rows):
        _, labels[place] = _pair(dataset, row, name)
        advance(1)
    return labels


def classes_of(train: Any, labels: Sequence[np.ndarray], name: str) -> list[str]:
    """Return `.classes` of the training set, or else the numbers 0 to the largest label. Check the labels."""
    low, high = min(part.min() for part in labels), max(part.max() for part in labels)
    given = getattr(train, "classes", None)
    classes = [str(label) for label in (range(high + 1) if given is None else given)]
    if not 0 <= low <= high < len(classes):
        raise DataError(f"the labels of {name} must be from 0 to {len(classes) - 1}, found {low} to {high}")
    return classes


def _takes_argument(factory: Any) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except ValueError:  # some builtins have no signature
        return False
    return any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)


def _is_map_style(dataset: Any) -> bool:
    map_style = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
    return map_style and not isinstance(dataset, IterableDataset | str | dict)


def _pair(dataset: Any, index: int, name: str) -> tuple[Any, int]:
    item = dataset[index]
    if not isinstance(item, Sequence) or len(item) != 2:
        raise DataError(choice(f"an item of {name}", _type_name(item), "(input, class number)"))
    label = np.asarray(item[1])
    if label.ndim or label.dtype.kind not in "iu":
        raise DataError(choice(f"a target of {name}", item[1], "a class number"))
    return item[0], int(label)


def _type_name(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(type(inner).__name__ for inner in value[:5])}{', ...' if len(value) > 5 else ''})"
    return type(value).__name__
