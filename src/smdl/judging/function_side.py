"""Time a training function of the user: it runs in a thread, a few steps at a time, while all others wait."""

import queue
import threading
import time
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import Dataset

from smdl.experiments.calibration import ROUNDS
from smdl.experiments.timed_side import STEPS, Stopwatch, TimedSide
from smdl.judging.run_loader import LoaderFactory, RunLoader
from smdl.loading.candidates.base import steps_per_epoch

if TYPE_CHECKING:
    from smdl.judging.own_loop import OwnTraining

#: Seconds that a function has to end after it was told to stop.
PATIENCE = 30.0


class _Stopped(BaseException):
    """Ends the function in the middle of its loop. Not an Exception: the function does not catch it by mistake."""


class FunctionSide(TimedSide):
    """A side of `take_turns`. The loader stops the function before a batch, until it is its turn again."""

    def __init__(self, work: "OwnTraining", dataset: Dataset, arm: str, changes: dict[str, Any]) -> None:
        """`changes` are what the arm changes: the method, its options, whether the last layer is fitted again."""
        self._work, self._arm = work, arm
        self.refit = changes.get("refit")
        self._orders, self._news = queue.SimpleQueue[str](), queue.SimpleQueue[Any]()
        self._left = 0  # steps of this turn
        self._loader: RunLoader | None = None
        self._setup = self.evaluation_seconds = 0.0
        per_epoch = steps_per_epoch(len(dataset), work.batch_size, False)  # type: ignore[arg-type]
        long = (ROUNDS + 2) * max(STEPS, per_epoch)  # a schedule must not end before the calibration does
        settings = (dataset, work.method(changes["method"], changes.get("options")), work.batch_size, 0, long)
        self._make_loader = LoaderFactory(*settings, self._before_step, changes.get("refit"))
        self._thread = threading.Thread(target=self._run, daemon=True)

    def turn(self) -> dict[str, float]:
        if self._loader is None:
            started = time.perf_counter()
            self._thread.start()
            self._hear("ready")
            self._setup = time.perf_counter() - started - (self.reference_seconds or 0.0)
        self._orders.put("train")
        return self._hear("turn")

    def facts(self) -> dict[str, Any]:
        threads = self._work.threads or torch.get_num_threads()
        return {**super().facts(), "setup_seconds": self._setup, "threads": threads}

    def finish(self) -> None:
        """Let the function end as after its last batch: this times its evaluation and checks what it returns."""
        started = time.perf_counter()
        self._orders.put("end")
        self._work.checked(self._hear("returned"))
        self.evaluation_seconds = time.perf_counter() - started

    def close(self) -> None:
        """End the thread."""
        self._orders.put("stop")
        if self._thread.is_alive():
            self._thread.join(PATIENCE)

    def _hear(self, expected: str) -> Any:
        """Wait for the function; raise its error in this thread."""
        kind, content = self._news.get()
        if kind == "error":
            content.add_note(f"while method {self._arm} was timed, before any run")
            raise content
        if kind != expected:
            raise ValueError(
                f"the training function ended after {0 if self._loader is None else self._loader.step} batches while it"
                " was timed: it must iterate over make_loader(model) until that ends"
            )
        return content

    def _run(self) -> None:
        torch.set_num_threads(torch.get_num_threads())  # a new thread starts with the default number
        try:
            self._news.put(("returned", self._work.train(self._make_loader, 0)))
        except _Stopped:
            pass
        except BaseException as error:
            self._news.put(("error", error))

    def _before_step(self, loader: RunLoader) -> bool:
        """In the function's thread: go on, or report and wait."""
        if self._left == 0:
            if self._loader is None:
                self._loader = loader
                self.begin(loader.loader)
                self._news.put(("ready", None))
            else:
                self._news.put(("turn", self._watch.per_step(self.steps)))
            order = self._orders.get()
            if order == "stop":
                raise _Stopped
            if order == "end":
                return False
            self._left = self.steps
            self._watch = Stopwatch(self.loader)
        self._left -= 1
        return True
