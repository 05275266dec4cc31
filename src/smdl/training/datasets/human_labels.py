"""Labels of CIFAR-10's training set by people: CIFAR-10N (Wei et al. 2022)."""

import os
from pathlib import Path

import numpy as np

from smdl.common.storage import cache_folder
from smdl.training.config import DataConfig
from smdl.training.datasets.problems import DataError

FILE = "cifar-10n.npz"


def human_labels(config: DataConfig, samples: int) -> np.ndarray:
    """Return the labels that `config.human_labels` names, in the order of the files of CIFAR-10."""
    bases = [Path(base).expanduser() for base in (config.root, os.environ.get("SMDL_DATA"), cache_folder()) if base]
    places = [base / folder / FILE for base in bases for folder in ("", "cifar-10n")]
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise DataError(
            f"data.human_labels needs {FILE}, with arrays of 50,000 class numbers such as {config.human_labels}. It was"
            f" looked for in {', '.join(map(str, places))}"
        )
    try:
        with np.load(path) as file:
            found = file[str(config.human_labels)]
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} has no array {config.human_labels}, or is damaged: {error}") from error
    if found.shape != (samples,) or found.dtype.kind not in "iu" or not 0 <= found.min() <= found.max() < 10:
        raise DataError(f"{path} must hold {samples} class numbers from 0 to 9, got {found.dtype} of {found.shape}")
    return found.astype(np.int64)
