"""Checkpoints: everything a run needs to resume, in one file that is complete or not there."""

import pickle
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from smdl.training.files import replacing

_FORMAT = "smdl checkpoint 3"  # a new number whenever the content changes


class CheckpointError(ValueError):
    """A checkpoint that cannot be read."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values atomically: a kill leaves the previous checkpoint."""
    with replacing(path) as file:
        torch.save({"format": _FORMAT, **state}, file)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote. Nothing in the file is executed: weights_only admits only tensors and plain values."""
    if not path.exists():
        raise CheckpointError(f"there is no checkpoint at {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles it will refuse in a moment
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{path} holds more than tensors and plain values and was not loaded: {error}") from error
    except (RuntimeError, EOFError, zipfile.BadZipFile, ValueError, KeyError) as error:
        raise CheckpointError(f"{path} is damaged: {error}") from error
    if not isinstance(state, dict) or state.pop("format", None) != _FORMAT:
        raise CheckpointError(
            f"{path} is not a checkpoint of this version of smdl: delete its folder to train the run again"
        )
    return state
