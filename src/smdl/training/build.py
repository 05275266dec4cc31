"""Build the objects of a run from its config."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils.data import Dataset, Subset

from smdl.common import clock
from smdl.common.messages import unknown
from smdl.common.storage import DamagedFileError, cache_folder, read_sealed, write_sealed
from smdl.engine.objective import as_objective
from smdl.loading.candidates.base import steps_per_epoch
from smdl.loading.loader import DataLoader
from smdl.loading.methods import METHODS, Method, as_method, make_candidates
from smdl.scoring.reading import Reader
from smdl.scoring.reference_model import holdout_losses, reference_features
from smdl.scoring.scorer import Scorer
from smdl.training.config import OptimizerConfig, TrainConfig
from smdl.training.datasets.in_memory import InMemory, identity_collate
from smdl.training.datasets.load import Splits
from smdl.training.models import make_model

Progress = Callable[[int, int], None]
#: The method that draws by what the options of the data hide: subclasses, wrong labels, copies.
ORACLE = "oracle"
_CACHED = "smdl reference features 1"  # a new number whenever the content changes


def make_method(config: TrainConfig) -> Method:
    """Return the method of a config, with the changes that the config makes to it. What cannot be made is refused."""
    known = METHODS["weighted"] if config.method == ORACLE else as_method(config.method_name)
    method, changes = replace(known, name=config.method_name), config.objective
    if changes and method.objective is None:
        given = "objective" if isinstance(changes, str) else f"objective.{next(iter(changes))}"
        raise ValueError(
            f"method {method.name} has no objective: leave out {given},"
            " or use a method that has one, such as --method observed"
        )
    try:
        if isinstance(changes, str):
            method, changes = method.changed(as_objective(changes)), {}
        objective = method.objective.changed(**changes) if changes and method.objective else None
        method = method.changed(objective, options=config.options)
        method = method.changed(candidates=make_candidates(config.candidates, method))
        method.make()
    except TypeError as error:  # a value of a wrong type is bad input here, not a mistake in the program
        raise ValueError(str(error)) from error
    return method


def make_loader(config: TrainConfig, splits: Splits, model: nn.Module, progress: Progress) -> DataLoader:
    """Return the loader of a run. The reference model, if the method needs one, is trained or read from the cache."""
    train, method = splits.train, make_method(config)
    if config.method == ORACLE:
        method = method.changed(options={"weights": splits.draws})
    strategy, candidates = method.make()
    plain, epochs = without_augmentation(train), config.epochs
    if config.steps is not None:
        per_epoch = steps_per_epoch(len(train), config.batch_size, config.drop_last)  # type: ignore[arg-type]
        epochs = math.ceil(config.steps / max(1, per_epoch))
    return DataLoader(
        train,
        model,
        config.batch_size,
        method=method,
        epochs=epochs,
        reference=_reference(config, splits, progress, strategy.needs_holdout) if strategy.needs_reference else None,
        scoring_dataset=plain if candidates.plain_scoring and plain is not train else None,
        drop_last=config.drop_last,
        num_workers=config.num_workers,
        seed=config.seed,
        collate_fn=collate_of(train),
    )


def make_optimizer(config: OptimizerConfig, parameters: Any) -> Optimizer:
    """Return the optimizer of the weights."""
    if config.name == "sgd":
        return SGD(
            parameters, config.lr, momentum=config.momentum, weight_decay=config.weight_decay, nesterov=config.nesterov
        )
    kind = AdamW if config.name == "adamw" else Adam
    return kind(parameters, config.lr, weight_decay=config.weight_decay)


def make_loss(config: TrainConfig) -> nn.Module:
    """Return a loss of torch.nn by its name."""
    losses = {name: kind for name, kind in vars(nn).items() if name.endswith("Loss") and isinstance(kind, type)}
    if config.loss not in losses:
        raise ValueError(unknown("loss", config.loss, losses))
    try:
        return losses[config.loss](**config.loss_options)
    except TypeError as error:
        raise ValueError(f"loss_options do not fit {config.loss}: {error}") from error


def without_augmentation(dataset: Dataset) -> Dataset:
    """Return the same samples with the evaluation transform."""
    return dataset.plain() if isinstance(dataset, InMemory) else dataset


def collate_of(dataset: Dataset) -> Callable[[Any], Any] | None:
    """Return the collate function of a dataset: data in memory is read as whole batches."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return identity_collate if isinstance(dataset, InMemory) else None


