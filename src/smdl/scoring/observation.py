"""Observation: what the training forward computes for the samples of the current batch.

Hooks on the model keep the inputs, the features and the outputs of every forward with gradients. If these inputs are
another tensor than that of the batch, each row of the batch is looked up among their rows. So parts of a batch
(gradient accumulation) and rows in another order are found, and a forward of anything else is ignored.
"""

import weakref
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from smdl.scoring.batches import height, move, take
from smdl.scoring.forward_log import (
    AfterModel,
    AtHead,
    AtTap,
    AtTapAndHead,
    BeforeModel,
    Forward,
    ForwardLog,
    Kept,
    calls_of,
)
from smdl.scoring.output_check import agreement, are_moved
from smdl.scoring.row_matching import BatchInputs, all_of, answers_at_once, inputs_among, sampled
from smdl.scoring.scorer import Scorer
from smdl.scoring.taps import pooled


class Observation(NamedTuple):
    """One row per sample of the batch, in its order."""

    #: (B,) bool: whether the sample was forwarded. If False, its row in the other fields is undefined. None: all were.
    found: Tensor | None
    logits: Tensor | None  # the model's output, (B, …) float32; None if it is not needed
    features: Tensor | None  # (B, D) float32


class Doubt(IntEnum):
    """What training forwards have shown about the model. The larger doubt includes the smaller one."""

    NONE = 0
    HEAD = 1  # the outputs are not those of the linear layer alone
    ORDER = 2  # rows inside the model are in another order: nothing is known of a sample


