"""The loss hook: takes the losses of the training forwards for strategies that need them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.scoring import check_logits


class BatchLosses:
    """The losses of the current batch, from forwards of the whole batch or of one part after the other (gradient
    accumulation). `report` gets them once they are complete."""

    def __init__(self, report: Callable[[Tensor], None]) -> None:
        self._report, self.targets = report, torch.zeros(0, dtype=torch.int64)
        self._parts: list[Tensor] = []

    def start(self, targets: Tensor) -> None:
        """Expect the logits of a new batch with these targets."""
        self.targets, self._parts = targets, []

    def add(self, logits: Tensor) -> None:
        """Take the logits of a training forward."""
        self._parts.append(logits)
        if sum(map(len, self._parts)) > len(self.targets):  # the parts so far belonged to another forward
            self._parts = [logits]
        if sum(map(len, self._parts)) == len(self.targets):
            whole, self._parts = torch.cat(self._parts).float(), []
            self._report(F.cross_entropy(whole, self.targets.to(whole.device), reduction="none"))


@contextmanager
def loss_hook(model: nn.Module, losses: BatchLosses | None) -> Iterator[None]:
    """Within the block, give the logits of every forward in train mode with gradients to `losses`."""
    handle = None if losses is None else model.register_forward_hook(_Hook(losses.add))
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


class _Hook:
    """A copy of the model gets a hook that does nothing: neither the loader nor its data are copied with it."""

    def __init__(self, take_logits: Callable[[Tensor], None] | None = None) -> None:
        self._take_logits = take_logits

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self._take_logits is None or not module.training or not torch.is_grad_enabled():
            return
        try:
            logits = check_logits(output)
        except ValueError:  # some other forward of the user's
            return
        self._take_logits(logits.detach())

    def __reduce__(self) -> tuple[type["_Hook"], tuple[()]]:
        return _Hook, ()
