"""Models that are trained before the run: the reference model M of feature_match, a copy of the network that is trained
for one epoch on a part of the data, and the two holdout models of rho_loss, each trained on one half of the data."""

import copy
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from smdl.common.messages import choice
from smdl.engine.pool import as_matrix
from smdl.engine.randomness import stream
from smdl.scoring.losses import Scores
from smdl.scoring.model_access import device_of, kept_generators
from smdl.scoring.reading import Reader, ReadRequest
from smdl.scoring.scorer import Scorer
from smdl.scoring.training_step import descend, training_losses

log = logging.getLogger("smdl")


class ReferenceFeatures:
    """The features of M for a dataset, or its losses by holdout models: given, or computed once by a given or a trained
    model."""

    def __init__(self, given: Any, samples: int, holdout_epochs: int = 0) -> None:
        self._given, self._samples, self._holdout_epochs = check_reference(given, samples), samples, holdout_epochs
        if holdout_epochs and isinstance(self._given, Tensor) and self._given.shape[1] != 1:
            raise ValueError(f"reference must be irreducible losses, (N, 1), got shape {tuple(self._given.shape)}")
        self.trained: Tensor | None = None

    def compute(self, scorer: Scorer, reader: Reader, batch_size: int, seed: int) -> Tensor:
        """Return the features, (N, M), or the losses, (N, 1); train the models at first use if none was given."""
        if isinstance(self._given, Tensor):
            return self._given
        if self.trained is None:
            more = {"model": self._given, "batch_size": batch_size, "seed": seed}
            if self._holdout_epochs:
                found = holdout_losses(scorer, reader, self._samples, epochs=self._holdout_epochs, **more)
            else:
                found = reference_features(scorer, reader, self._samples, **more)
            self.trained = found.cpu()
        return self.trained


def check_reference(reference: Any, samples: int) -> Tensor | nn.Module | None:
    """Return features as a tensor; raise a ValueError unless they have a row per sample."""
    if reference is None or isinstance(reference, nn.Module):
        return reference
    tensor = as_matrix("reference", reference)
    if len(tensor) != samples:
        raise ValueError(
            f"reference must be features of the {samples} samples, (N, M), got shape {tuple(tensor.shape)}"
        )
    return tensor


def reference_features(
    scorer: Scorer,
    reader: Reader,
    n: int,
    *,
    model: nn.Module | None = None,
    fraction: float = 0.5,
    batch_size: int = 50,
    seed: int = 0,
    optimizer: Callable[[Any], Optimizer] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Tensor:
    """Return M's features of all n samples, (n, D).

    M is `model`, or a copy of the scorer's model that is trained here on a random `fraction` of the data. `progress` is
    called with the number of samples done and the total.
    """
    training = 0 if model is not None else math.ceil(fraction * n)
    if not 0 < fraction <= 1:
        raise ValueError(choice("fraction", fraction, "in (0, 1]"))
    if model is None:
        log.info("training the reference model on %d of %d samples, once", training, n)
        rows = np.random.default_rng(stream(seed, 3)).permutation(n)[:training]
        model = _train(
            scorer, reader, rows, 1, batch_size, (seed, 3), optimizer, lambda done: progress(done, training + n)
        )
    rows = np.arange(n)
    return _scores(
        scorer.of(model), reader, rows, batch_size, lambda done: progress(training + done, training + n)
    ).features


def holdout_losses(
    scorer: Scorer,
    reader: Reader,
    n: int,
    *,
    epochs: int,
    model: nn.Module | None = None,
    batch_size: int = 50,
    seed: int = 0,
    optimizer: Callable[[Any], Optimizer] | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> Tensor:
    """Return the irreducible loss of all n samples, (n, 1): by `model`, or by a copy of the scorer's model that is
    trained here for `epochs` on the half of the data that does not hold the sample."""
    if model is not None:
        scores = _scores(scorer.of(model), reader, np.arange(n), batch_size, lambda done: progress(done, n))
        return scores.known_losses()[:, None]
    if n < 2:
        raise ValueError(f"holdout models need at least 2 samples, one per half, got {n}; give reference= yourself")
    log.info("training two holdout models for %d epochs, each on a half of %d samples, once", epochs, n)
    halves = np.array_split(np.random.default_rng(stream(seed, 4)).permutation(n), 2)
    found, done = torch.zeros(n), 0

    def report(now: int) -> None:
        progress(done + now, (epochs + 1) * n)

    for number, (rows, others) in enumerate((halves, halves[::-1])):
        trained = _train(scorer, reader, rows, epochs, batch_size, (seed, 4, number), optimizer, report)
        done += epochs * len(rows)
        scores = _scores(scorer.of(trained), reader, others, batch_size, report)
        found[torch.from_numpy(others)] = scores.known_losses().cpu()
        done += len(others)
    return found[:, None]


def _scores(
    scorer: Scorer, reader: Reader, rows: np.ndarray, batch_size: int, progress: Callable[[int], None]
) -> Scores:
    """Return the scores of these samples."""
    size = max(batch_size, 256)
    parts = [rows[start : start + size].tolist() for start in range(0, len(rows), size)]
    requests = [ReadRequest(0, part, train=False, score=True) for part in parts]

    def batches() -> Iterable[Any]:
        for k, (_, batch) in enumerate(reader.read(requests)):
            yield batch
            progress(min(len(rows), (k + 1) * size))

    return scorer.all(batches(), len(rows))


def _train(
    scorer: Scorer,
    reader: Reader,
    rows: np.ndarray,
    epochs: int,
    batch_size: int,
    key: tuple[int, ...],
    make_optimizer: Callable[[Any], Optimizer] | None,
    progress: Callable[[int], None],
) -> nn.Module:
    """Return a copy of the scorer's model, trained on these samples: in their order, then in a new order per epoch."""
    model = copy.deepcopy(scorer.model).train()
    optimizer = make_optimizer(model.parameters()) if make_optimizer else Adam(model.parameters(), lr=1e-3)
    rng, requests = np.random.default_rng(stream(*key, 1)), list[ReadRequest]()
    size = min(batch_size, len(rows))
    for epoch in range(epochs):
        order, first = rng.permutation(rows) if epoch else rows, epoch * len(rows)
        requests += [
            ReadRequest(stream(*key, first + start), order[start : start + size].tolist())
            for start in range(0, len(rows) - len(rows) % size, size)  # BatchNorm cannot train on one sample
        ]
    mine, device, done = scorer.of(model), device_of(model), 0
    with kept_generators(device):
        torch.manual_seed(stream(*key))
        for request, (batch, _) in zip(requests, reader.read(requests), strict=True):
            loss = training_losses(mine, batch, "pass loss=, or give reference= yourself").mean()
            if not torch.isfinite(loss):
                raise ValueError(f"a reference model diverged: its loss is {loss.item()}; give reference= yourself")
            descend(optimizer, loss)
            done += len(request.rows)
            progress(done)
    return model.eval()
