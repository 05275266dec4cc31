"""Observation: what the training forward computes for the samples of the current batch.

Hooks on the model keep the inputs, the features and the logits of every forward with gradients. If these inputs are
another tensor than that of the batch, each row of the batch is looked up among their rows by a fingerprint. So parts of
a batch (gradient accumulation) and rows in another order are found, and a forward of anything else is ignored.
"""

import weakref
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from smdl.batches import height, take
from smdl.scoring import Scorer, check_logits

#: Random projections per fingerprint.
PROJECTIONS = 4


class Observation(NamedTuple):
    """One row per sample of the batch, in its order."""

    found: (
        Tensor | None
    )  # (B,) bool: whether the sample was forwarded, else its other rows mean nothing. None: all were.
    logits: Tensor  # (B, C) float32
    features: Tensor | None  # (B, D) float32


class Observer:
    """Watches the training forwards of a scorer's model."""

    def __init__(self, scorer: Scorer, *, features: bool) -> None:
        self._scorer, self._needs_features = scorer, features
        self._log: _Log | None = None  # None until the hooks are registered
        self._expected: _Inputs | None = None

    def start(self, batch: Any, targets: Tensor) -> None:
        """Expect forwards of this batch, and forget those before it."""
        if self._log is None:
            self._log = self._attach(batch)
        self._log.forwards.clear()
        self._log.active = True
        self._expected = _Inputs(batch, targets)

    def stop(self) -> None:
        """Expect no forwards until the next start."""
        self._expected = None
        if self._log is not None:
            _close(self._log)

    def finish(self) -> Observation | None:
        """Return what was observed since the start or the last call; None if no forward could be one of the batch."""
        if self._log is None or self._expected is None:
            return None
        forwards = self._log.forwards[::-1]  # the latest forward of a sample counts
        self._log.forwards.clear()
        parts = [part for forward in forwards if (part := self._part(forward)) is not None]
        if not parts:
            return None
        found, (inputs, logits, features) = None, parts[0]
        if not self._expected.holds(inputs):
            found, row = self._expected.look_up([part.inputs for part in parts])
            logits, features = torch.cat([part.logits for part in parts]), torch.cat([part.features for part in parts])
            if row is not None:
                logits, features = logits[row], features[row]
        return Observation(found, logits.float(), features if self._needs_features else None)

    def _part(self, forward: "_Forward") -> "_Part | None":
        """Return what a forward computed; None if it cannot be a forward of the batch."""
        assert self._expected is not None
        inputs = self._expected.among(forward.args, forward.kwargs)
        try:
            logits = check_logits(forward.output).detach()
        except ValueError:
            return None
        features = forward.features if self._needs_features else logits
        if inputs is None or not isinstance(features, Tensor) or not len(inputs) == len(logits) == len(features):
            return None
        return _Part(inputs, logits, features.detach().flatten(1).float())

    def _attach(self, batch: Any) -> "_Log":
        """Register the hooks. They stay as long as this observer: compiled code does not notice changes of hooks."""
        log, model = _Log(), self._scorer.model
        hooks = [
            model.register_forward_pre_hook(_Before(log), with_kwargs=True),
            model.register_forward_hook(_After(log)),
        ]
        if self._needs_features:
            tap = self._scorer.find_tap(take(batch, np.arange(min(2, height(batch)))))
            hooks.append(tap.register_forward_hook(_AtTap(log, isinstance(tap, nn.Linear))))
        for hook in hooks:
            weakref.finalize(self, hook.remove)
        weakref.finalize(self, _close, log)
        return log


class _Part(NamedTuple):
    """Rows of a forward that may be rows of the batch."""

    inputs: Tensor
    logits: Tensor
    features: Tensor


class _Forward:
    """One forward of the model."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        self.args, self.kwargs = args, kwargs
        self.features: Any = None
        self.output: Any = None


class _Log:
    """The forwards since the batch was yielded. Nothing is kept while it is not active."""

    def __init__(self) -> None:
        self.active, self.forwards = False, list[_Forward]()


def _close(log: _Log) -> None:
    log.active = False
    log.forwards.clear()


class _Hook:
    """A hook that adds to a log. A copy of the model gets one that does nothing: an EMA model is not in training, and
    neither the log nor its tensors are copied with it. torch.compile traces these hooks, so they are plain."""

    def __init__(self, log: _Log | None = None, takes_input: bool = False) -> None:
        self.log, self.takes_input = log, takes_input

    def __reduce__(self) -> tuple[type["_Hook"], tuple[()]]:
        return type(self), ()


class _Before(_Hook):
    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ARG002
        if self.log is not None and self.log.active and torch.is_grad_enabled():
            self.log.forwards.append(_Forward(args, kwargs))


class _AtTap(_Hook):
    """Checkpointed activations are forwarded without gradients first, and again, with them, in the backward."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self.log is not None and len(self.log.forwards) > 0:
            self.log.forwards[-1].features = (args[0] if self.takes_input else output).detach()


