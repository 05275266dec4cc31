"""The global random generators a run may draw from: torch's, numpy's and Python's own."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seeded for a while; afterwards all are what they were."""
    before = state_of(torch.device("cpu"))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            restore({**before, "torch": torch.get_rng_state()}, torch.device("cpu"))


def state_of(device: torch.device) -> dict[str, Any]:
    """Tensors and plain values."""
    name, keys, place, spare, cached = np.random.get_state()  # noqa: NPY002
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "device": None if device.type == "cpu" else getattr(torch, device.type).get_rng_state(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), int(place), int(spare), float(cached)],
        "python": [version, list(numbers), gauss],
    }


def restore(state: dict[str, Any], device: torch.device) -> None:
    """What `state_of` gave."""
    torch.set_rng_state(state["torch"])
    if state["device"] is not None:
        getattr(torch, device.type).set_rng_state(state["device"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))
