"""Engines: where the tasks of a job run. Both give the same rows."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from smdl.common.messages import install

#: How often Ray starts a task again whose process has died.
RETRIES = 8
#: Most tasks that Ray is given at once.
QUEUE = 1000


class Engine(Protocol):
    def run(self, function: Callable[..., Any], shared: Any, tasks: Mapping[Any, tuple]) -> Iterator[tuple[Any, Any]]:
        """Yield (name, function(shared, *arguments)) of each task, in any order."""
        ...

    def close(self) -> None: ...


class Local:
    """Runs the tasks in this process, one after the other. A selection uses all threads."""

    def run(self, function: Callable[..., Any], shared: Any, tasks: Mapping[Any, tuple]) -> Iterator[tuple[Any, Any]]:
        for name, arguments in tasks.items():
            yield name, function(shared, *arguments)

    def close(self) -> None:
        pass


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
        ray, held = self.ray, self.ray.put(shared)
        remote = ray.remote(num_cpus=1, max_retries=RETRIES)(_in_worker)
        names, waiting = list(tasks), {}
        while names or waiting:
            while names and len(waiting) < QUEUE:
                name = names.pop(0)
                waiting[remote.remote(os.getcwd(), function, held, *tasks[name])] = name
            done, _ = ray.wait(list(waiting))
            for reference in done:
                yield waiting.pop(reference), self._result(reference)

    def close(self) -> None:
        if self.started:
            self.ray.shutdown()

    def _result(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            raise error.cause from error  # what the task raised itself


def _in_worker(folder: str, function: Callable[..., Any], shared: Any, *arguments: Any) -> Any:
    """Run a task in the folder that relative paths start from, with the one thread that Ray counts for it."""
    import torch

    if os.path.isdir(folder):
        os.chdir(folder)
    torch.set_num_threads(1)
    return function(shared, *arguments)


ENGINES: dict[str, Callable[[], Engine]] = {"local": Local, "ray": Ray}
