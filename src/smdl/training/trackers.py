"""Trackers: other places for the measurements of a run, such as TensorBoard or Weights & Biases."""

from importlib import import_module
from pathlib import Path
from typing import Any

from smdl.common.factory import from_factory, load_object
from smdl.common.messages import install


class Tracker:
    """Receives the measurements of a run. This one ignores them.

    A tracker of your own overrides these methods. Its `__init__` may take `folder`, that of the run, and `config`, a
    dict. A resumed run calls `epoch` for the earlier epochs again.
    """

    def epoch(self, record: dict[str, Any]) -> None:
        """Take the record of an epoch, a line of metrics.jsonl."""

    def close(self) -> None:
        """The run has ended, or was stopped."""


def check_tracker(name: str | None) -> None:
    """Raise a ValueError if there is no such tracker."""
    if name == "tensorboard":
        try:
            import_module("tensorboard")
        except ImportError as error:
            raise ValueError(f"--tracker tensorboard: not installed. Run {install('tensorboard')}") from error
    elif name is not None:
        found = load_object(name, "--tracker")
        if not (isinstance(found, type) and issubclass(found, Tracker)):
            raise ValueError(f"--tracker {name} must be a class derived from smdl.training.trackers.Tracker")


def make_tracker(name: str | None, folder: Path, config: dict[str, Any]) -> Tracker:
    """Return the tracker of a run: tensorboard, or a class by `package.module:Class`."""
    if name is None:
        return Tracker()
    path = "smdl.integrations.tensorboard:TensorBoard" if name == "tensorboard" else name
    return from_factory(path, "--tracker", Tracker, folder=folder, config=config)


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """Return the numbers of a record by name. Those of a part are named `seconds/training`."""
    found: dict[str, float] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            found |= {f"{name}/{inner}": number for inner, number in scalars(value).items()}
        elif isinstance(value, int | float):
            found[name] = value
    return found
