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

from smdl.scoring.batches import height, take
from smdl.scoring.scorer import Scorer

#: Random projections per fingerprint.
PROJECTIONS = 4


class Observation(NamedTuple):
    """One row per sample of the batch, in its order."""

    #: (B,) bool: whether the sample was forwarded. If False, its row in the other fields is undefined. None: all were.
    found: Tensor | None
    logits: Tensor | None  # the model's output, (B, …) float32; None if it is not needed
    features: Tensor | None  # (B, D) float32


class Observer:
    """Watches the training forwards of a scorer's model."""

    def __init__(self, scorer: Scorer, *, features: bool) -> None:
        self._scorer, self._needs_features = scorer, features
        self._log: _Log | None = None  # None until the hooks are registered
        self._expected: _Inputs | None = None

    def start(self, batch: Any, targets: Tensor | None) -> None:
        """Expect forwards of this batch, and forget those before it."""
        if self._log is None:
            self._log = self._attach(batch)
        self._log.last, self._log.active = None, True
        self._expected = _Inputs(batch, targets)

    def stop(self) -> None:
        """Expect no forwards until the next start."""
        self._expected = None
        if self._log is not None:
            _close(self._log)

    def finish(self) -> Observation | None:
        """Return the observation since the start or the last call, or None if no forward belongs to the batch."""
        if self._log is None or self._expected is None:
            return None
        forward, self._log.last, parts = self._log.last, None, list[_Part]()
        while forward is not None:  # the latest comes first, and counts
            part = self._part(forward)
            if part is not None:
                parts.append(part)
            forward = forward.before
        if not parts:
            return None
        found, (inputs, logits, features) = None, parts[0]
        if not self._expected.holds(inputs):
            found, row = self._expected.look_up([part.inputs for part in parts])
            logits = _joined([part.logits for part in parts], row)
            features = _joined([part.features for part in parts], row)
        if logits is not None:
            self._scorer.criterion.check_outputs(logits)
        return Observation(found, None if logits is None else logits.float(), features)

    def _part(self, forward: "_Forward") -> "_Part | None":
        """Return what a forward computed; None if it cannot be a forward of the batch."""
        assert self._expected is not None
        inputs = self._expected.among(forward.args, forward.kwargs)
        try:
            logits = self._scorer.criterion.outputs_in(self._scorer.network.returned(forward.output))
            features = self._scorer.network.pooled(self._features(forward)) if self._needs_features else None
        except ValueError:
            return None
        rows = {len(tensor) for tensor in inputs if tensor is not None}
        computed = {len(tensor) for tensor in (logits, features) if tensor is not None}
        if forward.output is None or len(rows) != 1 or computed != rows:
            return None
        return _Part(inputs, None if logits is None else logits.detach(), features)

    def _features(self, forward: "_Forward") -> Any:
        calls, call = list[tuple[Any, Any]](), forward.tapped
        while call is not None:
            calls.append((call.features, call.made))
            call = call.before
        return self._scorer.network.tapped(calls, forward.output)[0] if calls else None

    def _attach(self, batch: Any) -> "_Log":
        """Register the hooks. They stay as long as this observer: compiled code does not notice changes of hooks."""
        log, model = _Log(), self._scorer.model
        hooks = [
            model.register_forward_pre_hook(_Before(log), with_kwargs=True),
            model.register_forward_hook(_After(log)),
        ]
        few = take(batch, np.arange(min(2, height(batch))))
        if not self._needs_features:
            self._scorer.network.find_outputs(few)
        else:
            tap = self._scorer.find_tap(few)
            hooks.append(tap.register_forward_hook(_AtTap(log, isinstance(tap, nn.Linear))))
        for hook in hooks:
            weakref.finalize(self, hook.remove)
        weakref.finalize(self, _close, log)
        return log


class _Part(NamedTuple):
    """Rows of a forward that may be rows of the batch. The inputs are one tensor per column of the batch, None for a
    column that the forward did not get."""

    inputs: list[Tensor | None]
    logits: Tensor | None
    features: Tensor | None


class _Forward:
    """One forward of the model."""

    def __init__(self, args: Any, kwargs: Any, before: "_Forward | None") -> None:
        self.args, self.kwargs, self.before = args, kwargs, before
        self.tapped: _Tapped | None = None  # the last call of the tap
        self.output: Any = None


class _Tapped:
    """One call of the tap in a forward."""

    def __init__(self, features: Any, made: Any, before: "_Tapped | None") -> None:
        self.features, self.made, self.before = features, made, before


class _Log:
    """The forwards since the batch was yielded: the last one, which knows the one before. (torch.compile would compile
    again for every length of a list.) Nothing is kept while it is not active."""

    def __init__(self) -> None:
        self.active = False
        self.last: _Forward | None = None


def _close(log: _Log) -> None:
    log.active, log.last = False, None


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
            self.log.last = _Forward(args, kwargs, self.log.last)


class _AtTap(_Hook):
    """Takes the features of a forward that has not ended: later ones, without gradients, are not the training's."""

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self.log is not None and self.log.last is not None and self.log.last.output is None:
            features = (args[0] if self.takes_input else output).detach()
            made = output.detach() if self.takes_input else features
            self.log.last.tapped = _Tapped(features, made, self.log.last.tapped)


