"""Progress of a download or of reading files: a bar on a terminal, elsewhere a line every ten seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

EVERY = 10.0  # seconds between two lines


@contextmanager
def progress_bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the amount that was done since the last call."""
    if not sys.stderr.isatty():
        yield _lines(title, total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda more: bar.advance(task, more)


def _lines(title: str, total: int) -> Callable[[int], None]:
    """Print a line every EVERY seconds; none if everything is done before."""
    done, last = 0, time.monotonic()

    def advance(more: int) -> None:
        nonlocal done, last
        done += more
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            print(f"{title}: {100 * done / max(total, 1):.0f} %", file=sys.stderr, flush=True)

    return advance
