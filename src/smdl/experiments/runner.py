"""Runner: trains every configuration once, in as many processes as asked for; what is finished is never run again."""

import multiprocessing
import signal
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

from smdl.experiments.arms import fingerprint
from smdl.training.config import TrainConfig, from_dict, to_dict
from smdl.training.files import write_json
from smdl.training.loop import DivergedError, Interrupted, Run, resume
from smdl.training.progress import Display


def folder_of(store: Path, config: TrainConfig) -> Path:
    """Where the run of a config lies: the same config, the same folder, whichever experiment asks for it."""
    return store / f"{Path(config.data.name).name.replace(':', '.')}-{config.seed}-{fingerprint(config)}"


def finished(folder: Path) -> bool:
    """Trained to its end, or known to diverge."""
    return (folder / "summary.json").exists() or (folder / "failed.json").exists()


def run_all(configs: list[TrainConfig], store: Path, jobs: int, display: Display) -> None:
    """Train what is not finished yet. Accuracies do not depend on what runs beside; seconds would, and are not used."""
    todo = {folder_of(store, config): config for config in configs}
    todo = {folder: config for folder, config in todo.items() if not finished(folder)}
    total, done = len({folder_of(store, config) for config in configs}), 0
    done = total - len(todo)
    display.step("training", done, total)
    if jobs == 1 or len(todo) < 2:
        for folder, config in todo.items():
            train_one(to_dict(config), folder)
            done += 1
            display.step("training", done, total, folder.name)
        return
    pool = ProcessPoolExecutor(min(jobs, len(todo)), multiprocessing.get_context("spawn"), initializer=_polite)
    before = signal.signal(signal.SIGTERM, _pass_on)
    try:
        waiting: set[Future[None]] = {pool.submit(train_one, to_dict(config), at) for at, config in todo.items()}
        while waiting:
            ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ready:
                future.result()
                done += 1
                display.step("training", done, total)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        signal.signal(signal.SIGTERM, before)


def train_one(values: dict[str, Any], folder: Path) -> None:
    """A run, begun or gone on with; one that diverges leaves a note of it."""
    config = from_dict(TrainConfig, values)
    try:
        if (folder / "config.yaml").exists():
            resume(folder)
        else:
            run = Run(config)
            folder.mkdir(parents=True, exist_ok=True)
            run.begin(folder)
    except DivergedError as error:
        write_json(folder / "failed.json", {"error": str(error)})


def _polite() -> None:
    """A worker: Ctrl-C reaches it as well, and its run writes a checkpoint by itself."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _pass_on(number: int, frame: Any) -> None:  # noqa: ARG001
    """SIGTERM reaches this process alone: the workers are told."""
    for child in multiprocessing.active_children():
        child.terminate()
    raise Interrupted(number, Path())
