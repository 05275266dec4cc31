"""From a config to the objects of a run."""

import hashlib
import json
import math
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.utils.data import Dataset, Subset

from smdl.candidates import Full, RandomPool
from smdl.errors import unknown
from smdl.loader import DataLoader
from smdl.objective import Objective, preset
from smdl.reading import Reader
from smdl.reference_model import reference_features
from smdl.scoring import Scorer
from smdl.strategies.loss_rank import LossRank
from smdl.strategies.registry import STRATEGIES
from smdl.strategies.strategy import Strategy
from smdl.strategies.submodular import Submodular
from smdl.training.config import OptimizerConfig, TrainConfig
from smdl.training.datasets.in_memory import InMemory, identity_collate
from smdl.training.datasets.load import Splits
from smdl.training.factory import from_factory
from smdl.training.files import cache_folder, replacing
from smdl.training.models import make_model

_PAPERS = ("paper", "paper_subset")  # searched as the paper does unless the config says otherwise
Progress = Callable[[int, int], None]


def make_objective(config: TrainConfig) -> Objective:
    """The preset, with what else was given on top; or the given weights alone."""
    given = config.objective.given()
    name = config.objective.preset
    if name is None and not any(term in given for term in Objective.terms()):
        name = "recommended"
    if name is None:
        return Objective(**given)
    base = preset(name)
    return Objective(**{**base.weights, **base.options, **given})


def make_strategy(config: TrainConfig, steps_per_epoch: int) -> Strategy:
    """The strategy of that name, with its part of the config."""
    if ":" in config.strategy:
        return from_factory(config.strategy, "strategy", Strategy, config=config)
    if config.strategy == "loss":
        rank, epochs = config.loss_rank, config.epochs
        if config.steps is not None:
            epochs = math.ceil(config.steps / steps_per_epoch)
        return LossRank(
            (rank.pressure, rank.pressure_end), epochs=epochs, sort_every=rank.sort_every, recompute=rank.recompute
        )
    if config.strategy != "smdl":
        if config.strategy not in STRATEGIES:
            raise ValueError(unknown("strategy", config.strategy, STRATEGIES) + ", or package.module:Class")
        return STRATEGIES[config.strategy]()
    paper, selection = config.objective.preset in _PAPERS, config.selection
    return Submodular(
        make_objective(config),
        optimizer=selection.optimizer or ("stochastic" if paper else "auto"),
        partitions=selection.partitions or (10 if paper else 1),
        epsilon=selection.epsilon,
        size_penalty=selection.size_penalty,
    )


def make_refresh(config: TrainConfig, steps_per_epoch: int) -> Full | RandomPool | None:
    """Where candidates come from, where the config or the preset says so."""
    selection = config.selection
    if selection.pool_factor is not None:
        return RandomPool(selection.pool_factor)
    if selection.refresh_every is not None:
        return Full(selection.refresh_every)
    if config.strategy == "loss" and config.loss_rank.recompute:
        return Full(steps_per_epoch)
    return Full() if config.strategy == "smdl" and config.objective.preset in _PAPERS else None


def make_loader(config: TrainConfig, splits: Splits, model: nn.Module, progress: Progress) -> DataLoader:
    """The loader of a run; the reference model is trained (or found in the cache) here, where it is needed."""
    train, size = splits.train, config.batch_size
    most = size[-1] if isinstance(size, list) else size
    steps_per_epoch = max(1, len(train) // most if config.drop_last else math.ceil(len(train) / most))  # type: ignore[arg-type]
    strategy = make_strategy(config, steps_per_epoch)
    refresh = make_refresh(config, steps_per_epoch)
    return DataLoader(
        train,
        model,
        (size[0], size[1]) if isinstance(size, list) and len(size) == 2 else most,
        strategy=strategy,
        refresh=refresh,
        replacement=config.selection.replacement,
        reference=_reference(config, splits, progress) if strategy.reference else None,
        scoring_dataset=evaluated(train) if isinstance(refresh, Full) and evaluated(train) is not train else None,
        drop_last=config.drop_last,
        num_workers=config.num_workers,
        seed=config.seed,
        collate_fn=collate_of(train),
    )


def make_optimizer(config: OptimizerConfig, parameters: Any) -> Optimizer:
    """Of the weights."""
    if config.name == "sgd":
        return SGD(
            parameters, config.lr, momentum=config.momentum, weight_decay=config.weight_decay, nesterov=config.nesterov
        )
    kind = AdamW if config.name == "adamw" else Adam
    return kind(parameters, config.lr, weight_decay=config.weight_decay)


def make_loss(config: TrainConfig) -> nn.Module:
    """A loss of torch.nn by name."""
    losses = {name: kind for name, kind in vars(nn).items() if name.endswith("Loss") and isinstance(kind, type)}
    if config.loss not in losses:
        raise ValueError(unknown("loss", config.loss, losses))
    try:
        return losses[config.loss](**config.loss_options)
    except TypeError as error:
        raise ValueError(f"loss_options do not fit {config.loss}: {error}") from error


def evaluated(dataset: Dataset) -> Dataset:
    """The same samples with the evaluation transform."""
    return dataset.plain() if isinstance(dataset, InMemory) else dataset


def collate_of(dataset: Dataset) -> Callable[[Any], Any] | None:
    """Data in memory comes as whole batches already."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return identity_collate if isinstance(dataset, InMemory) else None


def _reference(config: TrainConfig, splits: Splits, progress: Progress) -> Tensor:
    """The reference model's features of the training set, cached on disk by all that they depend on."""
    from safetensors.torch import load_file, save

    scored, n = evaluated(splits.train), len(splits.train)  # type: ignore[arg-type]
    batch_size = config.batch_size[-1] if isinstance(config.batch_size, list) else config.batch_size
    depends = {
        "data": [_fingerprint(scored, n), repr(getattr(splits.train, "augmentation", None))],
        "device": config.device,
        "threads": config.threads,
        "model": asdict(config.model),
        "optimizer": asdict(config.optimizer),
        "fraction": config.selection.reference_fraction,
        "batch_size": batch_size,
        "seed": config.seed,
        "torch": torch.__version__,
    }
    key = hashlib.sha256(json.dumps(depends, sort_keys=True).encode()).hexdigest()[:20]
    path = cache_folder() / "reference" / f"{key}.safetensors"
    if path.exists():
        try:
            return load_file(path)["features"]
        except Exception as error:
            warnings.warn(f"{path} is damaged and made anew: {error}", stacklevel=2)
    # Another initialisation than the run's own network, or M would resemble it by descent.
    model = make_model(config.model, splits.shape, len(splits.classes), config.seed + 1_000_003)
    features = reference_features(
        Scorer(model),
        Reader(splits.train, scored, collate_of(splits.train), 0),
        n,
        fraction=config.selection.reference_fraction,
        batch_size=min(batch_size, n),
        seed=config.seed,
        optimizer=partial(make_optimizer, config.optimizer),
        progress=progress,
    ).cpu()
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(save({"features": features.contiguous()}, {key: json.dumps(depends)}))
    return features


def _fingerprint(dataset: Any, n: int) -> str:
    """Of the data: its length, its labels where they are at hand, and 64 samples of it, spread evenly."""
    found = hashlib.sha256(str(n).encode())
    if isinstance(dataset, InMemory):
        found.update(dataset.labels.numpy().tobytes())
    for index in range(0, n, max(1, n // 64)):
        inputs, target = dataset[index][:2]
        found.update(torch.as_tensor(inputs).contiguous().cpu().numpy().tobytes())
        found.update(str(int(target)).encode())
    return found.hexdigest()