class Observer:
    """Watches the training forwards of a scorer's model."""

    def __init__(self, scorer: Scorer, *, features: bool) -> None:
        self._scorer, self._needs_features = scorer, features
        self._log: ForwardLog | None = None  # None until the hooks are registered
        self._inputs: list[int] | None = None  # places of the columns that the model gets, if they are known
        self._expected: BatchInputs | None = None
        self._tap_is_head = self._has_head = False
        self._steps = 0
        self.doubt = Doubt.NONE
        self._called_often = False  # the module of the features, in one forward

    def start(self, batch: Any, targets: Tensor | None) -> None:
        """Expect forwards of this batch, and forget those before it. `targets` is the column of the batch."""
        if self._log is None:
            self._log = self._attach(batch, targets)
        if self.doubt == Doubt.ORDER:
            return
        self._steps += 1
        self._log.open()
        self._expected = BatchInputs(batch, targets, self._inputs)

    def stop(self) -> None:
        """Expect no forwards until the next start."""
        self._expected = None
        if self._log is not None:
            self._log.close()

    @property
    def hint(self) -> str:
        """What may help if no forward was recognised."""
        if self._called_often:
            return " The module of the features was called several times in a forward: name another one with features=."
        names = "" if self._expected is None else self._expected.names
        return names and (
            f" The batch is recognised by {names}: if the model does not get that, say what it gets with forward=, a"
            " callable (model, batch) -> outputs."
        )

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
        if not parts or self.doubt == Doubt.ORDER:
            return None
        inputs, logits, features, certain = parts[0]
        found, unchanged = None, self._expected.unchanged()
        if not self._expected.holds(inputs):
            row, in_turn = None, parts[::-1]
            if self._expected.are_in_order([part.inputs for part in in_turn]):
                parts = in_turn
            else:
                found, row = self._expected.look_up([part.inputs for part in parts])
            logits, features = (
                _joined([getattr(part, name) for part in parts], row) for name in ("logits", "features")
            )
            doubtful = any(part.certain is not None for part in parts)
            certain = _joined([part.mask for part in parts], row) if doubtful else None
        found = all_of([found, certain, unchanged])
        if logits is not None:
            self._scorer.criterion.check_outputs(logits)
        return Observation(found, None if logits is None else logits.float(), features)

    def _part(self, forward: Forward) -> "_Part | None":
        """Return what a forward computed; None if it cannot be a forward of the batch."""
        assert self._expected is not None
        if forward.output is None:
            return None
        output, features, masks = forward.output.tensor, None, [forward.output.unchanged()]
        try:
            logits = self._scorer.criterion.outputs_in(output)
            if self._needs_features:
                tapped, agrees = self._features(forward, output)
                features, masks = (
                    pooled(tapped.tensor, self._scorer.network.pooling),
                    [*masks, agrees, tapped.unchanged()],
                )
        except ValueError:
            return None
        inputs = self._expected.among(forward.args, forward.kwargs)  # after the head: any forward tells about that
        if inputs is None:
            return None
        rows = {len(tensor) for tensor in inputs if tensor is not None}
        if len(rows) != 1 or {len(tensor) for tensor in (logits, features) if tensor is not None} != rows:
            return None
        return _Part(inputs, logits, features, all_of([forward.unchanged(len(output)), *masks]))

    def _features(self, forward: Forward, output: Tensor) -> tuple[Kept, Tensor | None]:
        """Return what the tap gave, and in which rows the head made the output; None if in all, or if the head is not
        known. Raise a ValueError if it cannot be told."""
        features, place, agrees = calls_of(forward.tapped), 0, None
        if self._has_head:
            place, agrees = self._compared(calls_of(forward.made), output)
        if len(features) > 1 and not (self._has_head and self._tap_is_head):
            self._called_often = True
            raise ValueError("several calls may have made the features")
        kept = features[place if self._tap_is_head else 0] if features else None
        if not isinstance(kept, Kept):
            raise ValueError("the forward did not call the module of the features with a tensor")
        return kept, agrees

    def _compared(self, made: list[Tensor], output: Tensor) -> tuple[int, Tensor | None]:
        """Return the call of the head that made the output, and in which rows it did; None if in all."""
        shifted, outputs = self._scorer.criterion.classes, sampled(output)
        found = [agreement(one, outputs, shifted) for one in made if one.shape == outputs.shape]
        if len(found) < len(made) or not made:
            raise ValueError("another layer made the output")
        whole = (at for at, rows in enumerate(found) if rows is None or (len(made) > 1 and bool(rows.all())))
        place = next(whole, 0)
        agrees = found[place]
        decides = answers_at_once(output) or self._steps & (self._steps - 1) == 0
        if agrees is not None and decides and not bool(agrees.all()):
            self._notice(Doubt.ORDER if are_moved(made[place], outputs, agrees, shifted) else Doubt.HEAD)
            agrees = None
        return place, agrees

    def _notice(self, doubt: Doubt) -> None:
        self.doubt, self._has_head = max(self.doubt, doubt), False

    def give_up(self, doubt: Doubt) -> None:
        """Take a doubt of another rank."""
        if doubt > Doubt.NONE:
            self._notice(doubt)

    def _attach(self, batch: Any, targets: Tensor | None) -> ForwardLog:
        """Register the hooks. They stay as long as this observer: compiled code does not notice changes of hooks."""
        log, model = ForwardLog(), self._scorer.model
        hooks = [model.register_forward_pre_hook(BeforeModel(log), with_kwargs=True)]
        few = move(take(batch, np.arange(min(2, height(batch)))), self._scorer.network.device)
        if not self._needs_features:
            self._scorer.network.find_outputs(few)
        else:
            tap, head = self._look_at(batch, few, targets)
            self._tap_is_head, self._has_head = tap is head, head is not None
            kind = AtTapAndHead if self._tap_is_head else AtTap
            hooks.append(tap.register_forward_hook(kind(log, isinstance(tap, nn.Linear))))
            if head is not None and not self._tap_is_head:
                hooks.append(head.register_forward_hook(AtHead(log)))
        # The last, because the model itself may be the tap.
        hooks.append(model.register_forward_hook(AfterModel(log, self._scorer.network.member)))
        for hook in hooks:
            weakref.finalize(self, hook.remove)
        weakref.finalize(self, ForwardLog.close, log)
        return log

    def _look_at(self, batch: Any, few: Any, targets: Tensor | None) -> tuple[nn.Module, nn.Module | None]:
        """Forward a few rows. Return the tap and the linear layer that makes the outputs, if there is one, and take the
        columns that the model gets. Raise an error if rows inside the model are in another order already."""
        scorer, got = self._scorer, list[tuple[Any, Any]]()
        hook = scorer.model.register_forward_pre_hook(lambda _, *given: got.append(given), with_kwargs=True)
        try:
            tap = scorer.find_tap(few)
        finally:
            hook.remove()
        self._inputs = inputs_among(batch, few, targets, *got[-1]) if got else None
        return tap, scorer.network.maker


class _Part(NamedTuple):
    """Rows of a forward that may be rows of the batch. The inputs are one tensor per column of the batch, None for a
    column that the forward did not get."""

    inputs: list[Tensor | None]
    logits: Tensor | None
    features: Tensor | None
    #: (B,) bool: rows that were not changed in place, and whose output the head made. None: all of them.
    certain: Tensor | None

    @property
    def mask(self) -> Tensor:
        rows = next(tensor for tensor in self.inputs if tensor is not None)
        return rows.new_ones(len(rows), dtype=torch.bool) if self.certain is None else self.certain


def _joined(parts: Sequence[Tensor | None], row: Tensor | None) -> Tensor | None:
    """Concatenate the parts and return these rows, or all; None if there is nothing to join."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    if len({part.shape[1:] for part in known}) > 1:
        found = ", ".join(str(tuple(part.shape)) for part in known)
        raise ValueError(f"the forwards of parts of one batch have rows of several shapes: {found}")
    joined = known[0] if len(known) == 1 else torch.cat(known)
    return joined if row is None else joined[row.to(joined.device)]
