"""The reference model M of feature_match: a copy of the network, trained for one epoch on a part of the data."""

import copy
import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam, Optimizer

from smdl.batches import move
from smdl.errors import choice
from smdl.pool import as_matrix
from smdl.randomness import stream
from smdl.reading import Reader, Request, in_order
from smdl.scoring import Scorer, check_targets, device_of, kept_generators

log = logging.getLogger("smdl")


class ReferenceFeatures:
    """The features of M for a dataset: given, or computed once by a given or a trained model."""

    def __init__(self, given: Any, samples: int) -> None:
        self._given, self._samples = check_reference(given, samples), samples
        self.trained: Tensor | None = None

    def compute(self, scorer: Scorer, reader: Reader, batch_size: int, seed: int) -> Tensor:
        """Return the features, (N, M); train the model at first use if none was given."""
        if isinstance(self._given, Tensor):
            return self._given
        if self.trained is None:
            self.trained = reference_features(
                scorer, reader, self._samples, model=self._given, batch_size=batch_size, seed=seed
            ).cpu()
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
        model = _train(
            scorer, reader, n, training, batch_size, seed, optimizer, lambda done: progress(done, training + n)
        )
    frozen = scorer.of(model)
    requests = in_order(n, max(batch_size, 256))

    def batches() -> Iterable[Any]:
        for k, (_, batch) in enumerate(reader.read(requests)):
            yield batch
            progress(training + min(n, (k + 1) * len(requests[0].rows)), training + n)

    return frozen.all(batches(), n).features


def _train(
    scorer: Scorer,
    reader: Reader,
    n: int,
    count: int,
    batch_size: int,
    seed: int,
    make_optimizer: Callable[[Any], Optimizer] | None,
    progress: Callable[[int], None],
) -> nn.Module:
    model = copy.deepcopy(scorer.model).train()
    optimizer = make_optimizer(model.parameters()) if make_optimizer else Adam(model.parameters(), lr=1e-3)
    order = np.random.default_rng(stream(seed, 3)).permutation(n)[:count]
    requests = [
        Request(stream(seed, 3, start), order[start : start + batch_size].tolist())
        for start in range(0, max(1, count - count % batch_size), batch_size)  # BatchNorm cannot train on one sample
    ]
    mine, device, done = scorer.of(model), device_of(model), 0
    with kept_generators(device):
        torch.manual_seed(stream(seed, 3))
        for request, (batch, _) in zip(requests, reader.read(requests), strict=True):
            batch = move(batch, device)
            logits, targets = mine.logits(batch), mine.targets(batch)
            check_targets(targets, logits.shape[1])
            loss = F.cross_entropy(logits.float(), targets)
            if not torch.isfinite(loss):
                raise ValueError(f"the reference model diverged: its loss is {loss.item()}; give reference= yourself")
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += len(request.rows)
            progress(done)
    return model.eval()
