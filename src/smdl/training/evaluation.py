"""Loss and error over a dataset, without augmentation."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset

from smdl.batches import move
from smdl.reading import Reader, in_order
from smdl.scoring import device_of, eval_mode
from smdl.training.build import collate_of, without_augmentation


def mean_loss_and_error(model: nn.Module, loss: nn.Module, dataset: Dataset) -> tuple[float, float]:
    """Return (mean loss, fraction of errors) over a dataset."""
    total, wrong, seen = 0.0, 0, 0
    device = device_of(model)
    with eval_mode(model):
        for batch in batches_of(dataset, 500):
            inputs, targets = move(batch, device)[:2]
            logits: Tensor = model(inputs).float()
            total += float(loss(logits, targets)) * len(targets)
            wrong += int((logits.argmax(dim=1) != targets).sum())
            seen += len(targets)
    return total / seen, wrong / seen


def batches_of(dataset: Dataset, size: int) -> Iterator[Any]:
    """Yield the batches of a dataset in order."""
    plain, rows = without_augmentation(dataset), len(dataset)  # type: ignore[arg-type]
    return (batch for _, batch in Reader(plain, None, collate_of(plain), 0).read(in_order(rows, size)))


def fixed_subset(dataset: Dataset, count: int, seed: int) -> Dataset:
    """Return up to `count` samples of a dataset: the same for every method and run."""
    plain, n = without_augmentation(dataset), len(dataset)  # type: ignore[arg-type]
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:count])
    return Subset(plain, rows.tolist())
