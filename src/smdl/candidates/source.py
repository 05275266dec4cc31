"""Candidates, the base class of the sources, and Epoch, what a loader provides to them."""

import math
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.errors import check_keys
from smdl.observation import Observation
from smdl.pool import Pool, host
from smdl.randomness import stream
from smdl.reading import Reader, Request, in_order
from smdl.scoring import Scorer
from smdl.selection import Selection
from smdl.strategies.strategy import Strategy

# The streams of random numbers below a loader's seed.
_DECK, _STEP, _READ = range(3)


class Candidates:
    """A source of candidates. A source of your own overrides `batches`.

    plain_scoring    score samples with the evaluation transform, if the dataset has one, instead of the training one
    needs_features   `remember` gets the features and logits of every sample trained on
    watches_model    hooks on the model take them; otherwise the training loop calls `loader.observe`
    staleness        steps of training between the weights that chose the current batch and those that train on it
    """

    plain_scoring: bool = False
    needs_features: bool = False
    watches_model: bool = True
    staleness: int = 0

    def check(self, strategy: Strategy) -> None:
        """Raise a ValueError if this source cannot serve the strategy."""
        if strategy.needs_all:
            raise ValueError(
                f"{type(strategy).__name__} draws from the whole dataset: use candidates=smdl.Full(replacement=True),"
                f" got {self.describe()}"
            )

    def batches(self, epoch: Any) -> Iterator[tuple[Selection, Any]]:
        """Yield the selection (indices are those of the dataset) and the batch of each step, from
        `epoch.first_step` to the end. `epoch` is a DatasetEpoch."""
        raise NotImplementedError

    def begin(self, samples: int) -> None:
        """Forget the last epoch: the next one starts."""

    def set_workers(self, workers: int) -> int | None:  # noqa: ARG002
        """Take the number of workers. Return how many batches they may read ahead; None is no limit."""
        return None

    def prepare_epoch(self, epoch: Any, noisy: bool = False) -> None:
        """Do the work of the start of an epoch. `batches` calls it; a calibration times it, `noisy` if labels are."""

    def remember(self, scorer: Scorer, rows: np.ndarray, seen: Observation, labels: Tensor) -> None:
        """Take what the training forward computed for these samples of the dataset."""

    def skip_warm_up(self) -> None:
        """Behave as after the first epoch. Used to time a typical step."""

    def period(self, steps_per_epoch: int) -> int:  # noqa: ARG002
        """Return the number of steps after which the work repeats: a timing covers whole periods."""
        return 1

    def describe(self) -> str:
        """Return a text on which a saved state and the source that loads it must agree."""
        return repr(self) if is_dataclass(self) else type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to continue an epoch: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""


@dataclass
class Epoch:
    """One epoch of a loader, as a source sees it: the model's scores, random numbers, the clock, the strategy."""

    number: int  # index of the epoch
    first_step: int  # 0, or a later step if the epoch is resumed
    key: int
    strategy: Strategy
    scorer: Scorer
    seconds: dict[str, float]  # where `clock` adds the time spent

    def rng(self, step: int) -> np.random.Generator:
        """Return the random numbers of a step."""
        return np.random.default_rng(stream(self.key, _STEP, self.number, step))

    def score(self, batch: Any, reference: Tensor | None = None) -> Pool | None:
        """Score a batch with the model as it is now; None if the strategy needs no scores."""
        if not self.strategy.needs_scores:
            return None
        with self.clock("scoring"):
            return self.scorer.pool(self.scorer(batch), reference)

    def choose(self, pool: Pool | None, remaining: np.ndarray, size: int, step: int) -> Selection:
        """Let the strategy choose `size` of the rows in `remaining`, or all of them if there are fewer."""
        with self.clock("selection"):
            return self.strategy.select(pool, remaining, min(size, len(remaining)), self.rng(step))

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Add the time of the block to `seconds[part]`."""
        started = time.perf_counter()
        yield
        self.seconds[part] += time.perf_counter() - started


@dataclass
class DatasetEpoch(Epoch):
    """An epoch over a dataset, whose samples are known by their index."""

    samples: int  # in the dataset
    batch_size: int  # of every step but the last, see `size`
    drop_last: bool
    reader: Reader
    reference: Tensor | None  # features of the reference model for the whole dataset
    both: bool  # whether scoring reads the samples again, with another transform
    scoring_batch_size: int

    def __len__(self) -> int:
        """Return the number of steps."""
        return steps_per_epoch(self.samples, self.batch_size, self.drop_last)

    def size(self, step: int) -> int:
        """Return the size of the batch of a step."""
        return min(self.batch_size, self.samples - step * self.batch_size)

    def deck(self) -> np.random.Generator:
        """Return the random numbers that shuffle this epoch."""
        return np.random.default_rng(stream(self.key, _DECK, self.number))

    def read(
        self, plan: Iterable[tuple[int, np.ndarray]], score: bool = False
    ) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Yield (rows, batch, batch for scoring) for each (step, rows) of the plan; workers read it ahead.

        The last is None unless `score`. The plan must not refer to the loader: the reader keeps it.
        """
        waiting: deque[np.ndarray] = deque()
        read = self.reader.read(_requests(plan, self.key, self.number, score, waiting))
        while True:
            with self.clock("data"):
                found = next(read, None)
            if found is None:
                return
            yield waiting.popleft(), *found

    def score_rows(self, batch: Any, rows: np.ndarray) -> Pool | None:
        """Score a batch of these rows of the dataset."""
        return self.score(batch, None if self.reference is None else self.reference[rows])

    def score_all(self) -> Pool | None:
        """Score the whole dataset; None if the strategy needs no scores."""
        if not self.strategy.needs_scores:
            return None
        with self.clock("scoring"):
            read = self.reader.read(in_order(self.samples, self.scoring_batch_size))
            scores = self.scorer.all((batch for _, batch in read), self.samples)
            return self.scorer.pool(scores, self.reference)


def steps_per_epoch(samples: int, batch_size: int, drop_last: bool) -> int:
    """Return the number of batches of an epoch."""
    return samples // batch_size if drop_last else math.ceil(samples / batch_size)


def one_row_each(rows: int, samples: int) -> str:
    """Return the error for a batch that is not made of one row per sample."""
    return f"collate_fn must make one row of each sample, got {rows} rows of {samples} samples"


def planned_batch(state: dict[str, Any], samples: int, *more: str) -> Selection:
    """Return the selection of a saved batch, {"indices", "gains", *more}, checked."""
    check_keys("a planned batch", state, ("indices", "gains", *more))
    indices, gains = host(state["indices"]), host(state["gains"])
    whole = indices.dtype == np.int64 and indices.ndim == 1 and indices.shape == gains.shape
    if not whole or (len(indices) and not (indices.min() >= 0 and indices.max() < samples)):
        raise ValueError(f"a planned batch must be indices in 0..{samples - 1} with a gain each, got {indices}")
    return Selection(indices, gains, float(gains.sum()))


def saved_batch(selection: Selection) -> dict[str, Any]:
    """Return what `planned_batch` reads."""
    return {"indices": torch.from_numpy(selection.indices), "gains": torch.from_numpy(selection.gains)}


def _requests(
    plan: Iterable[tuple[int, np.ndarray]], key: int, epoch: int, score: bool, waiting: deque[np.ndarray]
) -> Iterator[Request]:
    for step, rows in plan:
        waiting.append(rows)
        yield Request(stream(key, _READ, epoch, step), rows.tolist(), score=score)
