"""Access to the model in training that leaves it as it was: its modes, random state, wrappers, device and weights."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Use eval mode without gradients within the block; afterwards restore every module's mode and the random state.

    no_grad, not inference_mode: a module may keep a tensor of the forward, and training must be able to use it.
    """
    modes = [(module, module.training) for module in model.modules()]
    with kept_generators(device_of(model)), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def kept_generators(device: torch.device) -> AbstractContextManager[None]:
    """Restore the random state of the CPU and of the device after the block."""
    devices = [] if device.type == "cpu" else [device]
    return torch.random.fork_rng(devices, device_type=device.type if devices else "cuda")


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model itself. torch.compile wraps it, and compiled code ignores hooks that come later.
    DistributedDataParallel wraps it, and its forward would wait for the other ranks and send them buffers."""
    while True:
        inner = getattr(model, "_orig_mod", model)
        inner = inner.module if isinstance(inner, DistributedDataParallel | DataParallel) else inner
        if inner is model:
            return model
        model = inner


def whole_weight(weight: Tensor) -> Tensor:
    """Return a weight that fully_shard may have divided among the ranks; then every rank must call this."""
    if type(weight) in (Tensor, nn.Parameter):
        return weight
    return getattr(weight, "full_tensor", lambda: weight)()  # importing DTensor takes long


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's weights."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")