def reference_seconds(config: TrainConfig, splits: Splits) -> float | None:
    """Return how long the reference model of a config took when it was trained; None if it is not in the cache."""
    from safetensors.torch import load

    try:
        path = _reference_file(config, splits, make_method(config).make()[0].needs_holdout)
        return float(load(read_sealed(path, _CACHED))["seconds"])
    except (OSError, DamagedFileError):
        return None


def _reference_file(config: TrainConfig, splits: Splits, holdout_epochs: int) -> Path:
    """Return the file of the reference features in the cache, named after everything that they depend on."""
    scored, n = without_augmentation(splits.train), len(splits.train)  # type: ignore[arg-type]
    depends = {
        "data": [_fingerprint(scored, n), repr(getattr(splits.train, "augmentation", None))],
        "device": config.device,
        "threads": config.threads,
        "model": asdict(config.model),
        "optimizer": asdict(config.optimizer),
        "fraction": f"two halves, {holdout_epochs} epochs" if holdout_epochs else config.reference_fraction,
        "batch_size": config.batch_size,
        "seed": config.seed,
        "torch": torch.__version__,
    }
    key = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:20]
    return cache_folder() / "reference" / f"{key}.features"


def _reference(config: TrainConfig, splits: Splits, progress: Progress, holdout_epochs: int) -> Tensor:
    """Return the reference model's features of the training set, or its losses by the holdout models, cached on disk by
    everything they depend on."""
    from safetensors.torch import load, save

    path, n = _reference_file(config, splits, holdout_epochs), len(splits.train)  # type: ignore[arg-type]
    scored = without_augmentation(splits.train)
    try:
        return load(read_sealed(path, _CACHED))["features"]
    except OSError:  # not computed yet, or the cache cannot be read
        pass
    except DamagedFileError as error:
        warnings.warn(f"{error}. The features are computed again", stacklevel=2)
    started = clock.now()
    # Initialise it differently from the run's own network, so that the two are not related.
    model = make_model(config.model, splits.shape, len(splits.classes), config.seed + 1_000_003)
    trained = {
        "batch_size": min(config.batch_size, n),
        "seed": config.seed,
        "optimizer": partial(make_optimizer, config.optimizer),
        "progress": progress,
    }
    scorer, reader = Scorer(model), Reader(splits.train, scored, collate_of(splits.train), 0)
    if holdout_epochs:
        features = holdout_losses(scorer, reader, n, epochs=holdout_epochs, **trained).cpu()
    else:
        features = reference_features(scorer, reader, n, fraction=config.reference_fraction, **trained).cpu()
    seconds = torch.tensor(clock.now() - started)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_sealed(path, save({"features": features.contiguous(), "seconds": seconds}), _CACHED)
    except OSError as error:
        warnings.warn(
            f"the features of the reference model are not cached, so every run computes them again: {error}."
            " Set SMDL_CACHE to a folder that can be written to",
            stacklevel=2,
        )
    return features


def _fingerprint(dataset: Any, n: int) -> str:
    """Return a hash of the data: its length, its labels if they are in memory, and 64 samples, spread evenly."""
    found = hashlib.sha256(str(n).encode())
    if isinstance(dataset, InMemory):
        found.update(dataset.labels.numpy().tobytes())
    for index in range(0, n, max(1, n // 64)):
        inputs, target = dataset[index][:2]
        found.update(torch.as_tensor(inputs).contiguous().cpu().numpy().tobytes())
        found.update(str(int(target)).encode())
    return found.hexdigest()