class _After(_Hook):
    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self.log is not None and torch.is_grad_enabled() and len(self.log.forwards) > 0:
            self.log.forwards[-1].output = output.detach() if isinstance(output, Tensor) else output


class _Inputs:
    """The inputs of a batch, by which its rows are found again.

    The fingerprint of a row is its inner product with a few random vectors. Rows are the same if their fingerprints
    differ by rounding only: the model may get them on another device or in a shorter float type. Once the batch is
    changed in place, no row is found: torch counts such changes, as it must for the backward.
    """

    def __init__(self, batch: Any, targets: Tensor) -> None:
        name, inputs = next(
            ((name, column) for name, column in _tensors(batch) if column.ndim > 0 and not _same(column, targets)),
            (None, None),
        )
        if inputs is None:
            raise ValueError(
                "a batch without a tensor of inputs cannot be recognised in the training forward:"
                ' use candidates=smdl.Observed(observe="manual")'
            )
        self._name, self._inputs, self._version = name, inputs, _version(inputs)

    def among(self, args: Any, kwargs: Any) -> Tensor | None:
        """Return the argument of a forward that could hold rows of this column."""
        if _version(self._inputs) != self._version:
            return None
        named = kwargs.get(self._name) if self._name is not None else None
        for _, tensor in [("", named)] if isinstance(named, Tensor) else _tensors([args, kwargs]):
            if tensor.ndim > 0 and tensor.shape[1:] == self._inputs.shape[1:]:
                return tensor
        return None

    def holds(self, forwarded: Tensor) -> bool:
        """Whether these are the inputs of the batch themselves."""
        return forwarded is self._inputs

    def look_up(self, forwarded: list[Tensor]) -> tuple[Tensor | None, Tensor | None]:
        """Return for each row of the batch whether it was forwarded (None: all were), and which of the forwarded rows
        it is (None: all rows, in their order)."""
        prints = torch.cat([fingerprints(inputs) for inputs in forwarded])
        tolerance = max(map(_tolerance, (self._inputs.dtype, *(inputs.dtype for inputs in forwarded))))
        expected, lengths = fingerprints(self._inputs).to(prints), _wide(self._inputs).norm(dim=1).to(prints)
        allowed = tolerance * lengths
        in_order = prints.shape == expected.shape and prints.device.type == "cpu"  # elsewhere the look would wait
        if in_order and bool(((expected - prints).abs().amax(dim=1) <= allowed).all()):
            return None, None
        gaps = (expected[:, None] - prints[None]).abs().amax(dim=2)  # (rows of the batch, rows of the forwards)
        same = gaps <= allowed[:, None]
        return same.any(dim=1), same.to(torch.uint8).argmax(dim=1)


def _same(column: Tensor, targets: Tensor) -> bool:
    """Whether a column holds the targets, in any type of whole numbers."""
    whole = column.shape == targets.shape and not column.is_floating_point()
    return whole and torch.equal(column.to(targets), targets)


def fingerprints(inputs: Tensor) -> Tensor:
    """Return the fingerprint of each row, (B, PROJECTIONS)."""
    rows = _wide(inputs)
    return rows @ _directions(rows.shape[1], rows.dtype, rows.device)


def _version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place."""
    return 0 if tensor.is_inference() else tensor._version  # torch refuses to change inference tensors


def _tolerance(dtype: torch.dtype) -> float:
    """Return how far fingerprints may differ by rounding, in lengths of the row."""
    return {torch.float16: 2.0**-6, torch.bfloat16: 2.0**-6, torch.float32: 1e-4}.get(dtype, 1e-9)


def _wide(inputs: Tensor) -> Tensor:
    """Return the rows as vectors. Whole numbers, such as tokens, are kept exact."""
    wide = inputs.dtype in (torch.int32, torch.int64, torch.float64) and inputs.device.type != "mps"
    return inputs.detach().reshape(len(inputs), -1).to(torch.float64 if wide else torch.float32)


@lru_cache(maxsize=8)
def _directions(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return random directions, (width, PROJECTIONS), the same for every dtype and device."""
    generator = torch.Generator().manual_seed(width)
    return torch.randn(width, PROJECTIONS, generator=generator).to(device, dtype)


def _tensors(value: Any, name: str | None = None) -> Iterator[tuple[str | None, Tensor]]:
    """Yield the tensors of nested dicts, tuples and lists, with the names that dicts give them."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from _tensors(part, key if isinstance(key, str) else None)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
