"""The global random generators that a run may use: those of torch, numpy and Python."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from smdl.common.saved_state import check_keys


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed the generators for the block, and restore them afterwards."""
    before = generator_state(torch.device("cpu"))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed & 0xFFFFFFFF)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            restore_generators({**before, "torch": torch.get_rng_state()}, torch.device("cpu"))


def generator_state(device: torch.device) -> dict[str, Any]:
    """Return the state of the generators as tensors and plain values."""
    name, keys, place, spare, cached = np.random.get_state()  # noqa: NPY002
    version, numbers, gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "device": None if device.type == "cpu" else getattr(torch, device.type).get_rng_state(),
        "numpy": [name, torch.from_numpy(np.asarray(keys).astype(np.int64)), int(place), int(spare), float(cached)],
        "python": [version, list(numbers), gauss],
    }


def check_generators(state: dict[str, Any], device: torch.device) -> None:
    """Raise unless the generators can be in this state. No generator changes."""
    check_keys("generators", state, ("torch", "device", "numpy", "python"))
    if (state["device"] is None) != (device.type == "cpu"):
        raise ValueError(f"it was not written on a device of type {device.type}")
    _set(state, torch.Generator().set_state, np.random.RandomState().set_state, random.Random().setstate)


def restore_generators(state: dict[str, Any], device: torch.device) -> None:
    """Restore a state of `generator_state`."""
    if state["device"] is not None:
        getattr(torch, device.type).set_rng_state(state["device"])
    _set(state, torch.set_rng_state, np.random.set_state, random.setstate)


def _set(state: dict[str, Any], set_torch: Any, set_numpy: Any, set_python: Any) -> None:
    set_torch(state["torch"])
    name, keys, *rest = state["numpy"]
    set_numpy((name, keys.numpy().astype(np.uint32), *rest))
    version, numbers, gauss = state["python"]
    set_python((version, tuple(numbers), gauss))
