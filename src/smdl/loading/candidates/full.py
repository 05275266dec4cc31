"""Full: the whole dataset, scored every few steps."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from smdl.common.messages import names_checked, true_or_false, whole_number
from smdl.common.saved_state import SavedState
from smdl.engine.selection import Selection
from smdl.loading.candidates.base import Candidates, DatasetEpoch, planned_batch, saved_batch
from smdl.loading.strategies.strategy import Strategy


@names_checked
@dataclass
class Full(Candidates):
    """Candidates are all samples that the epoch has not used yet, scored before steps 0, every, 2·every, …: the paper.

    The batches up to the next refresh (the window) are chosen from the same scores, so that workers may read them
    ahead. A strategy that needs losses chooses one batch at a time.

    Args:
        every: steps between two refreshes; None: one refresh per epoch
        replacement: a sample may come again within an epoch (Algorithm 2 to the letter)

    Raises:
        ValueError: `every` is not a whole number above 0.

    Examples:
        >>> import smdl, torch
        >>> from torch.utils.data import TensorDataset
        >>> data, model = TensorDataset(torch.randn(40, 4), torch.arange(40) % 2), torch.nn.Linear(4, 2)
        >>> loader = smdl.DataLoader(data, model, 10, objective="uncertainty", candidates=smdl.Full(every=2))
        >>> [len(targets) for _, targets in loader]
        [10, 10, 10, 10]
    """

    every: int | None = 5
    replacement: bool = False
    _window: deque[Selection] = field(default_factory=deque, init=False, repr=False, compare=False)
    _used: np.ndarray = field(default_factory=lambda: np.zeros(0, bool), init=False, repr=False, compare=False)
    _samples: int = field(default=0, init=False, repr=False, compare=False)
    plain_scoring = True
    splits = True

    def __post_init__(self) -> None:
        if self.every is not None:
            self.every = whole_number("every", self.every)
        true_or_false("replacement", self.replacement)

    def check(self, strategy: Strategy) -> None:
        if strategy.needs_passes or (strategy.needs_all and not self.replacement):
            super().check(strategy)
        if self.replacement and strategy.repeats:
            raise ValueError(
                'Full(replacement=True) needs a strategy that draws at random, such as optimizer="stochastic":'
                f" {strategy.describe()} would choose the same batch again until the next refresh"
            )

    def begin(self, samples: int) -> None:
        self._window.clear()
        self._samples = samples
        self._used = np.zeros(0 if self.replacement else samples, bool)

    def period(self, steps_per_epoch: int) -> int:
        """Return the number of steps between two refreshes."""
        return self.every or steps_per_epoch

    def batches(self, epoch: DatasetEpoch) -> Iterator[tuple[Selection, Any]]:
        step = epoch.first_step
        if step == 0:
            epoch.strategy.begin_epoch(epoch.number)
        while step < len(epoch):
            if not self._window:
                self._fill_window(epoch, step)
            plan = [(step + k, epoch.ranks.share(planned.indices)) for k, planned in enumerate(self._window)]
            for _, batch, _ in epoch.read(plan):
                self.staleness = step % self.period(len(epoch)) if epoch.strategy.needs_scores else 0
                step += 1
                yield epoch.own_part(self._window.popleft()), batch

    def _fill_window(self, epoch: DatasetEpoch, step: int) -> None:
        """Choose the batches from this step to the next refresh, for all ranks."""
        every = self.period(len(epoch))
        pool = epoch.score_all() if step % every == 0 or not epoch.strategy.needs_losses else None
        stop = step + 1 if epoch.strategy.needs_losses else step + every - step % every
        for planned in range(step, min(stop, len(epoch))):
            remaining = np.arange(epoch.samples) if self.replacement else np.flatnonzero(~self._used)
            chosen = epoch.choose(pool, remaining, epoch.ranks.size * epoch.size(planned), planned, together=True)
            if not self.replacement:
                self._used[chosen.indices] = True
            self._window.append(chosen)

    def forget_plan(self) -> None:
        for planned in () if self.replacement else self._window:
            self._used[planned.indices] = False
        self._window.clear()

    def state_dict(self) -> dict[str, Any]:
        return {"window": [saved_batch(one) for one in self._window], "used": torch.from_numpy(self._used.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        saved = SavedState("the state of Full", state, self.state_dict())
        window = [planned_batch(one, self._samples) for one in saved["window"]]
        used = saved.flags("used", len(self._used))
        self._used, self._window = used, deque(window)
