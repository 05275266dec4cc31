"""Listening: a hook through which a strategy hears the forwards that train the model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from smdl.scoring import check_logits


@contextmanager
def loss_hook(model: nn.Module, hear: Callable[[Tensor], None] | None) -> Iterator[None]:
    """While this lasts, `hear` gets the logits of every forward in train mode with gradients on."""
    handle = None if hear is None else model.register_forward_hook(_Ear(hear))
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


class _Ear:
    """A copy of the model takes along a deaf one: not the loader behind it, nor its data."""

    def __init__(self, hear: Callable[[Tensor], None] | None = None) -> None:
        self._hear = hear

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self._hear is None or not module.training or not torch.is_grad_enabled():
            return
        try:
            logits = check_logits(output)
        except ValueError:  # some other forward of the user's
            return
        self._hear(logits.detach())

    def __reduce__(self) -> tuple[type["_Ear"], tuple[()]]:
        return _Ear, ()
