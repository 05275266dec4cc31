"""Sides that take turns on one clock, and the tables their times are printed in."""

import gc
import multiprocessing
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

COLUMNS = ("case", "side", "preparation ms", "CPU ms", "wall ms", "ratio to smdl", "value", "target", "result", "runs")


@dataclass
class Side:
    """One of the contestants: `run` is timed, on what `fresh` makes anew for each call outside the clock."""

    name: str
    run: Callable[[Any], Any]
    fresh: Callable[[], Any] = lambda: None
    preparation: float = 0.0  # CPU ms, spent before the race
    warm: bool = True  # one call beforehand that does not count
    peer: bool = False  # not ours: what it raises is written down, and the race goes on
    alone: bool = False  # each call in a child process, ended after the time limit


@dataclass
class Times:
    """Medians in ms, the picks of the last call, and how many calls there were; `failed` says why there were none."""

    cpu: float = float("nan")
    wall: float = float("nan")
    picks: np.ndarray | None = None
    runs: int = 0
    failed: str = ""


def clock(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """(CPU ms, wall ms, what it returned)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return 1000 * cpu, 1000 * wall, result


def prepared(function: Callable[[], Any]) -> tuple[float, Any]:
    """(CPU ms, what it returned): the work before a race."""
    cpu, _, result = clock(function)
    return cpu, result


def race(sides: Sequence[Side], repeat: int, budget: float = 10.0, limit: float = 120.0) -> dict[str, Times]:
    """Time the sides in turns, A, B, A, B, ...; a side that has used up `budget` seconds sits the rest out."""
    samples: dict[str, list[tuple[float, float]]] = {side.name: [] for side in sides}
    times = {side.name: Times() for side in sides}
    for side in sides:
        if side.warm:
            _attempt(side, times[side.name], limit)
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeat):
            for side in sides:
                done, so_far = samples[side.name], times[side.name]
                if so_far.failed or sum(wall for _, wall in done) > 1000 * budget:
                    continue
                took = _attempt(side, so_far, limit)
                if took is not None:
                    done.append(took)
    finally:
        gc.enable()
    for name, done in samples.items():
        if done:
            times[name].cpu, times[name].wall = median(c for c, _ in done), median(w for _, w in done)
        times[name].runs = len(done)
    return times


def _attempt(side: Side, so_far: Times, limit: float) -> tuple[float, float] | None:
    """One call: (CPU ms, wall ms), or None where a peer did not make it."""
    try:
        cpu, wall, so_far.picks = _alone(side, limit) if side.alone else _once(side)
    except Exception as error:
        if not side.peer:
            raise
        so_far.failed = "timeout" if isinstance(error, TimeoutError) else f"failed: {error}"
        return None
    return cpu, wall


def _once(side: Side) -> tuple[float, float, Any]:
    given = side.fresh()
    return clock(lambda: side.run(given))


def _alone(side: Side, limit: float) -> tuple[float, float, Any]:
    """The same in a forked child: compiled loops of others do not listen to signals, processes do."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=lambda: send.send(_once(side)))
    child.start()
    send.close()
    try:
        if not receive.poll(limit):
            raise TimeoutError(side.name)
        return receive.recv()
    except EOFError:
        raise RuntimeError(f"{side.name} died") from None
    finally:
        child.kill()
        child.join()


class Report:
    """Prints as it goes and keeps what it printed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def table(self, title: str, columns: Sequence[str] = COLUMNS) -> None:
        """The head of a table; `row` adds to it."""
        self.say()
        self.say(f"## {title}")
        self.say()
        self.say(f"| {' | '.join(columns)} |")
        self.say(f"|{' --- |' * len(columns)}")

    def row(self, *cells: object) -> None:
        self.say(f"| {' | '.join(map(shown, cells))} |")

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(self.lines) + "\n")


def shown(cell: object) -> str:
    """A number by three or more digits, a gap where there is none."""
    if not isinstance(cell, float):
        return str(cell)
    if cell != cell:
        return "–"
    return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.4g}" if abs(cell) >= 10 else f"{cell:.3g}"


def verdict(met: bool, measured: str = "") -> str:
    """met or missed, and by what number."""
    return ("met" if met else "**missed**") + (f" ({measured})" if measured else "")
