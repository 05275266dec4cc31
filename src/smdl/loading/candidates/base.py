"""Candidates, what a batch is chosen from, and Epoch, what a loader provides to them."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.common import clock
from smdl.common.saved_state import SavedState
from smdl.engine.pool import Pool
from smdl.engine.randomness import stream
from smdl.engine.selection import Selection
from smdl.loading.ranks import Ranks
from smdl.loading.strategies.strategy import Strategy
from smdl.loading.strategies.uniform import Uniform
from smdl.scoring.observation import Observation
from smdl.scoring.reading import Reader, ReadRequest, in_order
from smdl.scoring.scorer import Scorer

# The streams of random numbers below a loader's seed.
_DECK, _STEP, _READ = range(3)


class Candidates:
    """What each batch is chosen from, and when that is scored. Candidates of your own override `batches`.

    Attributes:
        plain_scoring: score samples with the evaluation transform, if the dataset has one, instead of the training one
        needs_features: `remember` gets the features and logits of every sample trained on
        watches_model: hooks on the model take them; otherwise the training loop calls `loader.observe`
        staleness: steps of training between the weights that chose the current batch and those that train on it
        splits: `batches` gives every rank its own part: `epoch.ranks` tells which ranks there are

    Examples:
        >>> import smdl
        >>> [issubclass(kind, smdl.Candidates) for kind in (smdl.RandomPool, smdl.Observed, smdl.Full)]
        [True, True, True]
    """

    plain_scoring: bool = False
    needs_features: bool = False
    watches_model: bool = True
    staleness: int = 0
    splits: bool = False

    def check(self, strategy: Strategy) -> None:
        """Raise a ValueError if these candidates cannot serve the strategy."""
        if strategy.needs_passes:
            raise ValueError(
                f"{type(strategy).__name__} draws shuffled samples: leave out candidates={self.describe()}, or use"
                ' method="observed"'
            )
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

    def forget_plan(self) -> None:
        """Forget the batches that are chosen but not trained on: another number of ranks resumes the epoch."""

    def set_workers(self, workers: int) -> int | None:  # noqa: ARG002
        """Take the number of workers. Return how many batches they may read ahead; None is no limit."""
        return None

    def remember(self, scorer: Scorer, rows: np.ndarray, seen: Observation, labels: Tensor | None) -> None:
        """Take what the training forward computed for these samples of the dataset."""

    def forget_features(self) -> None:
        """Forget what `remember` took: it was not what it seemed to be."""

    def describe(self) -> str:
        """Return a text on which a saved state and the candidates that load it must agree."""
        return repr(self) if is_dataclass(self) else type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs to continue an epoch: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""


@dataclass
class Epoch:
    """One epoch of a loader, as candidates see it: the model's scores, random numbers, the clock, the strategy."""

    number: int  # index of the epoch
    first_step: int  # 0, or a later step if the epoch is resumed
    key: int
    strategy: Strategy
    scorer: Scorer
    seconds: dict[str, float]  # where `clock` adds the time spent
    ranks: Ranks
    together: bool  # whether the ranks choose from all their candidates together: ranks="global"

    def rng(self, step: int, together: bool = False) -> np.random.Generator:
        """Return the random numbers of a step: those of this rank, or those that all ranks share."""
        path = () if together else self.ranks.path
        return _generator(stream(self.key, _STEP, self.number, step, *path))

    def score(self, batch: Any, reference: Tensor | None = None, together: bool = False) -> Pool | None:
        """Score a batch with the model as it is now; None if the strategy needs no scores. `together`: return the
        scores of the batches of all ranks, put together."""
        if not self.strategy.needs_scores:
            return None
        with self.clock("scoring"):
            scores = self.scorer(batch)
            return self.scorer.pool(scores.each(self.ranks.gather) if together else scores, reference)

    def choose(
        self, pool: Pool | None, remaining: np.ndarray, size: int, step: int, together: bool = False
    ) -> Selection:
        """Let the strategy choose `size` of the rows in `remaining`, or all of them if there are fewer. `together`:
        all ranks have the same pool and make the same choice, for all of them."""
        size = min(size, len(remaining))
        if not self.selects(step):
            return Uniform().select(None, remaining, size, self.rng(step, together))
        late = LateGenerator(lambda: self.rng(step, together))
        rng: Any = late if self.strategy.draws_seldom else late.generator
        shared = together and self.ranks.size > 1
        self.strategy.spread = self.ranks.spread if shared else None
        if self.ranks.size > 1:
            self.strategy.gather = self.ranks.gather_rows
        with self.clock("selection"):
            chosen = self.strategy.select(pool, remaining, size, rng)
            return chosen.each(self.ranks.first) if shared and self.strategy.needs_scores else chosen

    def selects(self, step: int) -> bool:  # noqa: ARG002
        """Whether the strategy chooses at this step; otherwise the batch is drawn at random."""
        return True

    def own_part(self, chosen: Selection) -> Selection:
        """Return this rank's part of a selection for all ranks."""
        return chosen if self.ranks.size == 1 else chosen.part(slice(self.ranks.number, None, self.ranks.size))

    def put_together(self, own: Selection) -> Selection:
        """Return what all ranks chose, each for itself. Every rank must call this, whether its picks have weights or
        not."""
        if self.ranks.size == 1:
            return own
        weights = np.ones(len(own)) if own.weights is None else own.weights
        indices, found = self.ranks.gather_rows(own.indices), self.ranks.gather_rows(np.stack([own.gains, weights], 1))
        factors = None if (found[:, 1] == 1).all() else found[:, 1].copy()
        return Selection(indices, found[:, 0].copy(), float(found[:, 0].sum()), weights=factors)

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Add the time of the block to `seconds[part]`."""
        started = clock.now()
        yield
        self.seconds[part] += clock.now() - started


@dataclass
class DatasetEpoch(Epoch):
    """An epoch over a dataset, whose samples are known by their index."""

    samples: int  # in the dataset
    batch_size: int  # of every step but the last, on every rank; see `size`
    drop_last: bool
    reader: Reader
    reference: Tensor | None  # features of the reference model for the whole dataset
    both: bool  # whether scoring reads the samples again, with another transform
    scoring_batch_size: int

    def __len__(self) -> int:
        """Return the number of steps."""
        return steps_per_epoch(self.samples, self.batch_size, self.drop_last, self.ranks.size)

    def selects(self, step: int) -> bool:
        return self.strategy.selects_at(self.number, step, len(self))

    def size(self, step: int) -> int:
        """Return the size of the batch of a step on every rank."""
        return min(self.batch_size, self.samples // self.ranks.size - step * self.batch_size)

    def pool_sizes(self, factor: float) -> list[int]:
        """Return the number of candidates of each step, of all ranks: for each rank, factor × its batch."""
        ranks, most = self.ranks.size, self.samples // self.ranks.size
        sizes = [
            math.ceil(factor * self.size(step)) if self.selects(step) else self.size(step) for step in range(len(self))
        ]
        return [ranks * min(most, size) for size in sizes]

    def deck(self) -> np.random.Generator:
        """Return the random numbers that shuffle this epoch."""
        return _generator(stream(self.key, _DECK, self.number))

    def read(
        self, plan: Iterable[tuple[int, np.ndarray]], score: bool = False
    ) -> Iterator[tuple[np.ndarray, Any, Any]]:
        """Yield (rows, batch, batch for scoring) for each (step, rows) of the plan; workers read it ahead.

        The last is None unless `score`. The plan must not refer to the loader: the reader keeps it.
        """
        waiting: deque[np.ndarray] = deque()
        read = self.reader.read(_requests(plan, (self.key, _READ, self.number), self.ranks.path, score, waiting))
        while True:
            with self.clock("data"):
                found = next(read, None)
            if found is None:
                return
            yield waiting.popleft(), *found

    def score_rows(self, batch: Any, rows: np.ndarray, together: bool = False) -> Pool | None:
        """Score a batch of these rows of the dataset. `together`: the rows are those of all ranks."""
        pool = self.score(batch, None if self.reference is None else self.reference[rows], together)
        if pool is not None:
            pool.rows = rows
        return pool

    def score_all(self) -> Pool | None:
        """Score the whole dataset; None if the strategy needs no scores."""
        if not self.strategy.needs_scores:
            return None
        with self.clock("scoring"):
            requests = in_order(self.samples, self.scoring_batch_size)
            # Every rank scores as many batches, because a forward may be collective.
            own = self.ranks.share(requests + [requests[-1]] * (-len(requests) % self.ranks.size))
            batches = (batch for _, batch in self.reader.read(own))
            scores = self.scorer.all(batches, sum(len(request.rows) for request in own))
            if self.ranks.size > 1:
                size = len(requests[0].rows)
                scores = scores.each(lambda value: self._put_together(value, len(own), size))
            pool = self.scorer.pool(scores, self.reference)
            pool.rows = np.arange(self.samples)
            return pool

    def _put_together(self, mine: Tensor, batches: int, size: int) -> Tensor:
        """Return the scores of all samples from those of each rank, `batches` of `size` rows; the last may be short."""
        padded = mine.new_zeros(batches * size, *mine.shape[1:])
        padded[: len(mine)] = mine
        return self.ranks.gather(padded.unflatten(0, (batches, size))).flatten(0, 1)[: self.samples]


class LateGenerator:
    """A random generator that is made when it is first asked for a number."""

    def __init__(self, make: Callable[[], np.random.Generator]) -> None:
        self._make = make

    @cached_property
    def generator(self) -> np.random.Generator:
        return self._make()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what copies ask for
            raise AttributeError(name)
        return getattr(self.generator, name)


def _generator(key: int) -> np.random.Generator:
    """Return the same as `np.random.default_rng` in two thirds of the time."""
    return np.random.Generator(np.random.PCG64(key))


def steps_per_epoch(samples: int, batch_size: int, drop_last: bool, ranks: int = 1) -> int:
    """Return the number of batches of an epoch. Every rank has as many samples: up to `ranks` - 1 are left out."""
    each = samples // ranks
    return each // batch_size if drop_last else math.ceil(each / batch_size)


def one_row_each(rows: int, samples: int) -> str:
    """Return the error for a batch that is not made of one row per sample."""
    return f"collate_fn must make one row of each sample, got {rows} rows of {samples} samples"


def planned_batch(state: dict[str, Any], samples: int) -> Selection:
    """Return the selection of a batch that `saved_batch` saved, checked."""
    saved = SavedState("a planned batch", state, ("indices", "gains", "weights"))
    indices = saved.rows("indices", samples)
    gains = saved.numbers("gains", len(indices))
    weights = None if saved["weights"] is None else saved.numbers("weights", len(indices), finite=True)
    return Selection(indices, gains, float(gains.sum()), weights=weights)


def saved_batch(selection: Selection) -> dict[str, Any]:
    """Return what `planned_batch` reads."""
    weights = None if selection.weights is None else torch.from_numpy(selection.weights)
    indices, gains = torch.from_numpy(selection.indices), torch.from_numpy(selection.gains)
    return {"indices": indices, "gains": gains, "weights": weights}


def _requests(
    plan: Iterable[tuple[int, np.ndarray]],
    epoch: tuple[int, int, int],
    rank: tuple[int, ...],
    score: bool,
    waiting: deque[np.ndarray],
) -> Iterator[ReadRequest]:
    for step, rows in plan:
        waiting.append(rows)
        yield ReadRequest(stream(*epoch, step, *rank), rows.tolist(), score=score)
