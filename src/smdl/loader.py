"""DataLoader: batches chosen with the model that is about to train on them."""

import math
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from smdl.batches import height, take
from smdl.candidates import (
    Full,
    RandomPool,
    Refresh,
    at_most,
    bounds,
    check_batch_size,
    check_count,
    check_refresh,
    check_replacement,
    check_size_penalty,
    deal,
    make_strategy,
    pool_sizes,
)
from smdl.errors import choice
from smdl.loss_hook import loss_hook
from smdl.objective import Objective
from smdl.pool import Pool, host
from smdl.randomness import stream
from smdl.reading import Reader, Request, check_dataset
from smdl.reference_model import in_order, reference_features
from smdl.scoring import Features, Forward, Scorer, Targets
from smdl.selection import Selection
from smdl.strategies.strategy import Size, Strategy

# What the streams of random numbers below a loader's seed are for.
_DECK, _STEP, _READ = range(3)
_OURS = ("shuffle", "sampler", "batch_sampler", "generator", "in_order")


class DataLoader:
    """Stands where torch.utils.data.DataLoader stood; the model chooses among the candidates at every step.

    dataset            map-style; items as its collate_fn likes them
    model              the one in training; scored as it is at that step, and left as it was
    batch_size         or (fewest, most) with size_penalty: stop, after the fewest, once the best gain is below it
    strategy           smdl, uniform (SGD), loss (Loshchilov & Hutter), or a Strategy
    objective          of smdl: recommended, paper, paper_subset, or an Objective
    refresh            RandomPool(factor=3): a fresh random pool of 3 batches, scored at every step (the default);
                       Full(every=5): all of V scored every 5 steps (the default of paper; short: refresh_every=5)
    replacement        with Full: a sample may come again within an epoch (Algorithm 2 to the letter)
    reference          for feature_match: features (N, M), or a model that gives them; trained here unless given
    features, forward, targets: how to score batches and models of another form, see `smdl.scoring.Scorer`
    scoring_dataset    the same samples with the evaluation transform; the dataset itself unless given
    seed               of everything that is drawn here; the global generators are left alone
    options            of torch's DataLoader: collate_fn, pin_memory, worker_init_fn, prefetch_factor, ...
    """

    def __init__(
        self,
        dataset: Dataset,
        model: nn.Module,
        batch_size: Size = 50,
        *,
        strategy: str | Strategy = "smdl",
        objective: str | Objective | None = None,
        refresh: Refresh | None = None,
        refresh_every: int | None = None,
        replacement: bool = False,
        size_penalty: float | None = None,
        reference: Tensor | np.ndarray | nn.Module | None = None,
        features: Features = None,
        forward: Forward | None = None,
        targets: Targets | None = None,
        scoring_dataset: Dataset | None = None,
        scoring_batch_size: int = 500,
        drop_last: bool = False,
        num_workers: int = 0,
        seed: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        for name in _OURS:
            if name in options:
                raise ValueError(f"{name} is smdl's own business here: choose a strategy= and a seed= instead")
        self.dataset, self.model = dataset, model
        self._n = check_dataset(dataset)
        if scoring_dataset is not None and check_dataset(scoring_dataset, "scoring_dataset") != self._n:
            raise ValueError(f"scoring_dataset must have the dataset's {self._n} samples, got {len(scoring_dataset)}")  # type: ignore[arg-type]
        self.batch_size = check_batch_size(batch_size, self._n)
        self.strategy = make_strategy(strategy, objective, size_penalty)
        check_size_penalty(self.strategy, self.batch_size)
        self.refresh = check_refresh(self.strategy, objective, refresh, refresh_every)
        self.replacement = check_replacement(self.strategy, self.refresh, replacement)
        self._key = stream(seed)
        self.drop_last, self.seed = drop_last, int(seed)
        self._scorer = Scorer(model, forward=forward, targets=targets, features=features)
        self._scoring_batch_size = check_count("scoring_batch_size", scoring_batch_size)
        self._reader = Reader(dataset, scoring_dataset, collate_fn, num_workers, **options)
        self._both = scoring_dataset is not None
        self._given_reference = _check_reference(reference, self._n)
        self._trained_reference: Tensor | None = None
        self.batch: Selection | None = None
        self.seconds = {"data": 0.0, "scoring": 0.0, "selection": 0.0}
        self._epoch, self._resumed = 0, False
        self._begin(0)

    def __len__(self) -> int:
        if isinstance(self.batch_size, tuple):
            raise TypeError(
                "a loader with an adaptive batch size has no len(): how many batches make an epoch is not known"
            )
        return self._n // self.batch_size if self.drop_last else math.ceil(self._n / self.batch_size)

    @property
    def epoch(self) -> int:
        """The epoch in hand; once its last batch is, the next."""
        return self._epoch

    @property
    def forwards(self) -> int:
        """Samples forwarded for scoring so far."""
        return self._scorer.samples

    def set_epoch(self, epoch: int) -> None:
        """The epoch the next iteration is; without it every iteration is the next one."""
        if not isinstance(epoch, int) or epoch < 0:
            raise ValueError(choice("epoch", epoch, "a whole number ≥ 0"))
        if not (self._resumed and epoch == self._epoch):  # the epoch of a loaded state goes on where it was
            self._begin(epoch)
            self._resumed = False

    def __iter__(self) -> Iterator[Any]:
        return self._iterate()

    def warm_up(self) -> None:
        """Compile what selection needs, on the first few samples: else the first step does, and takes seconds."""
        if not self.strategy.scores or self.strategy.learns:  # what learns would take this for a batch
            return
        seconds, samples = dict(self.seconds), self._scorer.samples
        _, high = bounds(self.batch_size)
        rows = np.arange(min(self._n, 3 * high))
        with torch.random.fork_rng(devices=[]):
            _, batch = next(iter(self._reader.read([Request(0, rows.tolist(), train=False, score=True)])))
        self.strategy.select(self._score_pool(batch, rows), rows, at_most(self.batch_size, len(rows)), self._rng())
        self.seconds, self._scorer.samples = seconds, samples

    def observe(self, losses: Tensor | np.ndarray) -> None:
        """The loss of each sample of the current batch, for strategies that learn from it. A hook on the model calls
        this by itself where the training forward returns logits; call it where it does not."""
        if self.batch is None:
            raise ValueError("observe takes the losses of the batch in hand, and none was handed out yet")
        values = host(losses) if isinstance(losses, Tensor) else np.asarray(losses)
        if values.shape != self.batch.indices.shape:
            raise ValueError(f"losses must be one a sample of the batch, {len(self.batch)}, got shape {values.shape}")
        self.strategy.observe(self.batch.indices, values.astype(np.float64))
        self._observed = True

    def state_dict(self) -> dict[str, Any]:
        """Everything that decides the batches still to come: tensors and plain values."""
        return {
            "run": self._run_signature(),
            "epoch": self._epoch,
            "step": self._step,
            "used": self._used,
            "taken": torch.from_numpy(self._taken.copy()),
            "window": [
                {"indices": torch.from_numpy(planned.indices), "gains": torch.from_numpy(planned.gains)}
                for planned in self._window
            ],
            "strategy": self.strategy.state_dict(),
            "reference": self._trained_reference,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: the next iteration is the rest of its epoch."""
        mine = self._run_signature()
        for name, value in mine.items():
            if state["run"].get(name) != value:
                raise ValueError(
                    f"this state is of a loader with {name} {state['run'].get(name)}, this one has {value}"
                )
        self._epoch, self._step, self._used = state["epoch"], state["step"], state["used"]
        self._taken = host(state["taken"]).copy()
        self._window = deque(
            Selection(host(planned["indices"]), host(planned["gains"]), float(planned["gains"].sum()))
            for planned in state["window"]
        )
        self.strategy.load_state_dict(state["strategy"])
        self._trained_reference = state["reference"]
        self._resumed = True

    def _run_signature(self) -> dict[str, Any]:
        low, high = bounds(self.batch_size)
        return {
            "samples": self._n,
            "batch_size": [low, high],
            "seed": self.seed,
            "strategy": self.strategy.describe(),
            "refresh": str(self.refresh),
            "replacement": self.replacement,
            "drop_last": self.drop_last,
        }

    _parts: list[Tensor]  # logits of a batch that was forwarded in parts

    def _begin(self, epoch: int) -> None:
        self._epoch, self._step, self._used = epoch, 0, 0
        self._window: deque[Selection] = deque()  # planned, not yet handed out
        tracked = isinstance(self.refresh, Full) and not self.replacement
        self._taken = np.zeros(self._n if tracked else 0, bool)

    def _iterate(self) -> Iterator[Any]:
        if not self._resumed and self._step:  # the last iteration was broken off: this is another epoch
            self._begin(self._epoch + 1)
        self._resumed = False
        batches = self._from_pools() if isinstance(self.refresh, RandomPool) else self._from_all()
        with loss_hook(self.model, self._hear if self.strategy.learns else None):
            for self.batch, batch in batches:
                self._step += 1
                self._used += len(self.batch)
                self._observed, self._parts = False, []
                if self.strategy.learns:
                    self._targets = self._scorer.targets(batch)
                ended = self._size() is None
                if ended:  # a state taken with the last batch in hand is that of the next epoch
                    self._begin(self._epoch + 1)
                yield batch
                if self.strategy.learns and not self._observed:
                    self._warn_unobserved()
                if ended:
                    return

    def _size(self) -> Size | None:
        """Of the batch of this step; None once the epoch is over."""
        low, high = bounds(self.batch_size)
        left = self._n - self._used
        if left >= high:
            return self.batch_size
        if left >= low:  # adaptive
            return (low, left)
        return None if left == 0 or self.drop_last else left

    def _rng(self) -> np.random.Generator:
        return np.random.default_rng(stream(self._key, _STEP, self._epoch, self._step))

    def _from_pools(self) -> Iterator[tuple[Selection, Any]]:
        """Workers read random pools ahead, which do not depend on the model; a step scores its pool and selects."""
        assert isinstance(self.refresh, RandomPool)
        scores = self.strategy.scores
        key, epoch, first, both = self._key, self._epoch, self._step, scores and self._both
        sizes = pool_sizes(self._n, self.batch_size, self.refresh.factor)
        pools = deal(self._n, sizes, np.random.default_rng(stream(key, _DECK, epoch)))
        waiting: deque[np.ndarray] = deque()  # read or being read

        def requests() -> Iterator[Request]:  # without self: the reader keeps it, and would keep the loader alive
            for step, pool in enumerate(pools):
                if step >= first:
                    waiting.append(pool)
                    yield Request(stream(key, _READ, epoch, step), pool.tolist(), score=both)

        self._reference()  # read before the pools: a reader follows one plan at a time
        read = self._reader.read(requests())
        while (size := self._size()) is not None:
            with self._clock("data"):
                batch, scoring = next(read)
            rows = waiting.popleft()
            if height(batch) != len(rows):
                raise ValueError(
                    f"collate_fn must make one row of each sample, got {height(batch)} rows of {len(rows)} samples"
                )
            pool = self._score_pool(batch if scoring is None else scoring, rows) if scores else None
            with self._clock("selection"):
                chosen = self.strategy.select(pool, np.arange(len(rows)), at_most(size, len(rows)), self._rng())
            with self._clock("data"):
                batch = take(batch, chosen.indices)
            yield chosen.renumbered(rows), batch

    def _from_all(self) -> Iterator[tuple[Selection, Any]]:
        """All of V is scored at a refresh; the batches up to the next one are chosen from those scores, so that
        workers may read them ahead. A strategy that learns chooses one batch at a time."""
        assert isinstance(self.refresh, Full)
        while self._size() is not None:
            if not self._window:
                self._plan(self.refresh.every)
            requests = [
                Request(stream(self._key, _READ, self._epoch, self._step + k), planned.indices.tolist())
                for k, planned in enumerate(self._window)
            ]
            read = self._reader.read(requests)
            while self._window:
                with self._clock("data"):
                    batch, _ = next(read)
                yield self._window.popleft(), batch

    def _plan(self, every: int) -> None:
        """Choose the batches from this step up to the next refresh."""
        pool = self._score_all() if self.strategy.scores and self._step % every == 0 else None
        count = 1 if self.strategy.learns else every - self._step % every
        step, used = self._step, self._used
        while count > 0 and (size := self._size()) is not None:
            with self._clock("selection"):
                remaining = np.arange(self._n) if self.replacement else np.flatnonzero(~self._taken)
                chosen = self.strategy.select(pool, remaining, at_most(size, len(remaining)), self._rng())
            if not self.replacement:
                self._taken[chosen.indices] = True
            self._window.append(chosen)
            count, self._step, self._used = count - 1, self._step + 1, self._used + len(chosen)
        self._step, self._used = step, used

    def _score_pool(self, batch: Any, rows: np.ndarray) -> Pool:
        reference = self._reference()
        with self._clock("scoring"):
            return self._scorer.pool(self._scorer(batch), None if reference is None else reference[rows])

    def _score_all(self) -> Pool:
        reference = self._reference()
        with self._clock("scoring"):
            read = self._reader.read(in_order(self._n, self._scoring_batch_size))
            scores = self._scorer.all((batch for _, batch in read), self._n)
            return self._scorer.pool(scores, reference)

    def _reference(self) -> Tensor | None:
        """M's features of the whole dataset, made at first use."""
        if not self.strategy.reference:
            return None
        if isinstance(self._given_reference, Tensor):
            return self._given_reference
        if self._trained_reference is None:
            _, high = bounds(self.batch_size)
            self._trained_reference = reference_features(
                self._scorer, self._reader, self._n, model=self._given_reference, batch_size=high, seed=self.seed
            ).cpu()
        return self._trained_reference

    @contextmanager
    def _clock(self, what: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[what] += time.perf_counter() - started

    def _hear(self, logits: Tensor) -> None:
        """A training forward of the batch in hand, whole or one part of it after the other (gradient accumulation):
        its losses are news to a strategy that learns."""
        self._parts.append(logits)
        if sum(map(len, self._parts)) > len(self._targets):  # what came before was some other forward
            self._parts = [logits]
        if sum(map(len, self._parts)) == len(self._targets):
            whole = torch.cat(self._parts).float()
            self._parts = []
            self.observe(F.cross_entropy(whole, self._targets.to(whole.device), reduction="none"))

    def _warn_unobserved(self) -> None:
        warnings.warn(
            f"strategy {type(self.strategy).__name__} learns from training losses and saw none of this batch: the model"
            " was not called in train mode with gradients on, or does not return logits. Call loader.observe(losses).",
            stacklevel=3,
        )


def _check_reference(reference: Any, n: int) -> Tensor | nn.Module | None:
    if reference is None or isinstance(reference, nn.Module):
        return reference
    tensor = torch.as_tensor(reference)
    if tensor.ndim != 2 or len(tensor) != n:
        raise ValueError(f"reference must be features of the {n} samples, (N, M), got shape {tuple(tensor.shape)}")
    return tensor
