"""What a command shows while it works: a live table on a terminal, plain lines elsewhere."""

import sys
import time
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from smdl.common.units import duration

#: Seconds between two plain lines during an epoch.
EVERY = 30.0


@dataclass(frozen=True)
class ArmProgress:
    """How far an arm of a comparison is."""

    arm: str
    done: int  # seeds whose runs are all finished
    seeds: int
    score: str  # mean of the finished runs at the primary endpoint
    seconds_left: float | None  # None in a comparison that is not timed


class Display:
    """Receives what happens in a run or a comparison. This one shows nothing."""

    def note(self, text: str) -> None: ...
    def phase(self, what: str) -> None: ...
    def step(self, what: str, done: int, total: int, detail: str = "") -> None: ...
    def epoch(self, record: dict[str, Any], epochs: int) -> None: ...
    def arms(self, arms: list[ArmProgress]) -> None: ...
    def close(self) -> None: ...


def display(quiet: bool = False) -> Display:
    """Return the display that suits standard output: a live table for a terminal, else plain lines."""
    if quiet:
        return Display()
    return Terminal() if sys.stdout.isatty() else Lines()


class Lines(Display):
    """Prints one line per phase and per epoch, and one line every half minute during what takes longer."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self._phases: set[str] = set()

    def note(self, text: str) -> None:
        print(text, flush=True)

    def phase(self, what: str) -> None:
        if what not in self._phases:  # arms are loaded one after the other
            self._phases.add(what)
            self.note(what)

    def step(self, what: str, done: int, total: int, detail: str = "") -> None:
        if time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            print(f"  {what} {done}/{total} {detail}".rstrip(), flush=True)

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        self._last = time.monotonic()
        cells = dict(zip(COLUMNS, cells_of(record, epochs), strict=True))
        print("  ".join(f"{name} {cell}" for name, cell in cells.items()), flush=True)

    def arms(self, arms: list[ArmProgress]) -> None:
        done = all(each.done == each.seeds for each in arms)
        if done or time.monotonic() - self._last >= EVERY:
            self._last = time.monotonic()
            left = [each.seconds_left for each in arms if each.seconds_left]
            texts = [f"{each.arm} {each.done}/{each.seeds} {each.score}" for each in arms]
            print("  " + ", ".join([*texts, *([f"{duration(sum(left))} left"] if left else [])]), flush=True)


class Terminal(Display):
    """Shows a table with one row per epoch, or per arm of a comparison, and a bar below it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._rows: list[list[str]] = []
        self._arms: list[ArmProgress] = []
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

    def phase(self, what: str) -> None:
        self._bar.reset(self._task, description=what, total=None, detail="")

    def step(self, what: str, done: int, total: int, detail: str = "") -> None:
        self._bar.update(self._task, description=what, completed=done, total=total, detail=detail)

    def epoch(self, record: dict[str, Any], epochs: int) -> None:
        self._rows.append(cells_of(record, epochs))
        self._live.update(self._view())

    def arms(self, arms: list[ArmProgress]) -> None:
        self._arms = arms
        self._live.update(self._view())

    def close(self) -> None:
        if self._live.is_started:
            self._bar.remove_task(self._task)
            self._live.update(self._view())
            self._live.stop()

    def _view(self) -> Group:
        room = max(5, self._console.height - 6)  # only the latest epochs of a long run fit; metrics.jsonl has all
        if self._arms:
            return Group(_arms_table(self._arms, room), self._bar)
        table = Table(box=None, padding=(0, 2, 0, 0))  # fits 80 columns
        for name in COLUMNS:
            table.add_column(name.removeprefix("of it ").removesuffix("or"), justify="right")  # error: err
        for row in self._rows[-room:]:
            table.add_row(*row)
        return Group(table, self._bar) if self._rows else Group(self._bar)


def _arms_table(arms: list[ArmProgress], room: int) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("arm", max_width=30, overflow="ellipsis", no_wrap=True)
    for name in ("seeds", "mean so far", "time left"):
        table.add_column(name, justify="right")
    shown = sorted(arms, key=lambda each: each.done == each.seeds)[:room]  # of many arms, those that are not finished
    for each in (each for each in arms if each in shown):
        left = "-" if each.seconds_left is None else duration(each.seconds_left)
        left = "done" if each.done == each.seeds else left
        table.add_row(Text(each.arm), f"{each.done}/{each.seeds}", each.score, left)
    if len(arms) > room:
        table.add_row(f"and {len(arms) - room} more")
    return table


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
