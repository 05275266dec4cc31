"""BatchInputs: the inputs of a batch, by which its rows are found again among those of the model's forwards."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from smdl.scoring.batches import height

#: Values of a row that are compared. Of longer rows, this many at random places.
COMPARED = 4096
#: Values of a row that show whether a batch was changed in a way that torch does not count.
WATCHED = 8
#: Values of a row of outputs that are compared with what the head made.
SAMPLED = 64
#: Devices that can be asked for a result without waiting for them.
AT_ONCE = ("cpu",)
#: Values that are multiplied at once: on the CPU they fit its cache, elsewhere a launch takes longer than they do.
BLOCK = {"cpu": 1 << 16}
#: A large odd number: the hashes of two columns do not make up for each other.
MIX = 0x1E3779B97F4A7C15


class BatchInputs:
    """The columns of a batch that the model gets.

    Rows are the same if their values are, bit by bit, in the type that the model got: inputs may be on another device
    or in a shorter type. They are compared by a hash. Rows that were changed in place since the batch was yielded are
    not found.
    """

    def __init__(self, batch: Any, targets: Tensor | None, inputs: Sequence[int] | None = None) -> None:
        """`inputs` are the places of the columns that are inputs, see `inputs_among`; None is all but the targets, of
        which the model may get some."""
        columns = _columns(batch)
        if inputs is None:
            chosen = [pair for pair in columns if pair[1] is not targets]
            chosen = chosen or [pair for pair in columns if pair[1].ndim > 1]  # tokens are both
        else:
            chosen = [columns[place] for place in inputs]
        if not chosen:
            raise ValueError(
                "a batch without a tensor of inputs cannot be recognised in the training forward:"
                ' use candidates=smdl.Observed(observe="manual")'
            )
        self._columns, self._takes_all = [_Column(*pair) for pair in chosen], inputs is not None

    @property
    def names(self) -> str:
        """The columns that are compared, in words."""
        return ", ".join(
            f"{'a column' if column.name is None else repr(column.name)} of shape {tuple(column.tensor.shape)}"
            for column in self._columns
        )

    def among(self, args: Any, kwargs: Any) -> list[Tensor | None] | None:
        """Return the argument of a forward that could hold rows of each column: the column itself, else one of its
        name, else one of its shape; None for a column that has none. None if it is no forward of this batch."""
        if len(args) == len(self._columns) == 1 and self._columns[0].tensor is args[0]:  # as most models are called
            return None if self._columns[0].was_changed else [args[0]]
        free = [pair for pair in tensors_in([args, kwargs]) if pair[1].ndim > 0]
        found: list[Tensor | None] = [None] * len(self._columns)
        for fits in (_Column.is_it, _Column.has_name, _Column.has_shape):
            for place, column in enumerate(self._columns):
                chosen = next((pair for pair in free if found[place] is None and fits(column, *pair)), None)
                if chosen is not None:
                    found[place] = chosen[1]
                    free = [pair for pair in free if pair[1] is not chosen[1]]
        got = [column for column, tensor in zip(self._columns, found, strict=True) if tensor is not None]
        if any(column.was_changed for column in got) or len(got) < (len(found) if self._takes_all else 1):
            return None
        return found

    def holds(self, forwarded: list[Tensor | None]) -> bool:
        """Whether these are the inputs of the batch themselves."""
        pairs = zip(forwarded, self._columns, strict=True)
        return all(tensor is column.tensor for tensor, column in pairs if tensor is not None)

    def unchanged(self) -> Tensor | None:
        """Return which rows are as they were when the batch was yielded, (B,) bool, by a few values of each; None if
        all are."""
        return all_of([column.unchanged() for column in self._columns])

    def are_in_order(self, forwarded: list[list[Tensor | None]]) -> bool:
        """Whether the forwards got all rows, in their order. False also if asking would wait for a device."""
        for column, inputs in zip(self._columns, zip(*forwarded, strict=True), strict=True):
            known = [tensor for tensor in inputs if tensor is not None]
            if len(known) < len(inputs) or not all(answers_at_once(tensor) for tensor in (column.tensor, *known)):
                return False
            joined = known[0] if len(known) == 1 else torch.cat(known)
            if not torch.equal(column.tensor.to(joined.dtype), joined):
                return False
        return True

    def look_up(self, forwarded: list[list[Tensor | None]]) -> tuple[Tensor, Tensor]:
        """Return for each row of the batch whether it was forwarded, and which of the forwarded rows it is: the first
        one, or the one at its own place. Rows are the same if they are in every column that all forwards got."""
        whole, parts = torch.zeros(0), torch.zeros(0)
        complete = True
        for column, inputs in zip(self._columns, zip(*forwarded, strict=True), strict=True):
            known = [tensor for tensor in inputs if tensor is not None]
            if len(known) < len(inputs):
                complete = False
                continue
            prints = torch.cat([fingerprints(tensor) for tensor in known])
            expected = fingerprints(column.tensor.to(known[0].dtype)).to(prints.device)
            whole, parts = (expected, prints) if len(parts) == 0 else (MIX * whole + expected, MIX * parts + prints)
        rows = len(self._columns[0].tensor)
        if len(parts) == 0:  # no column is in all forwards
            return torch.zeros(rows, dtype=torch.bool), torch.zeros(rows, dtype=torch.int64)
        same = whole[:, None] == parts[None]
        found = same.any(dim=1)
        if not complete:  # rows that differ only in what the model did not get cannot be told apart
            found = found & ((whole[:, None] == whole[None]).sum(dim=1) == 1)
        preferred = same.to(torch.uint8)
        preferred.diagonal().mul_(2)  # of several equal rows
        return found, preferred.argmax(dim=1)


def inputs_among(batch: Any, rows: Any, targets: Tensor | None, args: Any, kwargs: Any) -> list[int] | None:
    """Return the places of the columns of a batch, without the targets, that the model got in a forward of some of its
    rows, in the order of the model's arguments; None if it got none as it is."""
    found, whole = list[int](), _columns(batch)
    for _, tensor in tensors_in([args, kwargs]):
        left = [(place, column) for place, (_, column) in enumerate(_columns(rows)) if place not in found]
        left = [(place, column) for place, column in left if whole[place][1] is not targets]
        same = [place for place, column in left if column is tensor]
        found += (same or [place for place, column in left if _holds_same(column, tensor)])[:1]
    return found or None


