"""Observed: candidates whose features are known from the training forwards."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.common.messages import names_checked, number, one_of, whole_number
from smdl.common.names import FeatureType
from smdl.common.saved_state import SavedState
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection
from smdl.loading.candidates.base import Candidates, DatasetEpoch, one_row_each, planned_batch, saved_batch
from smdl.loading.candidates.random_pool import deal
from smdl.loading.ranks import Ranks
from smdl.loading.strategies.strategy import drawn
from smdl.scoring.batches import height, take
from smdl.scoring.feature_cache import TYPES, FeatureCache
from smdl.scoring.observation import Observation
from smdl.scoring.scorer import Scorer


class _Planned(NamedTuple):
    """A batch that is chosen but not trained on yet."""

    selection: Selection  # of all ranks
    step: int  # at which it was chosen
    rescored: np.ndarray  # samples that are read along and forwarded, so that their features are new
    own: Selection | None = None  # what this rank chose; None if that is a part of the selection

    @staticmethod
    def of(state: dict[str, Any], samples: int) -> "_Planned":
        """Return a batch of a saved state."""
        saved = SavedState("a planned batch", state, (*saved_batch(drawn(np.zeros(0))), "step", "rescored"))
        batch = planned_batch({key: saved[key] for key in state if key not in ("step", "rescored")}, samples)
        return _Planned(batch, saved.count("step"), saved.rows("rescored", samples))

    def rows(self, ranks: Ranks) -> np.ndarray:
        """Return the samples that a rank reads."""
        return np.concatenate([ranks.share(self.selection.indices), ranks.share(self.rescored)])


@names_checked
@dataclass
class Observed(Candidates):
    """Candidates are a random pool of factor × batch size, as for RandomPool, but nothing is forwarded to score them:
    their features are those of their last training forward, with the current head applied to them.

    Only the samples that are trained on are read. Samples that were never seen are taken first.

    Args:
        factor: size of the pool, in batches
        lag: a batch is chosen this many steps before it is trained on, so that workers can read it meanwhile. None is
            the number of workers: without workers nothing is chosen ahead.
        start: epochs that are plain passes over the data, before selection starts
        rescore: samples forwarded afresh per step, as a fraction of the batch size: those whose features are oldest
        dtype: how features are kept: float16, bfloat16 or float32
        device: where: "model" is the model's device, "cpu" is main memory
        sketch: keep this many random projections instead of the features. The head cannot be applied to them, so
            probabilities are those of the last forward.
        observe: "auto": hooks on the model take the features. "manual": your loop calls `loader.observe(features=...,
            logits=...)`, as it must if it changes inputs on the device (mixup). Then give the loader the head too
            (`head=model.fc`): without it, probabilities are those of that forward.

    Raises:
        ValueError: a number or a choice that cannot work.

    Examples:
        >>> import smdl, torch
        >>> from torch.utils.data import TensorDataset
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> data = TensorDataset(torch.randn(40, 4), torch.arange(40) % 2)
        >>> loader = smdl.DataLoader(data, model, 10, candidates=smdl.Observed(factor=2, dtype="float32"))
        >>> [len(model(inputs)) for inputs, _ in loader]
        [10, 10, 10, 10]
    """

    factor: float = 3.0
    lag: int | None = None
    start: int = 1
    rescore: float = 0.0
    dtype: FeatureType = "float16"
    device: Literal["cpu", "model"] = "model"
    sketch: int | None = None
    observe: Literal["auto", "manual"] = "auto"
    needs_features = True
    splits = True

    def __post_init__(self) -> None:
        self._cache: FeatureCache | None = None
        self._window: deque[_Planned] = deque()
        self._observed_at = np.zeros(0, np.int64)  # the number of the last observation of each sample
        self._observations = 0
        # Floats, so that 3 and 3.0 are one: saved states are compared by their text.
        self.factor = number("factor", self.factor, "a number ≥ 1", low=1.0)
        self.rescore = number("rescore", self.rescore, "a number ≥ 0", low=0.0)
        self.lag = None if self.lag is None else whole_number("lag", self.lag, 0)
        self.start = whole_number("start", self.start, 0)
        one_of("dtype", self.dtype, TYPES)
        one_of("device", self.device, ("cpu", "model"))
        one_of("observe", self.observe, ("auto", "manual"))
        if self.sketch is not None:
            self.sketch = whole_number("sketch", self.sketch)

    def set_workers(self, workers: int) -> int:
        self.lag = workers if self.lag is None else self.lag
        return self.lag

    @property
    def watches_model(self) -> bool:  # type: ignore[override]
        return self.observe == "auto"

    def begin(self, samples: int) -> None:
        self._window.clear()
        if self._cache is None:
            self._cache = FeatureCache(samples, self.dtype, self.device, self.sketch)
            self._observed_at = np.full(samples, -1, np.int64)

    def remember(self, scorer: Scorer, rows: np.ndarray, seen: Observation, labels: Tensor | None) -> None:
        assert self._cache is not None
        assert seen.features is not None
        self._cache.write(scorer, rows, seen.found, seen.features, seen.logits, labels)
        self._observations += 1
        self._observed_at[rows] = self._observations  # also if a row was not found: it is not rescored again at once

    def forget_features(self) -> None:
        if self._cache is not None:
            self._cache.forget()

    def batches(self, epoch: DatasetEpoch) -> Iterator[tuple[Selection, Any]]:
        """A batch is chosen when the batch `lag` steps before it is asked for, however many workers read."""
        assert self.lag is not None
        assert self._cache is not None
        self._cache.count_seen()
        pools, ranks = self._pools(epoch), epoch.ranks
        waiting = deque((epoch.first_step + k, planned.rows(ranks)) for k, planned in enumerate(self._window))
        next_planned, read = epoch.first_step + len(waiting), None
        for step in range(epoch.first_step, len(epoch)):
            while next_planned < min(step + self.lag + 1, len(epoch)):
                self._window.append(self._plan(epoch, pools, next_planned, step))
                waiting.append((next_planned, self._window[-1].rows(ranks)))
                next_planned += 1
            if read is None or (self.lag == 0 and epoch.reader.workers > 0):  # workers asked for more, and got the end
                read = epoch.read(_taken_from(waiting))
            rows, batch, _ = next(read)
            planned = self._window.popleft()
            if height(batch) != len(rows):
                raise ValueError(one_row_each(height(batch), len(rows)))
            if len(planned.rescored):
                batch = self._rescore(epoch, planned, batch)
            self.staleness = step - planned.step
            yield epoch.own_part(planned.selection) if planned.own is None else planned.own, batch

    def _pools(self, epoch: DatasetEpoch) -> list[np.ndarray]:
        sizes = epoch.pool_sizes(1.0 if epoch.number < self.start else self.factor)
        return list(deal(epoch.samples, sizes, epoch.deck()))

    def _plan(self, epoch: DatasetEpoch, pools: list[np.ndarray], step: int, now: int) -> _Planned:
        """Choose the batch of a step, with the features and the head of this moment."""
        rescored, ahead = np.zeros(0, np.int64), step + (self.lag or 0) + 1  # chosen right after this batch was read
        if self.rescore and epoch.number >= self.start and ahead < len(epoch):
            oldest = np.argsort(self._observed_at[pools[ahead]], kind="stable")
            count = epoch.ranks.size * min(math.ceil(self.rescore * epoch.batch_size), len(oldest) // epoch.ranks.size)
            rescored = pools[ahead][oldest[:count]]
        if len(pools[step]) == epoch.ranks.size * epoch.size(step):
            return _Planned(drawn(pools[step]), now, rescored)
        if epoch.together:
            return _Planned(self._choose(epoch, pools[step], step), now, rescored)
        own = self._choose(epoch, epoch.ranks.share(pools[step]), step)
        return _Planned(epoch.put_together(own), now, rescored, own)

    def _choose(self, epoch: DatasetEpoch, rows: np.ndarray, step: int) -> Selection:
        """Choose among these samples: those never seen first, the rest by the strategy."""
        assert self._cache is not None
        size = epoch.size(step) * (epoch.ranks.size if epoch.together else 1)
        if not epoch.strategy.needs_scores:
            return epoch.choose(None, np.arange(len(rows)), size, step, epoch.together).renumbered(rows)
        with epoch.clock("scoring"):
            first, pool = self._scored(epoch, rows, size)
        if pool is None:
            return drawn(first)
        assert pool.rows is not None
        places = np.arange(len(pool))
        chosen = epoch.choose(pool, places, size - len(first), step, epoch.together).renumbered(pool.rows)
        if len(first) == 0:
            return chosen
        gains = np.concatenate([np.zeros(len(first)), chosen.gains])
        weights = None if chosen.weights is None else np.concatenate([np.ones(len(first)), chosen.weights])
        return Selection(np.concatenate([first, chosen.indices]), gains, chosen.value, weights=weights)

    def _scored(self, epoch: DatasetEpoch, rows: np.ndarray, size: int) -> tuple[np.ndarray, Pool | None]:
        """Return samples that need no choice, and the scores of the candidates for the rest of the batch."""
        assert self._cache is not None
        read = epoch.strategy.evidence
        # First, because ranks may differ below, and a sharded head is collective.
        found = self._cache.scores(epoch.scorer, rows, losses=read is None or "losses" in read)
        if len(rows) == size or found is None:
            return rows[:size], None
        (scores, seen), first = found, rows[:0]
        if seen is not None:
            first = rows[~seen][:size]
            if len(first) == size:
                return first, None
            if not seen.all():
                rows, at = rows[seen], torch.from_numpy(seen)
                scores = scores.each(lambda values: values[at])
        pool = epoch.scorer.pool(scores, None if epoch.reference is None else epoch.reference[rows])
        pool.rows = rows
        return first, pool

    def _rescore(self, epoch: DatasetEpoch, planned: _Planned, batch: Any) -> Any:
        """Forward the samples that were read along, and return the batch without them."""
        size, rows = len(epoch.ranks.share(planned.selection.indices)), height(batch)
        with epoch.clock("scoring"):
            forwarded = epoch.scorer.forward(take(batch, np.arange(size, rows)))
            outputs = epoch.scorer.kept.outputs(forwarded.outputs, forwarded.targets)
            kept = (forwarded.features, outputs, epoch.scorer.kept.targets(forwarded.targets))
            features, outputs, targets = (None if part is None else epoch.ranks.gather(part) for part in kept)
            self.remember(epoch.scorer, planned.rescored, Observation(None, outputs, features), targets)
        return take(batch, np.arange(size))

    def forget_plan(self) -> None:
        self._window.clear()

    def state_dict(self) -> dict[str, Any]:
        assert self._cache is not None
        window = [
            {**saved_batch(one.selection), "step": one.step, "rescored": torch.from_numpy(one.rescored)}
            for one in self._window
        ]
        return {
            "cache": self._cache.state_dict(),
            "window": window,
            "observed_at": torch.from_numpy(self._observed_at.copy()),
            "observations": self._observations,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert self._cache is not None
        saved, samples = SavedState("the state of Observed", state, self.state_dict()), len(self._observed_at)
        window = [_Planned.of(one, samples) for one in saved["window"]]
        observed_at = saved.whole("observed_at", samples, least=-1)
        observations = saved.count("observations")
        self._cache.load_state_dict(saved["cache"])
        self._window, self._observed_at, self._observations = deque(window), observed_at, observations


def _taken_from(waiting: deque[tuple[int, np.ndarray]]) -> Iterator[tuple[int, np.ndarray]]:
    """Yield what is waiting. More may be added meanwhile."""
    while waiting:
        yield waiting.popleft()
