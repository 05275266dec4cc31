"""What a run shows while it trains: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

#: Seconds between two plain lines during an epoch.
EVERY = 30.0


class Display(Protocol):
    """Receives what happens in a run and shows it."""

    def note(self, text: str) -> None: ...
    def step(self, what: str, done: int, total: int, detail: str = "") -> None: ...
    def epoch(self, record: dict[str, Any], epochs: int) -> None: ...
    def close(self) -> None: ...


def display(quiet: bool = False) -> Display:
    """Return the display that suits standard output: a live table for a terminal, else plain lines."""
    if quiet:
        return Silent()
    return Terminal() if sys.stdout.isatty() else Lines()


class Silent:
    """Shows nothing."""

    def note(self, text: str) -> None: ...
    def step(self, what: str, done: int, total: int, detail: str = "") -> None: ...
    def epoch(self, record: dict[str, Any], epochs: int) -> None: ...
    def close(self) -> None: ...


class Lines(Silent):
    """Prints one line per epoch, and one line every half minute during a long epoch."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def note(self, text: str) -> None:
        print(text, flush=True)

    def step(self, what: str, done: int, total: int, detail: str = "") -> None:
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            print(f"  {what} {done}/{total} {detail}".rstrip(), flush=True)

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        self._last = time.monotonic()
        cells = dict(zip(COLUMNS, cells_of(record, epochs), strict=True))
        print("  ".join(f"{name} {cell}" for name, cell in cells.items()), flush=True)


class Terminal:
    """Shows a table with one row per epoch, and a bar below it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._rows: list[list[str]] = []
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[detail]}"),
            console=self._console,
        )
        self._task = self._bar.add_task("", total=None, detail="")
        self._live = Live(self._view(), console=self._console, refresh_per_second=4, transient=False)
        self._live.start()

    def note(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False)

    def step(self, what: str, done: int, total: int, detail: str = "") -> None:
        self._bar.update(self._task, description=what, completed=done, total=total, detail=detail)

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        self._rows.append(cells_of(record, epochs))
        self._live.update(self._view())

    def close(self) -> None:
        if self._live.is_started:
            self._bar.remove_task(self._task)
            self._live.update(self._view())
            self._live.stop()

    def _view(self) -> Group:
        table = Table(box=None, padding=(0, 2, 0, 0))  # fits 80 columns
        for name in COLUMNS:
            table.add_column(name.removeprefix("of it ").removesuffix("or"), justify="right")  # error: err
        room = max(5, self._console.height - 6)  # only the latest epochs of a long run fit; metrics.jsonl has all
        for row in self._rows[-room:]:
            table.add_row(*row)
        return Group(table, self._bar) if self._rows else Group(self._bar)


COLUMNS = ("epoch", "steps", "train loss", "train error", "test loss", "test error", "seconds", "of it selecting")


def cells_of(record: dict[str, Any], epochs: int) -> list[str]:
    """Format the record of an epoch, one string per column."""
    seconds = record["seconds"]
    training = seconds["data"] + seconds["scoring"] + seconds["selection"] + seconds["training"]
    selecting = seconds["scoring"] + seconds["selection"]
    return [
        f"{record['epoch'] + 1}/{epochs}",
        str(record["steps"]),
        _number(record["train_loss"], "{:.4f}"),
        _number(record["train_error"], "{:.2%}"),
        f"{record['test_loss']:.4f}",
        f"{record['test_error']:.2%}",
        f"{training:.1f}",
        f"{selecting / training:.0%}" if training else "",
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)
