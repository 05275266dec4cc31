"""Loader: what DataLoader and SelectiveLoader share."""

import warnings
from typing import Any, NoReturn

import torch

from smdl.common.messages import whole_number
from smdl.common.saved_state import SavedState, check_keys
from smdl.engine.randomness import stream
from smdl.engine.selection import Selection
from smdl.loading.methods import Method
from smdl.loading.ranks import Ranks, current_ranks
from smdl.loading.strategies.strategy import Strategy
from smdl.scoring.scorer import Scorer
from smdl.scoring.training_watch import TrainingWatch


class Loader:
    """A method, the count of epochs and steps, the clock, the ranks, the state."""

    def __init__(
        self, method: Method, scorer: Scorer, seed: int | None, process_group: Any, together: bool = False
    ) -> None:
        self.method = method
        self.strategy, self.candidates = method.make()
        scorer.criterion.require(self.strategy.evidence)
        #: None was drawn from torch's generator.
        self.seed = int(torch.randint(2**31, ())) if seed is None else whole_number("seed", seed, 0)
        self.scorer, self._key = scorer, stream(self.seed)
        self._selection: Selection | None = None  # of the current batch
        self._selection_was_read = False  # by the training loop
        #: Seconds spent so far, by part.
        self.seconds = {"data": 0.0, "scoring": 0.0, "selection": 0.0}
        self._watch = TrainingWatch(scorer.model)
        self._epoch = self._step = self._iterations = 0
        self._resumed = False
        self._group, self._ranks, self._together = process_group, Ranks(), together

    @property
    def epoch(self) -> int:
        """Index of the current epoch. After the last batch of an epoch it is already the next one."""
        return self._epoch

    @property
    def step(self) -> int:
        """Number of batches of the current epoch so far. After the last one it is 0: the next epoch begins."""
        return self._step

    @property
    def sampler(self) -> NoReturn:
        """None: what asks for it would build a plain loader from it, and selection would be lost."""
        raise AttributeError(
            f"smdl.{type(self).__name__} has no sampler: the model in training chooses its batches. To skip batches or"
            " to resume, use its load_state_dict: with Accelerate register_for_checkpointing(loader) instead of"
            " prepare and skip_first_batches, with transformers smdl.integrations.transformers.SelectiveTrainer"
        )

    batch_sampler = sampler

    @property
    def selection(self) -> Selection | None:
        """The selection behind the current batch."""
        self._selection_was_read = True
        return self._selection

    @property
    def staleness(self) -> int:
        """Steps of training between the weights that chose the current batch and those that train on it."""
        return self.candidates.staleness

    @property
    def forwards(self) -> int:
        """Number of samples forwarded for scoring so far."""
        return self.scorer.samples

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
        saved = SavedState("the state", state, self.state_dict())
        check_keys("the state's run", saved["run"], self._signature())
        self._check_run(state)
        epoch, step = saved.count("epoch"), saved.count("step")
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

    def _check_run(self, state: dict[str, Any]) -> None:
        """Raise an error if the state is that of another run."""
        for name, value in self._signature().items():
            saved = state["run"][name]
            if saved != value:
                raise ValueError(f"this state belongs to a loader with {name} {saved}, this one has {value}")

    def _signature(self) -> dict[str, Any]:
        return {"seed": self.seed, "strategy": self.strategy.describe(), "candidates": self.candidates.describe()}

    def _begin(self, epoch: int) -> None:
        self._epoch, self._step = epoch, 0

    def _start_iteration(self) -> int:
        """Return the number of this iteration. An epoch that was left half-way is over; a loaded one continues."""
        self._ranks = current_ranks(self._group)
        if self._ranks.size > 1:
            self._check_ranks()
        self._finish_step()
        if not self._resumed and self._step:
            self._begin(self._epoch + 1)
        self._resumed = False
        self._iterations += 1
        if self._ranks.size > 1 and not self.strategy.needs_label_evidence:
            self.scorer.criterion.decide(None, None)
        if self.strategy.needs_scores or self.strategy.needs_losses:
            self._watch.start()
        return self._iterations

    def _check_ranks(self) -> None:
        """Raise an error on every rank if the ranks would not train on parts of the same batches."""
        if not self.candidates.splits:
            raise ValueError(
                f"{self.candidates.describe()} does not give every rank its own samples: there are {self._ranks.size}"
                " ranks. Use epoch.ranks in its `batches`, and set `splits = True`"
            )
        if self.strategy.gathers and self.candidates.needs_features and not self._together:
            raise ValueError(
                f"{type(self.strategy).__name__} compares the candidates of all ranks at every step, and with"
                f" {type(self.candidates).__name__} a rank may have none to compare: use"
                ' ranks="global", or candidates=smdl.RandomPool()'
            )
        self._ranks.agree({**self._signature(), **self._agreed(), **self._position()})

    def _agreed(self) -> dict[str, Any]:
        """Return what all ranks must have in common besides the signature."""
        return {}

    def _position(self) -> dict[str, Any]:
        """Return where the loader is, in words of an error."""
        return {"the epoch": self._epoch, "the step": self._step, "whether a state was loaded": self._resumed}

    def _finish_step(self) -> None:
        """Pass on what is known of the last batch, if it was not passed on yet."""

    def _warn_unweighted(self) -> None:
        """Warn once if the training loop cannot have used the weights of the current batch."""
        if self._selection_was_read or self._selection is None or self._selection.weights is None:
            return
        self._selection_was_read = True
        warnings.warn(
            f"method {self.method.name} weights the losses of its samples, and the training loop did not ask for the"
            " weights: compute the loss by smdl.weighted_mean(losses, loader.selection), with one loss per sample",
            stacklevel=3,
        )

    def _check_latest(self, iteration: int) -> None:
        if iteration != self._iterations:
            raise RuntimeError(
                "another iteration of this loader was started, or its epoch or state was set:"
                " only the latest iteration can be continued"
            )

    def _basics(self) -> tuple[int, int, int, Strategy, Scorer, dict[str, float], Ranks, bool]:
        together = self._together and self._ranks.size > 1
        return self._epoch, self._step, self._key, self.strategy, self.scorer, self.seconds, self._ranks, together
