"""The form of a batch: which columns are the model's inputs, and which one holds the targets."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from smdl.common.messages import callable_or_none, choice, unknown
from smdl.scoring.batches import cast
from smdl.scoring.losses import shape_of
from smdl.scoring.scoring_options import Forward, Targets

#: Columns of a dict that hold targets unless `targets=` names another; the first that is there.
TARGETS = ("labels", "label")


class BatchForm:
    """Finds inputs and targets in a batch. Without `forward` and `targets`, the rules are:

    a tensor           the inputs; there are no targets
    a dict             `labels` or `label` are the targets, the other columns are keyword arguments of the model
    (x, y)             inputs and targets. Columns of strings are ignored everywhere.
    (x1, x2, …, y)     the last column holds the targets if it is the only one with one whole number per sample, and
                       the other columns are the inputs if the model takes so many; else an error asks
    """

    def __init__(self, forward: Forward | None = None, targets: Targets = None) -> None:
        self._forward = callable_or_none("forward", forward)
        self.has_forward = forward is not None
        if not (targets is None or callable(targets) or isinstance(targets, str | int)) or isinstance(targets, bool):
            raise TypeError(choice("targets", targets, "the name or the place of a column, or a callable"))
        self._targets: Targets = targets

    def run(self, model: nn.Module, batch: Any, classes: bool, dtype: torch.dtype | None) -> Any:
        """Return the model's output for a batch; `classes` if targets are class numbers. Inputs are cast to `dtype`,
        unless `forward` reads the batch."""
        if self._forward is not None:
            return self._forward(model, batch)
        if isinstance(batch, Tensor):
            return model(cast(batch, dtype))
        if not isinstance(batch, tuple | list | Mapping):
            raise ValueError(f"a batch that is {_form(batch)} needs forward=, a callable (model, batch) -> logits")
        places = self._inputs(batch, classes)
        if isinstance(batch, Mapping):
            named = {place: cast(batch[place], dtype) for place in places}
            _check_names(model, named, batch)
            return model(**named)
        _check_count(model, len(places), batch)
        return model(*(cast(batch[place], dtype) for place in places))

    def targets(self, batch: Any, classes: bool) -> Tensor:
        """Return the targets of a batch; `classes` if they are class numbers."""
        found = self._targets(batch) if callable(self._targets) else batch[self._place(batch, classes)]
        if not isinstance(found, Tensor):
            wanted = "one class number per sample" if classes else "a tensor with a row per sample"
            raise ValueError(f"targets must be {wanted}, got {shape_of(found)}; pass targets= to say where they are")
        return found

    def _place(self, batch: Any, classes: bool) -> Any:
        """Return the key or the index of the column of targets."""
        if self._targets is not None:
            return self._named(batch)
        if isinstance(batch, Mapping):
            for name in TARGETS:
                if name in batch:
                    return name
        elif isinstance(batch, tuple | list) and len(batch) >= 2:
            places = self._columns(batch)
            if len(places) == 2:
                return places[-1]
            whole = [place for place in places if _has_whole_numbers(batch[place])]
            if classes and whole == places[-1:]:
                return places[-1]
            raise ValueError(
                f"a batch of {len(batch)} columns needs targets=, the place of the targets (such as targets=1): "
                + (
                    f"columns {', '.join(map(str, whole))} hold one whole number per sample"
                    if whole and classes
                    else "the columns do not tell"
                )
            )
        raise ValueError(
            f"a batch that is {_form(batch)} needs targets=: the name or the place of the column of targets, or a"
            " callable batch -> targets"
        )

    def _named(self, batch: Any) -> Any:
        name: Any = self._targets
        if isinstance(batch, Mapping) and name in batch:
            return name
        if isinstance(batch, tuple | list) and isinstance(name, int) and -len(batch) <= name < len(batch):
            return name % len(batch)
        if isinstance(batch, Mapping):
            raise ValueError(unknown("column in targets=", name, map(str, batch)))
        raise ValueError(f"targets={name!r} is no column of a batch that is {_form(batch)}")

    def _inputs(self, batch: Any, classes: bool) -> list[Any]:
        """Return the keys or indices of the columns that are not the targets."""
        places = self._columns(batch)
        if callable(self._targets):
            if len(places) == 2 and not isinstance(batch, Mapping):
                return places[:1]
            found = self._targets(batch)
            return [place for place in places if batch[place] is not found]
        has_targets = any(name in batch for name in TARGETS) if isinstance(batch, Mapping) else len(places) > 1
        if self._targets is None and not has_targets:
            return places
        held = self._place(batch, classes)
        return [place for place in places if place != held]

    @staticmethod
    def _columns(batch: Any) -> list[Any]:
        """Return the keys or indices of the columns, without those of strings."""
        if not isinstance(batch, Mapping) and len(batch) <= 2:
            return list(range(len(batch)))
        places = list(batch) if isinstance(batch, Mapping) else range(len(batch))
        return [place for place in places if not _is_text(batch[place])]


def _is_text(column: Any) -> bool:
    return isinstance(column, list | tuple) and len(column) > 0 and all(isinstance(member, str) for member in column)


def _has_whole_numbers(column: Any) -> bool:
    return (
        isinstance(column, Tensor)
        and column.ndim == 1
        and not column.is_floating_point()
        and column.dtype != torch.bool
    )


def _parameters(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return what the forward takes; that of the model inside, if a wrapper passes everything on."""
    found = inspect.signature(model.forward).parameters
    inner = getattr(model, "module", None)
    if isinstance(inner, nn.Module) and any(one.kind is one.VAR_POSITIONAL for one in found.values()):
        return _parameters(inner)
    return found


def _check_names(model: nn.Module, named: Mapping[str, Any], batch: Any) -> None:
    parameters = _parameters(model)
    try:
        inspect.Signature(list(parameters.values())).bind(**named)
    except TypeError:
        raise ValueError(
            f"a batch that is {_form(batch)} needs forward=, a callable (model, batch) -> logits:"
            f" {type(model).__name__} takes {', '.join(parameters)}, and would get {', '.join(named)}"
        ) from None


def _check_count(model: nn.Module, count: int, batch: Any) -> None:
    """Refuse several inputs unless the model needs exactly so many: one more may be a weight or an index."""
    if count <= 1:
        return
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [one for one in _parameters(model).values() if one.kind in kinds and one.default is one.empty]
    if len(needed) != count:
        raise ValueError(
            f"a batch that is {_form(batch)} needs forward=, a callable (model, batch) -> logits: {count} columns may"
            f" be inputs, and {type(model).__name__} needs {len(needed)}"
        )


def _form(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a {type(batch).__name__} of {', '.join(map(str, batch))}"
    return f"a {type(batch).__name__}" + (f" of {len(batch)}" if isinstance(batch, tuple | list) else "")
