"""RandomPool: a fresh random pool at every step."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from smdl.batches import height, take
from smdl.candidates.source import Candidates, DatasetEpoch, one_row_each
from smdl.errors import number
from smdl.selection import Selection


@dataclass
class RandomPool(Candidates):
    """Candidates are a fresh random pool of factor × batch size, scored and selected from at every step."""

    factor: float = 3.0

    def __post_init__(self) -> None:
        # A float, so that 3 and 3.0 are one: saved states are compared by their text.
        self.factor = number("factor", self.factor, "a number ≥ 1", low=1.0)

    def batches(self, epoch: DatasetEpoch) -> Iterator[tuple[Selection, Any]]:
        """Workers read the pools ahead: those do not depend on the model. Scoring waits for the weights of its step."""
        sizes = [min(epoch.samples, math.ceil(self.factor * epoch.size(step))) for step in range(len(epoch))]
        pools = enumerate(deal(epoch.samples, sizes, epoch.deck()))
        plan = islice(pools, epoch.first_step, None)
        scored = epoch.both and epoch.strategy.needs_scores
        for step, (rows, batch, scoring) in enumerate(epoch.read(plan, scored), start=epoch.first_step):
            if height(batch) != len(rows):
                raise ValueError(one_row_each(height(batch), len(rows)))
            pool = epoch.score_rows(batch if scoring is None else scoring, rows)
            chosen = epoch.choose(pool, np.arange(len(rows)), epoch.size(step), step)
            with epoch.clock("data"):
                batch = take(batch, chosen.indices)
            yield chosen.renumbered(rows), batch


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
