"""Stream: the batches of any iterable, a few joined at a time."""

import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from typing import Any

import numpy as np

from smdl.common.messages import number
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.candidates.base import Candidates, Epoch
from smdl.loading.ranks import Ranks
from smdl.loading.strategies.strategy import Strategy
from smdl.scoring.batches import checksum, height, join, take
from smdl.scoring.padding import Padding, same_length
from smdl.scoring.scorer import Scorer


@dataclass
class StreamEpoch(Epoch):
    """An epoch over an iterable of batches."""

    stream: Iterable[Any]  # at the first batch to be read
    reference: Scorer | None  # scores a batch by the reference model
    padding: Padding = None  # fills rows of different lengths

    def __post_init__(self) -> None:
        self.stream, self.last_count = iter(self.stream), 0  # batches that were joined last

    def read(self, count: int) -> Any:
        """Return the next `count` batches, joined; None at the end of the stream."""
        with self.clock("data"):
            members = list(islice(self.stream, count))
            self.last_count = len(members)
            return join(same_length(members, self.padding)) if members else None

    def ended(self) -> bool:
        """Whether the stream has no more batches. A wrapped loader that was asked for one has the state of its next
        epoch; before, it would resume with nothing."""
        more = list(islice(self.stream, 1))
        self.stream = chain(more, self.stream)
        return not more

    def score_batch(self, batch: Any) -> Pool | None:
        """Score a batch with the model and, if there is one, the reference model."""
        reference = None
        if self.reference is not None:
            with self.clock("scoring"):
                found = self.reference(batch)
                reference = found.known_losses()[:, None] if self.strategy.needs_holdout else found.features
        return self.score(batch, reference)


@dataclass
class Stream(Candidates):
    """Candidates are 1/keep batches of an iterable, joined, of which one batch is selected. If 1/keep is no whole
    number, the number of joined batches changes from step to step: 2, 3, 2, 3, … for keep=0.4."""

    keep: float = 1 / 3
    splits = True

    def __post_init__(self) -> None:
        self.keep = number("keep", self.keep, "a fraction in (0, 1]", low=sys.float_info.min, high=1.0)
        self._share = Fraction(self.keep).limit_denominator(10**6) or Fraction(self.keep)  # 1/3 is meant to be 1/3

    def read_before(self, step: int) -> int:
        """Return the number of batches that the steps before this one join."""
        return math.floor(step / self._share)

    def steps(self, batches: int) -> int:
        """Return the number of steps for so many batches."""
        return math.ceil(batches * self._share)

    def check(self, strategy: Strategy) -> None:
        if strategy.needs_losses or strategy.needs_labels or strategy.needs_all:
            raise ValueError(f"{type(strategy).__name__} tracks each sample of a dataset; a stream has no such samples")
        if strategy.needs_length:
            raise ValueError(f"{type(strategy).__name__} needs the length of the run, which a stream does not have")

    def batches(self, epoch: Any) -> Iterator[tuple[Selection, Any]]:
        """Yield the selection (indices are rows of the joined batches) and the batch of each step."""
        assert isinstance(epoch, StreamEpoch)
        step = epoch.first_step
        while (candidates := epoch.read(joined := self.read_before(step + 1) - self.read_before(step))) is not None:
            if step == epoch.first_step:
                _check_shares(epoch.ranks, candidates)
            pool, rows = epoch.score_batch(candidates), height(candidates)
            share = 1 / joined if epoch.last_count == joined else self.keep
            chosen = epoch.choose(pool, np.arange(rows), max(1, round(rows * share)), step)
            yield chosen, take(candidates, chosen.indices)
            step += 1


def _check_shares(ranks: Ranks, candidates: Any) -> None:
    """Raise an error on every rank if all ranks read the same samples."""
    if ranks.size > 1 and len(set(ranks.gather_objects(checksum(candidates)))) == 1:
        raise RuntimeError(
            f"every rank reads the same batches: the wrapped loader must give each of the {ranks.size} ranks its own,"
            " for example by torch.utils.data.DistributedSampler"
        )