class _After(_Hook):
    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self.log is not None and self.log.last is not None and torch.is_grad_enabled():
            # A copy: the loop may change its logits in place. Outputs of tokens or pixels are too large for that.
            small = isinstance(output, Tensor) and output.ndim <= 2
            kept = output.detach() if isinstance(output, Tensor) else output
            self.log.last.output = kept.clone() if small else kept
            if self.log.last.tapped is not None and self.log.last.tapped.before is None:
                self.log.last.tapped.made = None  # the only call: nothing to tell apart


class _Inputs:
    """The inputs of a batch, by which its rows are found again.

    The fingerprint of a row is its inner product with a few random vectors. Rows are the same if their fingerprints
    differ by rounding only: the model may get them on another device or in a shorter float type. Once the batch is
    changed in place, no row is found: torch counts such changes, as it must for the backward.
    """

    def __init__(self, batch: Any, targets: Tensor | None) -> None:
        rows = height(batch)
        found = [(name, column) for name, column in _tensors(batch) if column.ndim > 0 and len(column) == rows]
        inputs = [(name, column) for name, column in found if targets is None or not _same(column, targets)]
        inputs = inputs or [(name, column) for name, column in found if column.ndim > 1]  # tokens are both
        self._columns = [(name, column, _version(column)) for name, column in inputs]
        if not self._columns:
            raise ValueError(
                "a batch without a tensor of inputs cannot be recognised in the training forward:"
                ' use candidates=smdl.Observed(observe="manual")'
            )

    def among(self, args: Any, kwargs: Any) -> list[Tensor | None]:
        """Return the argument of a forward that could hold rows of each column: by its name, else by its shape."""
        free = [(name, tensor) for name, tensor in _tensors([args, kwargs]) if tensor.ndim > 0]
        found: list[Tensor | None] = []
        for name, column, version in self._columns:
            fits = [pair for pair in free if pair[1].shape[1:] == column.shape[1:]]
            named = [pair for pair in fits if name is not None and pair[0] == name]
            chosen = (named or fits or [(None, None)])[0]
            free = [pair for pair in free if pair[1] is not chosen[1]]
            found.append(chosen[1] if _version(column) == version else None)
        return found

    def holds(self, forwarded: list[Tensor | None]) -> bool:
        """Whether these are the inputs of the batch themselves."""
        pairs = zip(forwarded, self._columns, strict=True)
        return all(tensor is column for tensor, (_, column, _) in pairs if tensor is not None)

    def look_up(self, forwarded: list[list[Tensor | None]]) -> tuple[Tensor, Tensor | None]:
        """Return for each row of the batch whether it was forwarded, and which of the forwarded rows it is (None: all
        rows, in their order). Rows are the same if they are in every column that all forwards got."""
        same = torch.zeros(0)
        for (_, column, _), inputs in zip(self._columns, zip(*forwarded, strict=True), strict=True):
            known = [tensor for tensor in inputs if tensor is not None]
            if len(known) == len(inputs):
                equal = _equal_rows(column, known)
                same = equal if same.numel() == 0 else same & equal
        if same.numel() == 0:  # no column is in all forwards
            rows = len(self._columns[0][1])
            return torch.zeros(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.int64)
        in_order = same.shape[0] == same.shape[1] and same.device.type == "cpu"  # elsewhere the check would synchronise
        if in_order and bool(same.diagonal().all()):
            return same.diagonal(), None
        return same.any(dim=1), same.to(torch.uint8).argmax(dim=1)


def _equal_rows(column: Tensor, forwarded: list[Tensor]) -> Tensor:
    """Return which rows of the column are which of the forwarded rows, (rows, forwarded rows) bool."""
    prints = torch.cat([fingerprints(inputs) for inputs in forwarded])
    tolerance = max(map(_tolerance, (column.dtype, *(inputs.dtype for inputs in forwarded))))
    expected, lengths = fingerprints(column).to(prints), _wide(column).norm(dim=1).to(prints)
    return (expected[:, None] - prints[None]).abs().amax(dim=2) <= tolerance * lengths[:, None]


def _same(column: Tensor, targets: Tensor) -> bool:
    """Whether a column holds the targets, in any type. Another column of the same rows (tokens, the inputs of an
    autoencoder) may be inputs."""
    if column is targets or column.shape != targets.shape:
        return column is targets
    return column.ndim == 1 and torch.equal(column.to(targets), targets)


def _joined(parts: list[Tensor | None], row: Tensor | None) -> Tensor | None:
    """Concatenate the parts and return these rows; None if there is nothing to join."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    joined = torch.cat(known)
    return joined if row is None else joined[row]


def fingerprints(inputs: Tensor) -> Tensor:
    """Return the fingerprint of each row, (B, PROJECTIONS)."""
    rows = _wide(inputs)
    return rows @ _projections(rows.shape[1], rows.dtype, rows.device)


def _version(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place."""
    return 0 if tensor.is_inference() else tensor._version  # torch refuses to change inference tensors


def _tolerance(dtype: torch.dtype) -> float:
    """Return how far fingerprints may differ by rounding, in lengths of the row."""
    return {torch.float16: 2.0**-6, torch.bfloat16: 2.0**-6, torch.float32: 1e-4}.get(dtype, 1e-9)


def _wide(inputs: Tensor) -> Tensor:
    """Return the rows as vectors. Whole numbers, such as tokens, are kept exact."""
    short = inputs.dtype in (torch.float16, torch.bfloat16, torch.float32) or inputs.device.type == "mps"
    return inputs.detach().reshape(len(inputs), -1).to(torch.float32 if short else torch.float64)


@lru_cache(maxsize=8)
def _projections(width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
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
