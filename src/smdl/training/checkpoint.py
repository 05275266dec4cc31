"""Checkpoints: everything a run needs to resume, in one file that is complete and unchanged, or refused."""

import io
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smdl.common.messages import check_keys, choice
from smdl.common.storage import DamagedFileError, read_sealed, write_sealed

_KIND = "smdl checkpoint 4"  # a new number whenever the content changes


class CheckpointError(ValueError):
    """A checkpoint from which a run cannot be resumed."""


def save(path: Path, state: dict[str, Any]) -> None:
    """Write tensors and plain values atomically: a kill leaves the previous checkpoint."""
    file = io.BytesIO()
    torch.save(state, file)
    write_sealed(path, file.getvalue(), _KIND)


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote, after its checksum is verified. Nothing in the file is executed: weights_only admits only
    tensors and plain values."""
    try:
        content = io.BytesIO(read_sealed(path, _KIND))
    except DamagedFileError as error:
        raise CheckpointError(str(error)) from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles it will refuse in a moment
            return torch.load(content, map_location="cpu", weights_only=True)
    except Exception as error:  # torch's own message advises to switch off weights_only
        raise CheckpointError(f"{path} holds more than tensors and plain values and was not loaded") from error


def check_form(name: str, value: Any, like: Any) -> None:
    """Raise unless a value has the keys, types, lengths and shapes of another one. Where the other is empty or None,
    any value of its type will do."""
    if isinstance(like, Tensor) and isinstance(value, Tensor):
        found, expected = (f"{each.dtype} of shape {tuple(each.shape)}" for each in (value, like))
        if found != expected:
            raise ValueError(f"{name} must be {expected}, got {found}")
    elif isinstance(like, dict) and like:
        check_keys(name, value, like)
        for key in like:
            check_form(f"{name}.{key}", value[key], like[key])
    elif like is not None and not isinstance(value, (int, float) if type(like) is float else type(like)):
        raise TypeError(choice(name, type(value).__name__, f"of type {type(like).__name__}"))
    elif isinstance(like, list) and like:
        for number, (one, other) in enumerate(zip(value, like, strict=True)):
            check_form(f"{name}.{number}", one, other)
