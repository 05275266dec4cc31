"""Loader: what DataLoader and SelectiveLoader share."""

from typing import Any

from smdl.distributed import check_one_rank
from smdl.errors import check_keys, whole_number
from smdl.methods import Method
from smdl.randomness import stream
from smdl.scoring import Scorer
from smdl.selection import Selection
from smdl.strategies.strategy import Strategy


class Loader:
    """A method, the count of epochs and steps, the clock, the state."""

    def __init__(self, method: Method, scorer: Scorer, seed: int) -> None:
        self.method = method
        self.strategy, self.candidates = method.make()
        self.seed = whole_number("seed", seed, 0)
        self._scorer, self._key = scorer, stream(self.seed)
        #: The selection behind the current batch.
        self.selection: Selection | None = None
        #: Seconds spent so far, by part.
        self.seconds = {"data": 0.0, "scoring": 0.0, "selection": 0.0}
        self._epoch = self._step = self._iterations = 0
        self._resumed = False

    @property
    def epoch(self) -> int:
        """Index of the current epoch. After the last batch of an epoch it is already the next one."""
        return self._epoch

    @property
    def staleness(self) -> int:
        """Steps of training between the weights that chose the current batch and those that train on it."""
        return self.candidates.staleness

    @property
    def forwards(self) -> int:
        """Number of samples forwarded for scoring so far."""
        return self._scorer.samples

    def state_dict(self) -> dict[str, Any]:
        """Return everything that decides the batches still to come: tensors and plain values."""
        return {
            "run": self._signature(),
            "epoch": self._epoch,
            "step": self._step,
            "candidates": self.candidates.state_dict(),
            "strategy": self.strategy.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume where `state` was taken: the next iteration is the rest of its epoch. A state that does not fit is
        refused and changes nothing."""
        check_keys("the state", state, self.state_dict())
        check_keys("the state's run", state["run"], self._signature())
        for name, value in self._signature().items():
            saved = state["run"][name]
            if saved != value:
                raise ValueError(f"this state belongs to a loader with {name} {saved}, this one has {value}")
        epoch, step = (
            whole_number("the state's epoch", state["epoch"], 0),
            whole_number("the state's step", state["step"], 0),
        )
        before = self.candidates.state_dict(), self.strategy.state_dict()
        try:
            self.candidates.load_state_dict(state["candidates"])
            self.strategy.load_state_dict(state["strategy"])
        except Exception:
            self.candidates.load_state_dict(before[0])
            self.strategy.load_state_dict(before[1])
            raise
        self._epoch, self._step, self._resumed = epoch, step, True
        self._iterations += 1  # an iteration that was under way cannot be continued

    def _signature(self) -> dict[str, Any]:
        return {"seed": self.seed, "strategy": self.strategy.describe(), "candidates": self.candidates.describe()}

    def _begin(self, epoch: int) -> None:
        self._epoch, self._step = epoch, 0

    def _start_iteration(self) -> int:
        """Return the number of this iteration. An epoch that was left half-way is over; a loaded one continues."""
        check_one_rank()
        if not self._resumed and self._step:
            self._begin(self._epoch + 1)
        self._resumed = False
        self._iterations += 1
        return self._iterations

    def _check_latest(self, iteration: int) -> None:
        if iteration != self._iterations:
            raise RuntimeError(
                "another iteration of this loader was started, or its epoch or state was set:"
                " only the latest iteration can be continued"
            )

    def _basics(self) -> tuple[int, int, int, Strategy, Scorer, dict[str, float]]:
        return self._epoch, self._step, self._key, self.strategy, self._scorer, self.seconds
