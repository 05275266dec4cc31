"""Runner: trains every configuration once, in as many processes as asked for; what is finished is never run again."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smdl.experiments.arms import fingerprint
from smdl.experiments.logs import summary
from smdl.training.checkpoint import CheckpointError
from smdl.training.config import TrainConfig, from_dict, to_dict
from smdl.training.files import locked, read_json, write_json
from smdl.training.loop import DivergedError, Interrupted, Run
from smdl.training.progress import Display


class KilledError(OSError):
    """A worker process did not come back."""


def folder_of(store: Path, config: TrainConfig) -> Path:
    """Where the run of a config lies: the same config, the same folder, whichever experiment asks for it."""
    return store / f"{Path(config.data.name).name.replace(':', '.')}-{config.seed}-{fingerprint(config)}"


def finished(folder: Path) -> bool:
    """Trained to its end, or known to diverge."""
    return summary(folder) is not None or read_json(folder / "failed.json") is not None


def run_all(configs: list[TrainConfig], store: Path, jobs: int, display: Display) -> None:
    """Train what is not finished yet. Accuracies do not depend on what runs beside; seconds would, and are not used."""
    wanted = {folder_of(store, config): config for config in configs}
    todo = {folder: config for folder, config in wanted.items() if not finished(folder)}
    total, done = len(wanted), len(wanted) - len(todo)
    display.step("training", done, total)
    try:
        if jobs == 1 or len(todo) < 2:
            for folder, config in todo.items():
                train_one(to_dict(config), folder)
                done += 1
                display.step("training", done, total, folder.name)
        else:
            _side_by_side(todo, jobs, lambda more: display.step("training", done + more, total))
    except KeyboardInterrupt as stop:
        raise Interrupted(
            getattr(stop, "number", signal.SIGINT),
            "the same command again: what is finished stays, what was begun goes on",
        ) from None
    except BrokenProcessPool as error:
        raise KilledError(
            "a run was killed from outside, perhaps for want of memory: try fewer --jobs; the same command goes on"
        ) from error


def _side_by_side(todo: dict[Path, TrainConfig], jobs: int, tell: Callable[[int], None]) -> None:
    """As many at a time as there are jobs and no more: what waits in a pool's queue would start after Ctrl-C."""
    pool = ProcessPoolExecutor(min(jobs, len(todo)), multiprocessing.get_context("spawn"), initializer=_worker_init)
    before = signal.signal(signal.SIGTERM, _pass_on) if threading.current_thread() is threading.main_thread() else None
    left, running, done = list(todo.items()), set[Future[None]](), 0
    try:
        while left or running:
            while left and len(running) < jobs:
                folder, config = left.pop(0)
                with _ctrl_c_waits():  # a process inherits that, if one is started here
                    running.add(pool.submit(train_one, to_dict(config), folder))
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                future.result()
                done += 1
                tell(done)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def train_one(values: dict[str, Any], folder: Path) -> None:
    """A run, begun or gone on with; one that diverges leaves a note of it. Another command may be training this very
    run: then it is waited for."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=True):
        if finished(folder):
            return
        try:
            run = _trained(from_dict(TrainConfig, values), folder)
        except DivergedError as error:
            write_json(folder / "failed.json", {"error": str(error)})
            return
    if run.stopped_by is not None:  # too late for a checkpoint: the run is finished, the experiment is not
        raise Interrupted(run.stopped_by, "the same command again")


def _trained(config: TrainConfig, folder: Path) -> Run:
    """Trained to its end; anew where its checkpoint cannot be read: a run is made of its config alone."""
    run = Run(config)
    try:
        run.begin(folder)
    except CheckpointError:
        for name in ("checkpoint.pt", "metrics.jsonl"):
            (folder / name).unlink(missing_ok=True)
        run = Run(config)
        run.begin(folder)
    return run


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """SIGINT is kept for later, in this thread and in the processes it starts meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker_init() -> None:
    """A worker: Ctrl-C reaches it as well, and its run writes a checkpoint by itself. One that came while the worker
    was starting ends it without a word."""
    if hasattr(signal, "pthread_sigmask"):
        if signal.SIGINT in signal.sigpending():
            os._exit(128 + signal.SIGINT)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_follow, daemon=True).start()


def _follow() -> None:
    """Where the main process is killed, its workers stop as if they were told to."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)


def _pass_on(number: int, frame: Any) -> None:  # noqa: ARG001
    """SIGTERM reaches this process alone: the workers are told."""
    for child in multiprocessing.active_children():
        child.terminate()
    raise Interrupted(number, "the same command again")
