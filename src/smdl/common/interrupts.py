"""Ctrl-C and SIGTERM: finish the current step, write a checkpoint, and say how to resume."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Interrupted(KeyboardInterrupt):
    """Stopped by a signal, with a checkpoint written."""

    def __init__(self, number: int, advice: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}; resume with {advice}")
        self.number, self.advice = number, advice

    def __reduce__(self) -> tuple[Any, ...]:  # it is sent from worker processes
        return Interrupted, (self.number, self.advice)


@contextmanager
def interruptible(stop: Callable[[int], None]) -> Iterator[None]:
    """Call `stop` with the number of the first SIGINT or SIGTERM, instead of ending. A second Ctrl-C ends at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int, frame: Any) -> None:  # noqa: ARG001
        signal.signal(signal.SIGINT, before[signal.SIGINT])
        stop(number)

    for number in before:
        signal.signal(number, receive)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
