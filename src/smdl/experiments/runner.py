"""Train every configuration once, in one or more processes. A finished run is never trained again."""

import hashlib
import json
import multiprocessing
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from smdl.common.interrupts import Interrupted
from smdl.common.progress import Display
from smdl.common.storage import disk_errors, locked, read_json, write_json
from smdl.experiments.runs import read_summary
from smdl.training.checkpoint import CheckpointError
from smdl.training.config import TrainConfig, from_dict, to_dict
from smdl.training.loop import DivergedError, KilledError, TrainingRun

#: Seconds that a worker has to write a checkpoint after the main process was killed.
GRACE = 5.0
#: Trains a run in its folder.
Job = Callable[[Path], None]
Trained = TypeVar("Trained")
AGAIN = "the same command again: finished runs are kept, the others are resumed"


def run_name(config: TrainConfig) -> str:
    """Name the folder of a run: the same config has the same name in every experiment.

    Only options that differ from their defaults count, so a new option does not rename finished runs. The place of a
    known data set does not count, nor the number of workers. Whether there are workers does: augmentation in a worker
    uses a generator of its own.
    """
    root = config.data.root if config.data.name == "folder" else None
    counted = replace(config, data=replace(config.data, root=root), num_workers=min(config.num_workers, 1))
    text = json.dumps(chosen_options(counted), sort_keys=True)
    name = Path(config.data.name).name.replace(":", ".")
    return f"{name}-{config.seed}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def chosen_options(config: TrainConfig) -> dict[str, Any]:
    """Return the options of a config that differ from their defaults. The method is one only if another one would be
    the default."""
    unnamed = replace(config, method=None)
    return changes(unnamed if unnamed.method_name == config.method_name else config)


def changes(config: Any, default: Any = None) -> dict[str, Any]:
    """Return the options of a config that differ from their defaults, nested like the config."""
    default = type(config)() if default is None else default
    found: dict[str, Any] = {}
    for member in fields(config):
        value, usual = getattr(config, member.name), getattr(default, member.name)
        if value != usual:
            found[member.name] = changes(value, usual) if is_dataclass(value) else value
    return found


def finished(folder: Path) -> bool:
    """Whether a run was trained to its end, or diverged."""
    return read_summary(folder) is not None or read_json(folder / "failed.json") is not None


def run_all(
    work: Mapping[Path, Job], jobs: int, display: Display, after_run: Callable[[], None] = lambda: None
) -> None:
    """Train the runs that are not finished, each in its folder. Accuracies do not depend on runs at the same time."""
    todo = {folder: job for folder, job in work.items() if not finished(folder)}
    total, done = len(work), len(work) - len(todo)

    def report(more: int) -> None:
        display.step("training", done + more, total)
        after_run()

    report(0)
    try:
        if jobs == 1 or len(todo) < 2:
            for number, (folder, job) in enumerate(todo.items()):
                job(folder)
                report(number + 1)
        else:
            _side_by_side(todo, jobs, report)
    except KeyboardInterrupt as stop:
        raise Interrupted(getattr(stop, "number", signal.SIGINT), AGAIN) from None
    except BrokenProcessPool as error:
        raise KilledError(
            "a run was killed from outside, perhaps because memory ran out, or its process could not start."
            " Use fewer --jobs; the same command resumes the experiment"
        ) from error


def _side_by_side(todo: dict[Path, Job], jobs: int, report: Callable[[int], None]) -> None:
    """Submit no more runs than there are jobs: a run in the pool's queue would still start after Ctrl-C."""
    pool = ProcessPoolExecutor(min(jobs, len(todo)), multiprocessing.get_context("spawn"), initializer=_worker_init)
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _stop_workers) if main else None
    left, running, done = list(todo.items()), set[Future[None]](), 0
    try:
        while left or running:
            while left and len(running) < jobs:
                folder, job = left.pop(0)
                with _ctrl_c_blocked():  # a process that starts here inherits that
                    running.add(pool.submit(job, folder))
            ready, running = wait(running, return_when=FIRST_COMPLETED)
            for future in ready:
                future.result()
                done += 1
                report(done)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def job_of(config: TrainConfig) -> Job:
    """Return the job that trains a config."""
    return partial(train_one, to_dict(config))


def train_one(values: dict[str, Any], folder: Path) -> None:
    """Start or resume a run."""
    run = unless_finished(folder, lambda: _trained(from_dict(TrainConfig, values), folder), DivergedError)
    if run is not None and run.stopped_by is not None:  # after the last step: the run is finished, the experiment not
        raise Interrupted(run.stopped_by, AGAIN)


def unless_finished(folder: Path, train: Callable[[], Trained], *diverged: type[Exception]) -> Trained | None:
    """Train a run in its folder. If it diverges, write failed.json. If another command is training it, wait for
    that."""
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder, wait=True):
        try:
            return None if finished(folder) else train()
        except diverged as error:
            write_json(folder / "failed.json", {"error": str(error)})
            return None


def _trained(config: TrainConfig, folder: Path) -> TrainingRun:
    """Train a run to its end. If its checkpoint cannot be read, start again from the config."""
    run = TrainingRun(config)
    try:
        run.begin(folder)
    except CheckpointError as error:
        warnings.warn(f"{error}. The run is trained again from its start", stacklevel=2)
        with disk_errors(folder / "checkpoint.pt"):
            (folder / "checkpoint.pt").unlink()
        run = TrainingRun(config)
        run.begin(folder)
    return run


@contextmanager
def _ctrl_c_blocked() -> Iterator[None]:
    """Delay SIGINT, in this thread and in the processes that it starts meanwhile."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _worker_init() -> None:
    """Set up a worker process. Ctrl-C reaches it too, and its run then writes a checkpoint. A Ctrl-C that came while
    the worker was starting ends it silently."""
    if hasattr(signal, "pthread_sigmask"):
        if signal.SIGINT in signal.sigpending():
            os._exit(128 + signal.SIGINT)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_stop_with_parent, daemon=True).start()


def _stop_with_parent() -> None:
    """End this worker when the main process is killed. A run gets the time to write a checkpoint; a worker that waits
    for its next run, or hangs, does not outlive that time."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(128 + signal.SIGTERM)


def _stop_workers(number: int, frame: Any) -> None:  # noqa: ARG001
    """Pass SIGTERM, which reaches only the main process, to the workers."""
    for child in multiprocessing.active_children():
        child.terminate()
    raise Interrupted(number, AGAIN)