def tensors_in(value: Any, name: str | None = None) -> Iterator[tuple[str | None, Tensor]]:
    """Yield the tensors of nested dicts, tuples and lists, with the names that dicts give them."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, Mapping):
        for key, part in value.items():
            yield from tensors_in(part, key if isinstance(key, str) else None)


def answers_at_once(tensor: Tensor) -> bool:
    """Whether asking for a value of this tensor does not wait for a device."""
    return tensor.device.type in AT_ONCE


def same_rows(one: Tensor, other: Tensor) -> Tensor | None:
    """Return which rows are equal, (B,) bool; None if all are, as far as that is known without waiting for a device.
    NaN equals itself."""
    if answers_at_once(one) and torch.equal(one, other):
        return None
    return ((one == other) | ((one != one) & (other != other))).all(dim=1)


def all_of(masks: Sequence[Tensor | None]) -> Tensor | None:
    """Return where all masks are True, on the device of the first. None is a mask that is True everywhere."""
    found = None
    for mask in masks:
        if mask is not None:
            found = mask if found is None else found & mask.to(found.device)
    return found


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor was changed in place, as torch counts."""
    return 0 if tensor.is_inference() else tensor._version  # torch refuses to change inference tensors


def sampled(rows: Tensor, count: int = SAMPLED) -> Tensor:
    """Return a few values of each row, (B, …) -> (B, less than 2 · count)."""
    flat = _flat(rows)
    return flat if flat.shape[1] < 2 * count else flat[:, :: flat.shape[1] // count]


def fingerprints(inputs: Tensor) -> Tensor:
    """Return a hash of each row, (B,) int64: a sum of products with random odd numbers, modulo 2⁶⁴. So the order of
    summation does not matter, and rows that differ in one value have different hashes."""
    rows = _flat(inputs.detach())
    if rows.shape[1] > COMPARED:
        rows = rows.index_select(1, _places(rows.shape[1], rows.device))
    bits, total = _bits(rows), torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
    width = max(1, BLOCK.get(rows.device.type, 1 << 22) // max(1, len(rows)))
    for part, factors in zip(bits.split(width, 1), _factors(bits.shape[1], rows.device).split(width), strict=True):
        total += (part * factors).sum(dim=1)
    return total


class _Column:
    """A column of a batch, as it is when the batch is yielded."""

    def __init__(self, name: str | None, tensor: Tensor) -> None:
        self.name, self.tensor, self._version = name, tensor, version_of(tensor)
        self._sample = sampled(tensor, WATCHED).detach().clone()

    @property
    def was_changed(self) -> bool:
        """Whether torch has counted a change in place."""
        return version_of(self.tensor) != self._version

    def unchanged(self) -> Tensor | None:
        return same_rows(sampled(self.tensor, WATCHED), self._sample)

    def is_it(self, name: str | None, tensor: Tensor) -> bool:  # noqa: ARG002
        return tensor is self.tensor

    def has_name(self, name: str | None, tensor: Tensor) -> bool:
        return name is not None and name == self.name and self.has_shape(name, tensor)

    def has_shape(self, name: str | None, tensor: Tensor) -> bool:  # noqa: ARG002
        return tensor.shape[1:] == self.tensor.shape[1:]


def _columns(batch: Any) -> list[tuple[str | None, Tensor]]:
    rows = height(batch)
    if type(batch) in (tuple, list) and all(isinstance(column, Tensor) and column.ndim for column in batch):
        return [(None, column) for column in batch]  # the usual form, at every step
    return [(name, column) for name, column in tensors_in(batch) if column.ndim > 0 and len(column) == rows]


def _holds_same(column: Tensor, tensor: Tensor) -> bool:
    return column.shape == tensor.shape and torch.equal(column.to(tensor), tensor)


def _flat(rows: Tensor) -> Tensor:
    return rows if rows.ndim == 2 else rows.flatten(1) if rows.ndim > 2 else rows[:, None]


def _bits(rows: Tensor) -> Tensor:
    """Return numbers as the integers of the same bits."""
    if rows.is_complex():
        rows = torch.view_as_real(rows).flatten(1)
    if not rows.is_floating_point():
        return rows
    return rows.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[rows.element_size()])


@lru_cache(maxsize=32)
def _places(width: int, device: torch.device) -> Tensor:
    """Return random places in a row that are compared, in their order."""
    drawn = torch.randperm(width, generator=torch.Generator().manual_seed(width))[:COMPARED]
    return drawn.sort().values.to(device)


@lru_cache(maxsize=32)
def _factors(width: int, device: torch.device) -> Tensor:
    """Return random odd numbers, the same on every device."""
    drawn = torch.randint(-(2**62), 2**62, (width,), generator=torch.Generator().manual_seed(width))
    return (2 * drawn + 1).to(device)
