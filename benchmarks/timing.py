"""Time sides that take turns, and print their times in tables."""

import gc
import multiprocessing
import platform
import subprocess
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
    """One side of a race. `run` is timed; its argument comes from `fresh`, which is called before each run, untimed."""

    name: str
    run: Callable[[Any], Any]
    fresh: Callable[[], Any] = lambda: None
    preparation: float = 0.0  # CPU ms, spent before the race
    warm: bool = True  # make one untimed call first
    peer: bool = False  # another package: an exception is reported, and the race continues
    alone: bool = False  # run each call in a child process, which is killed after the time limit


@dataclass
class Times:
    """Medians in ms, the picks of the last call, and the number of calls. `failed` is the reason if there are none."""

    cpu: float = float("nan")
    wall: float = float("nan")
    picks: np.ndarray | None = None
    runs: int = 0
    failed: str = ""


def clock(function: Callable[[], Any]) -> tuple[float, float, Any]:
    """Call the function. Return (CPU ms, wall ms, its result)."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = function()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return 1000 * cpu, 1000 * wall, result


def prepared(function: Callable[[], Any]) -> tuple[float, Any]:
    """Call the function, as preparation of a race. Return (CPU ms, its result)."""
    cpu, _, result = clock(function)
    return cpu, result


def race(sides: Sequence[Side], repeat: int, budget: float = 10.0, limit: float = 120.0) -> dict[str, Times]:
    """Time the sides in turns, A, B, A, B, ... A side that has used `budget` seconds takes no more turns."""
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
    """Make one call. Return (CPU ms, wall ms), or None if a peer failed."""
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
    """Make one call in a forked child: a process can be killed, the compiled loops of another package cannot."""
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
    """Prints lines and keeps them."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str = "") -> None:
        print(line, flush=True)
        self.lines.append(line)

    def table(self, title: str, columns: Sequence[str] = COLUMNS) -> None:
        """Start a table; `row` adds to it."""
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
    """Format a cell: numbers with three or more digits, NaN as a dash."""
    if not isinstance(cell, float):
        return str(cell)
    if cell != cell:
        return "–"
    return f"{cell:.0f}" if abs(cell) >= 1000 else f"{cell:.4g}" if abs(cell) >= 10 else f"{cell:.3g}"


def verdict(met: bool, measured: str = "") -> str:
    """Return "met" or "missed", with the measured number."""
    return ("met" if met else "**missed**") + (f" ({measured})" if measured else "")


def processor() -> str:
    """Return the name of the processor."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def commit() -> str:
    """Return the commit of this repository, with "-dirty" if files were changed since."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
