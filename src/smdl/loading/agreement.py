"""What the ranks of a run must agree on: the data, and the options of the loader."""

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from smdl.scoring.batches import checksum
from smdl.scoring.reading import Reader, ReadRequest
from smdl.scoring.scoring_options import Scoring

#: Samples that are read and compared.
COMPARED = 8
#: Options that may differ among ranks: they do not decide which samples are chosen.
_OWN = ("collate_fn", "num_workers", "pin_memory", "prefetch_factor", "process_group", "worker_init_fn")


def data_fingerprint(reader: Reader, samples: int, targets: Callable[[Any], Any]) -> str:
    """Return a text that is the same on every rank if some samples are. If reading them twice with the same random
    numbers gives two results, only their targets are compared."""
    rows = np.unique(np.linspace(0, samples - 1, COMPARED).astype(np.int64)).tolist()
    one, other = (_read(reader, rows) for _ in range(2))
    if checksum(one) == checksum(other):
        return f"{checksum(one):08x} of {len(rows)} samples"
    found = targets(one)
    return f"{0 if found is None else checksum(found):08x} of {len(rows)} targets"


def option_texts(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return each option, those of `scoring` too, as a text: a value as it is printed, anything else by its name."""
    named = {name: value for name, value in arguments.items() if name not in _OWN}
    if isinstance(scoring := named.get("scoring"), Scoring):
        named |= vars(scoring)
    return {f"`{name}`": _text(value) for name, value in named.items()}


def _read(reader: Reader, rows: list[int]) -> Any:
    """Read samples with random numbers of their own."""
    before, before_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        random.seed(0)
        np.random.seed(0)  # noqa: NPY002
        try:
            _, batch = next(iter(reader.read([ReadRequest(0, rows, train=False, score=True)])))
        finally:
            random.setstate(before)
            np.random.set_state(before_numpy)  # noqa: NPY002
    return batch


def _text(value: Any) -> str:
    if value is None or isinstance(value, str | int | float | tuple):
        return repr(value)
    if isinstance(value, torch.Tensor | np.ndarray):
        return f"{type(value).__name__} {checksum(value):08x}"
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}.{named.__qualname__}"
