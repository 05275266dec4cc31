"""RandomPool: a fresh random pool at every step."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from smdl.common.messages import names_checked, number
from smdl.engine.selection import Selection
from smdl.loading.candidates.base import Candidates, DatasetEpoch, one_row_each
from smdl.loading.candidates.class_quotas import deal_equally
from smdl.loading.ranks import Ranks
from smdl.loading.strategies.strategy import Strategy
from smdl.scoring.batches import height, join, take


@names_checked
@dataclass
class RandomPool(Candidates):
    """Candidates are a fresh random pool of factor × batch size, scored and selected from at every step at which the
    strategy selects; at the others it is the batch.

    Args:
        factor: size of the pool, in batches.

    Raises:
        ValueError: a factor below 1.

    Examples:
        >>> import smdl, torch
        >>> from torch.utils.data import TensorDataset
        >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        >>> data = TensorDataset(torch.randn(40, 4), torch.arange(40) % 2)
        >>> len(smdl.DataLoader(data, model, 10, candidates=smdl.RandomPool(factor=2)))
        4
    """

    factor: float = 3.0
    splits = True

    def __post_init__(self) -> None:
        # A float, so that 3 and 3.0 are one: saved states are compared by their text.
        self.factor = number("factor", self.factor, "a number ≥ 1", low=1.0)

    def check(self, strategy: Strategy) -> None:
        if not strategy.needs_passes or self.factor > 1:
            super().check(strategy)

    def batches(self, epoch: DatasetEpoch) -> Iterator[tuple[Selection, Any]]:
        """Workers read the pools ahead: those do not depend on the model. Scoring waits for the weights of its step."""
        if epoch.first_step == 0:
            epoch.strategy.begin_epoch(epoch.number)
        ranks = epoch.ranks
        plan = islice(
            ((step, ranks.share(rows)) for step, rows in enumerate(self._pools(epoch))), epoch.first_step, None
        )
        scored = epoch.both and epoch.strategy.needs_scores
        for step, (rows, batch, scoring) in enumerate(epoch.read(plan, scored), start=epoch.first_step):
            if height(batch) != len(rows):
                raise ValueError(one_row_each(height(batch), len(rows)))
            scoring = batch if scoring is None else scoring
            needed = epoch.selects(step) and epoch.strategy.needs_scores and epoch.strategy.scores_now()
            if epoch.together and needed == epoch.strategy.needs_scores:  # else each rank draws its own part
                yield self._choose_together(epoch, rows, batch, scoring, step)
                continue
            pool = epoch.score_rows(scoring, rows) if needed else None
            chosen = epoch.choose(pool, np.arange(len(rows)), epoch.size(step), step)
            if len(chosen) < len(rows) or not np.array_equal(chosen.indices, np.arange(len(rows))):
                with epoch.clock("data"):
                    batch = take(batch, chosen.indices)
            yield chosen.renumbered(rows), batch

    def _pools(self, epoch: DatasetEpoch) -> Iterator[np.ndarray]:
        """Yield the candidates of each step: samples that the strategy admits, if they are enough for a pool."""
        sizes, rows, classes = epoch.pool_sizes(self.factor), epoch.strategy.admitted, epoch.strategy.quotas
        if rows is None or len(rows) < max(sizes, default=0):
            rows = np.arange(epoch.samples)
        deck = epoch.deck()
        places = deal(len(rows), sizes, deck) if classes is None else deal_equally(classes[rows], sizes, deck)
        return (rows[chosen] for chosen in places)

    def _choose_together(
        self, epoch: DatasetEpoch, rows: np.ndarray, batch: Any, scoring: Any, step: int
    ) -> tuple[Selection, Any]:
        """Choose among the candidates of all ranks, and return the part of this rank."""
        ranks, rows = epoch.ranks, epoch.ranks.gather_rows(rows)
        pool, size = epoch.score_rows(scoring, rows, together=True), ranks.size * epoch.size(step)
        chosen = epoch.choose(pool, np.arange(len(rows)), size, step, together=True)
        with epoch.clock("data"):
            places, owners = np.divmod(chosen.indices, ranks.size)
            receivers = assign(owners, ranks.size)
            batch = deliver(ranks, batch, places, owners, receivers)
        return chosen.renumbered(rows).part(np.flatnonzero(receivers == ranks.number)), batch


def deal(n: int, sizes: list[int], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield pools of the given sizes (at most n) from a shuffled deck of 0..n-1.

    When the deck runs out, a new one is shuffled, and samples that the current pool holds already move to its end. So
    no pool holds a sample twice, and every sample is a candidate equally often, give or take one.
    """
    deck = rng.permutation(n)
    for size in sizes:
        if size > len(deck):
            fresh = rng.permutation(n)
            held = np.zeros(n, bool)
            held[deck] = True
            deck = np.concatenate([deck, fresh[~held[fresh]], fresh[held[fresh]]])
        yield deck[:size]
        deck = deck[size:]


def assign(owners: np.ndarray, ranks: int) -> np.ndarray:
    """Return the rank that trains on each sample, every rank on as many: the owner, who has read it, if possible."""
    each, receivers = len(owners) // ranks, np.full(len(owners), -1)
    for rank in range(ranks):
        receivers[np.flatnonzero(owners == rank)[:each]] = rank
    missing = each - np.bincount(receivers[receivers >= 0], minlength=ranks)
    receivers[receivers < 0] = np.repeat(np.arange(ranks), missing)
    return receivers


def deliver(ranks: Ranks, batch: Any, places: np.ndarray, owners: np.ndarray, receivers: np.ndarray) -> Any:
    """Return the samples that this rank receives, in their order. Sample i is row places[i] of the batch of its owner.
    Every rank must call this."""
    kept = np.flatnonzero((owners == ranks.number) & (receivers == ranks.number))
    parts, order = [take(batch, places[kept])], [kept]
    if (owners != receivers).any():
        sent = [np.flatnonzero((owners == rank) & (receivers != rank)) for rank in range(ranks.size)]
        for rows, part in zip(sent, ranks.gather_objects(take(batch, places[sent[ranks.number]])), strict=True):
            mine = np.flatnonzero(receivers[rows] == ranks.number)
            parts.append(take(part, mine))
            order.append(rows[mine])
    return take(join(parts), np.argsort(np.concatenate(order)))
