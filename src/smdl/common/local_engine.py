"""Engine: where the tasks of a job run; Local: in this process."""

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Protocol


class Engine(Protocol):
    def run(self, function: Callable[..., Any], shared: Any, tasks: Mapping[Any, tuple]) -> Iterator[tuple[Any, Any]]:
        """Yield (name, function(shared, *arguments)) of each task, in any order."""
        ...

    def in_order(self, function: Callable[..., Any], shared: Any, tasks: Iterator[tuple]) -> Generator[Any]:
        """Yield function(shared, *arguments) of each task, in order. Few tasks are taken before they are needed; close
        the generator to leave the rest."""
        ...

    def hold(self, value: Any) -> Any:
        """Return what `run` and `in_order` take for a value that several calls or tasks share."""
        ...

    def close(self) -> None: ...


class Local:
    """Runs the tasks in this process, one after the other. A selection uses all threads."""

    def run(self, function: Callable[..., Any], shared: Any, tasks: Mapping[Any, tuple]) -> Iterator[tuple[Any, Any]]:
        for name, arguments in tasks.items():
            yield name, function(shared, *arguments)

    def in_order(self, function: Callable[..., Any], shared: Any, tasks: Iterator[tuple]) -> Generator[Any]:
        for arguments in tasks:
            yield function(shared, *arguments)

    def hold(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        pass
