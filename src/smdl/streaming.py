"""filter and pick: selection for those who bring their own loader, or are inside their own step."""

import math
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from smdl.batches import height, join, take
from smdl.candidates import make_strategy
from smdl.errors import choice
from smdl.objective import Objective, preset
from smdl.pool import Array, Pool
from smdl.randomness import stream
from smdl.scoring import Features, Forward, Scorer, Targets, check_logits
from smdl.selection import Selection, select
from smdl.strategies.strategy import Strategy


class Filter:
    """The selected part of a stream of batches; what `smdl.filter` returns. `batch` is the Selection behind the batch
    in hand: rows of the joined pool."""

    def __init__(
        self,
        loader: Iterable[Any],
        model: nn.Module,
        keep: float = 1 / 3,
        *,
        strategy: str | Strategy = "smdl",
        objective: str | Objective | None = None,
        reference: nn.Module | None = None,
        features: Features = None,
        forward: Forward | None = None,
        targets: Targets | None = None,
        seed: int = 0,
    ) -> None:
        if not isinstance(keep, int | float) or not 0 < keep <= 1:
            raise ValueError(choice("keep", keep, "a fraction in (0, 1]"))
        self.loader, self.keep = loader, keep
        self.strategy = make_strategy(strategy, objective, None)
        if self.strategy.learns:
            raise ValueError(
                f"strategy {type(self.strategy).__name__} follows each sample of a dataset; a stream has none"
            )
        if self.strategy.reference and reference is None:
            raise ValueError("feature_match needs reference=, a trained model, to score a stream")
        self.joined = math.ceil(1 / keep - 1e-9)  # 1 / (1/3) may round up
        self._scorer = Scorer(model, forward=forward, targets=targets, features=features)
        self._reference = None if reference is None else self._scorer.of(reference)
        self._key, self._epoch = stream(seed), 0
        self.batch: Selection | None = None
        self.seconds = {"data": 0.0, "scoring": 0.0, "selection": 0.0}

    def __len__(self) -> int:
        return math.ceil(len(self.loader) / self.joined)  # type: ignore[arg-type]

    @property
    def forwards(self) -> int:
        """Samples forwarded for scoring so far."""
        return self._scorer.samples

    def __iter__(self) -> Iterator[Any]:
        epoch, self._epoch = self._epoch, self._epoch + 1
        batches, step = iter(self.loader), 0
        while True:
            started = time.perf_counter()
            members = list(islice(batches, self.joined))
            if not members:
                return
            candidates = join(members)
            read = time.perf_counter()
            pool = self._pool(candidates)
            scored = time.perf_counter()
            n = len(pool) if pool is not None else height(candidates)
            rng = np.random.default_rng(stream(self._key, epoch, step))
            self.batch = self.strategy.select(pool, np.arange(n), max(1, round(n * self.keep)), rng)
            selected = time.perf_counter()
            for name, spent in zip(self.seconds, (read - started, scored - read, selected - scored), strict=True):
                self.seconds[name] += spent
            yield take(candidates, self.batch.indices)
            step += 1

    def _pool(self, candidates: Any) -> Pool | None:
        if not self.strategy.scores:
            return None
        reference = None if self._reference is None else self._reference(candidates).features
        return self._scorer.pool(self._scorer(candidates), reference)


def filter(loader: Iterable[Any], model: nn.Module, keep: float = 1 / 3, **options: Any) -> Filter:  # noqa: A001
    """Wrap any iterable of batches: 1/keep of them are joined into a pool, and the selected part of it is yielded.

    Options: strategy, objective, reference (a model), features, forward, targets and seed, as of `smdl.DataLoader`.
    """
    return Filter(loader, model, keep, **options)


def pick(
    features: Array,
    logits: Array,
    targets: Array,
    k: int,
    *,
    objective: str | Objective = "recommended",
    reference: Array | None = None,
    bias: bool = True,
    seed: int = 0,
) -> Any:
    """Indices of the k samples to train on, best first, for those who hold the logits already: a tensor on the
    features' device, or an array where they are one."""
    probabilities = check_logits(torch.as_tensor(logits).detach()).float().softmax(dim=1)
    pool = Pool(features, probabilities, targets, reference=reference, bias=bias)
    chosen = select(pool, preset(objective) if isinstance(objective, str) else objective, k, seed=seed)
    return torch.from_numpy(chosen.indices).to(features.device) if isinstance(features, Tensor) else chosen.indices
