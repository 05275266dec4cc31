"""ForwardLog: what hooks on a model keep of its training forwards.

torch.compile traces these hooks, so they are plain: lists that grow would make it compile again for every length.
"""

from typing import Any

import torch
from torch import Tensor, nn

from smdl.scoring.losses import output_of
from smdl.scoring.row_matching import WATCHED, all_of, same_rows, sampled, tensors_in, version_of


class Watched:
    """A tensor of a forward, of which it can be told whether it was changed in place since. Torch counts changes, and
    compiled code cannot ask for the count: there a few values of each row are compared."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self._sample = sampled(tensor, WATCHED).detach().clone() if torch.compiler.is_compiling() else None
        self._version = 0 if torch.compiler.is_compiling() else version_of(tensor)

    def unchanged(self) -> Tensor | None:
        """Return which rows are as they were, (B,) bool; None if all are."""
        if self._sample is not None:
            return same_rows(sampled(self.tensor, WATCHED), self._sample)
        changed = version_of(self.tensor) != self._version
        return self.tensor.new_zeros(len(self.tensor), dtype=torch.bool) if changed else None


class Forward:
    """One forward of the model."""

    def __init__(self, args: Any, kwargs: Any, before: "Forward | None") -> None:
        self.args, self.kwargs, self.before = args, kwargs, before
        self._inputs = [Watched(tensor) for _, tensor in tensors_in([args, kwargs]) if tensor.ndim > 0]
        self.tapped: Call | None = None  # the last call of the tap
        self.made: Call | None = None  # the last call of the layer that makes the outputs
        self.output: Kept | None = None  # None also if there is no tensor in it
        self.ended = False

    def unchanged(self, rows: int) -> Tensor | None:
        """Return which rows of the arguments are as they were in the forward, (rows,) bool; None if all are."""
        return all_of([one.unchanged() for one in self._inputs if len(one.tensor) == rows])


class Kept:
    """A tensor of a forward, detached. Rows of numbers are copied, because a loop may change them in place. Tokens and
    pixels are too large for that, so they are watched."""

    def __init__(self, tensor: Tensor) -> None:
        small = tensor.ndim <= 2
        self.tensor = tensor.detach().clone() if small else tensor.detach()
        self._watched = None if small else Watched(self.tensor)

    def unchanged(self) -> Tensor | None:
        """Return which rows are as they were, (B,) bool; None if all are."""
        return None if self._watched is None else self._watched.unchanged()


class Call:
    """One call of a module in a forward: the features, or a sample of what it made."""

    def __init__(self, value: Any, before: "Call | None") -> None:
        self.value, self.before = value, before


class ForwardLog:
    """The forwards since the batch was yielded: the last one, which knows the one before. Nothing is kept while it is
    not active."""

    def __init__(self) -> None:
        self.active = False
        self.last: Forward | None = None

    def open(self) -> None:
        """Keep forwards from now on, and forget those before."""
        self.active, self.last = True, None

    def close(self) -> None:
        """Forget the forwards, and keep none."""
        self.active, self.last = False, None


class _Hook:
    """A hook that adds to a log. A copy of the model gets one that does nothing: an EMA model is not in training, and
    neither the log nor its tensors are copied with it."""

    def __init__(self, log: ForwardLog | None = None, takes_input: bool = False) -> None:
        self.log, self.takes_input = log, takes_input

    def __reduce__(self) -> tuple[type["_Hook"], tuple[()]]:
        return type(self), ()


class BeforeModel(_Hook):
    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        if self.log is not None and self.log.active and torch.is_grad_enabled():
            self.log.last = Forward(args, kwargs, self.log.last)


class AtTap(_Hook):
    """Takes the features of a forward that has not ended: later ones, without gradients, are not the training's."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self.log is not None and self.log.last is not None and not self.log.last.ended:
            features = output if not self.takes_input else args[0] if args else None
            value = Kept(features) if isinstance(features, Tensor) else None
            self.log.last.tapped = Call(value, self.log.last.tapped)


class AtHead(_Hook):
    """Takes a few values of each row of what a layer made."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self.log is not None and self.log.last is not None and not self.log.last.ended:
            self.log.last.made = Call(sampled(output.detach()).clone(), self.log.last.made)


class AtTapAndHead(AtTap, AtHead):
    """Takes both, of a layer whose input are the features."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        AtTap.__call__(self, module, args, output)
        AtHead.__call__(self, module, args, output)


class AfterModel(_Hook):
    """Takes the outputs: of a tuple, the tensor at a place."""

    def __init__(self, log: ForwardLog | None = None, place: int = 0) -> None:
        super().__init__(log)
        self.place = place

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self.log is not None and self.log.last is not None and torch.is_grad_enabled():
            found = output_of(output, self.place)
            if isinstance(found, Tensor) and found.ndim > 0:
                self.log.last.output = Kept(found)
            self.log.last.ended = True


def calls_of(last: Call | None) -> list[Any]:
    """Return the values of the calls, the latest first."""
    values = []
    while last is not None:
        values.append(last.value)
        last = last.before
    return values
