"""Loss and error over a dataset, without augmentation."""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.data import Dataset, Subset

from smdl.scoring.batches import move
from smdl.scoring.losses import check_logits, check_targets
from smdl.scoring.model_access import device_of, eval_mode
from smdl.scoring.reading import Reader, in_order
from smdl.training.build import collate_of, without_augmentation
from smdl.training.datasets.load import Splits


def check_forward(model: nn.Module, loss: nn.Module, name: str, splits: Splits) -> None:
    """Forward one small batch: a run that cannot work fails before its first step, with the reason."""
    count, device = min(4, len(splits.train)), device_of(model)  # type: ignore[arg-type]
    inputs, targets = next(batches_of(splits.train, count))[:2]
    with eval_mode(model):
        logits = check_logits(model(inputs.to(device)))
        check_targets(targets, logits.shape[1])
        if logits.shape[1] != len(splits.classes):
            raise ValueError(f"the model has {logits.shape[1]} outputs, the data {len(splits.classes)} classes")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")  # shapes that torch broadcasts with a warning are wrong here
                found = loss(logits, targets.to(device))
        except (RuntimeError, ValueError, TypeError, UserWarning) as error:
            raise ValueError(f"loss {name} cannot work on logits and class numbers: {error}") from error
    if found.ndim != 0:
        raise ValueError(f"loss {name} must return one number per batch, got shape {tuple(found.shape)}")


def loss_and_errors(model: nn.Module, loss: nn.Module, dataset: Dataset) -> tuple[float | None, np.ndarray]:
    """Return (mean loss, which samples are classified wrongly) of a dataset; no loss where it is empty."""
    if not len(dataset):  # type: ignore[arg-type]
        return None, np.zeros(0, bool)
    total, wrong = 0.0, list[Tensor]()
    device = device_of(model)
    with eval_mode(model):
        for batch in batches_of(dataset, 500):
            inputs, targets = move(batch, device)[:2]
            logits: Tensor = model(inputs).float()
            total += float(loss(logits, targets)) * len(targets)
            wrong.append((logits.argmax(dim=1) != targets).cpu())
    found = torch.cat(wrong).numpy()
    return total / len(found), found


@contextmanager
def uniform_statistics(model: nn.Module, batches: Iterable[Any]) -> Iterator[None]:
    """Estimate the BatchNorm statistics of a model again, as the mean over these batches. They hold for the block; then
    the old ones are back."""
    layers = [layer for layer in model.modules() if isinstance(layer, _BatchNorm) and layer.running_mean is not None]
    kept = [({name: value.clone() for name, value in layer.named_buffers()}, layer.momentum) for layer in layers]
    device = device_of(model)
    try:
        with eval_mode(model):
            for layer in layers:
                layer.reset_running_stats()
                layer.momentum = None  # the plain mean over the batches
                layer.train()
            for batch in batches if layers else ():
                model(move(batch, device)[0])
        yield
    finally:
        for layer, (buffers, momentum) in zip(layers, kept, strict=True):
            layer.momentum = momentum
            for name, value in buffers.items():
                layer.get_buffer(name).copy_(value)


def batches_of(dataset: Dataset, size: int) -> Iterator[Any]:
    """Yield the batches of a dataset in order."""
    plain, rows = without_augmentation(dataset), len(dataset)  # type: ignore[arg-type]
    return (batch for _, batch in Reader(plain, None, collate_of(plain), 0).read(in_order(rows, size)))


def fixed_subset(dataset: Dataset, count: int, seed: int) -> Dataset:
    """Return up to `count` samples of a dataset: the same for every method and run."""
    plain, n = without_augmentation(dataset), len(dataset)  # type: ignore[arg-type]
    rows = np.sort(np.random.default_rng(seed).permutation(n)[:count])
    return Subset(plain, rows.tolist())
