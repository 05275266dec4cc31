"""Engines: where the tasks of a job run. Both give the same rows."""

import logging
import os
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from smdl.common.interrupts import Interrupted
from smdl.common.local_engine import Engine, Local
from smdl.common.messages import install

#: How often Ray starts a task again whose process has died.
RETRIES = 8
#: Most tasks that Ray is given at once.
QUEUE = 1000


class Ray:
    """Runs each task as a Ray task of one CPU: on the cluster that RAY_ADDRESS names or that was started on this
    machine, else on a local one. A task whose process dies is started again."""

    def __init__(self) -> None:
        try:
            import ray  # type: ignore[import-not-found]
        except ImportError as error:
            raise ValueError(f"--engine ray needs Ray. Run {install('ray')}") from error
        self.ray, self.started = ray, not ray.is_initialized()
        if self.started:
            ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=True)

    def run(self, function: Callable[..., Any], shared: Any, tasks: Mapping[Any, tuple]) -> Iterator[tuple[Any, Any]]:
        ray, held, remote = self.ray, self.hold(shared), self._remote()
        names, waiting = list(tasks), {}
        while names or waiting:
            while names and len(waiting) < QUEUE:
                name = names.pop(0)
                waiting[remote.remote(os.getcwd(), function, held, *tasks[name])] = name
            done, _ = ray.wait(list(waiting))
            for reference in done:
                yield waiting.pop(reference), self._result(reference)

    def in_order(self, function: Callable[..., Any], shared: Any, tasks: Iterator[tuple]) -> Generator[Any]:
        held, remote, waiting = self.hold(shared), self._remote(), deque[Any]()
        ahead = 2 * max(1, int(self.ray.cluster_resources().get("CPU", 1)))
        while True:
            while len(waiting) < ahead and (arguments := next(tasks, None)) is not None:
                waiting.append(remote.remote(os.getcwd(), function, held, *arguments))
            if not waiting:
                return
            # Tasks that are left run to their end: a cancelled worker starts again.
            yield self._result(waiting.popleft())

    def hold(self, value: Any) -> Any:
        return value if isinstance(value, self.ray.ObjectRef) else self.ray.put(value)

    def _remote(self) -> Any:
        return self.ray.remote(num_cpus=1, max_retries=RETRIES)(_in_worker)

    def close(self) -> None:
        if self.started:
            self.ray.shutdown()

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error  # what the task raised itself
        except self.ray.exceptions.WorkerCrashedError as error:
            raise ValueError(
                f"a task of --engine ray was started {RETRIES + 1} times, and its process died each time. Its node may"
                " be out of memory, or a file was cut while it was read: see Ray's logs"
            ) from error
        except self.ray.exceptions.RayError as error:  # a node has died, an object is lost, no memory is left
            told = " ".join(str(error).split())[:300]
            raise ValueError(f"--engine ray: {type(error).__name__}: {told}. Start the same command again") from error


def _in_worker(folder: str, function: Callable[..., Any], shared: Any, *arguments: Any) -> Any:
    """Run a task in the folder that relative paths start from, with the one thread that Ray counts for it."""
    if os.path.isdir(folder):
        os.chdir(folder)
    torch.set_num_threads(1)
    return function(shared, *arguments)


ENGINES: dict[str, Callable[[], Engine]] = {"local": Local, "ray": Ray}


@contextmanager
def running(threads: int | None, engine: str = "local") -> Iterator[Engine]:
    """Start an engine, and stop it at the end. An interruption says that the same command resumes."""
    if threads:
        torch.set_num_threads(threads)
    started = ENGINES[engine]()
    try:
        yield started
    except KeyboardInterrupt:
        raise Interrupted(signal.SIGINT, "the same command") from None
    finally:
        started.close()
