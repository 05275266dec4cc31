"""Checkpoints: everything a run needs to resume, in one file that is complete and unchanged, or refused."""

import io
import warnings
from pathlib import Path
from typing import Any

import torch

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
