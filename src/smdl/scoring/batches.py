"""Take, join and move rows of a batch: any nesting of tensors, tuples, lists and dicts that collate_fn returns."""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor


def take(batch: Any, rows: np.ndarray) -> Any:
    """Return the given rows of every column, in the given order."""
    height(batch)  # refuse columns without one row per sample
    index = torch.from_numpy(rows)
    return _each(lambda columns: _rows_of(columns[0], rows, index), batch)


def join(batches: Sequence[Any]) -> Any:
    """Concatenate batches of the same form."""
    return batches[0] if len(batches) == 1 else _each(_joined, *batches)


def move(batch: Any, device: torch.device) -> Any:
    """Return the batch with every tensor on the device."""
    return _each(
        lambda columns: columns[0].to(device, non_blocking=True) if isinstance(columns[0], Tensor) else columns[0],
        batch,
    )


def cast(batch: Any, dtype: torch.dtype | None) -> Any:
    """Return the batch with every tensor of floats in this type; None changes nothing."""
    if dtype is None:
        return batch
    return _each(
        lambda columns: (
            columns[0].to(dtype) if isinstance(columns[0], Tensor) and columns[0].is_floating_point() else columns[0]
        ),
        batch,
    )


def height(batch: Any) -> int:
    """Return the number of rows, which must be the same in every column."""
    if type(batch) in (tuple, list) and batch and all(isinstance(column, Tensor) and column.ndim for column in batch):
        columns = batch  # the usual form, at every step: walking through a nesting takes several times as long
    else:
        columns = [column for column in _columns(batch) if _has_rows(column)]
    found = sorted(set(map(len, columns)))
    if not found:
        raise ValueError("a batch must hold tensors, arrays or lists with one row per sample, got an empty one")
    if len(found) > 1:
        raise ValueError(
            f"a batch must have one row per sample in every column, got columns of {found[0]} and {found[-1]} rows"
            "; write a collate_fn that returns such columns"
        )
    return found[0]


def checksum(batch: Any) -> int:
    """Return a number that is the same for the same rows in every process."""
    found = 0
    for column in _columns(batch):
        values = column.cpu().reshape(-1).view(torch.uint8).numpy() if isinstance(column, Tensor) else column
        found = zlib.crc32(values.tobytes() if isinstance(values, np.ndarray) else repr(values).encode(), found)
    return found


def _columns(batch: Any) -> Iterator[Any]:
    if _is_column(batch):
        yield batch
    else:
        for part in batch.values() if isinstance(batch, Mapping) else batch:
            yield from _columns(part)


def _each(do: Callable[[tuple[Any, ...]], Any], *batches: Any) -> Any:
    """Return the form of the batches with `do` applied to each column. `do` gets that column of every batch."""
    first = batches[0]
    if _is_column(first):
        return do(batches)
    if isinstance(first, Mapping):
        return in_form(first, [_each(do, *(batch[key] for batch in batches)) for key in first])
    return in_form(first, [_each(do, *members) for members in zip(*batches, strict=True)])


def in_form(batch: Any, parts: list[Any]) -> Any:
    """Return the parts in the form of a batch: a dict with its keys, or a tuple, namedtuple or list like it."""
    if isinstance(batch, Mapping):
        columns = dict(zip(batch, parts, strict=True))
        try:
            return type(batch)(columns)  # type: ignore[call-arg]
        except TypeError:
            return columns
    if hasattr(batch, "_fields"):  # a namedtuple
        return type(batch)(*parts)
    return tuple(parts) if isinstance(batch, tuple) else parts


def _is_column(value: Any) -> bool:
    """Return True for tensors, arrays and lists of plain values, such as strings after default_collate."""
    if isinstance(value, Tensor | np.ndarray):
        return True
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return not any(isinstance(member, Tensor | np.ndarray | Mapping | list | tuple) for member in value)
    if isinstance(value, Mapping | tuple):
        return False
    raise ValueError(
        f"a batch must be made of tensors, arrays, lists, tuples and dicts, got {type(value).__name__}"
        "; write a collate_fn that returns those"
    )


def _has_rows(column: Any) -> bool:
    return getattr(column, "ndim", 1) > 0


def _rows_of(column: Any, rows: np.ndarray, index: Tensor) -> Any:
    if not _has_rows(column):  # one number for the whole batch
        return column
    if isinstance(column, Tensor):
        return column[index if column.device.type == "cpu" else index.to(column.device)]
    if isinstance(column, np.ndarray):
        return column[rows]
    return type(column)(column[row] for row in rows)


def _joined(columns: tuple[Any, ...]) -> Any:
    if not _has_rows(columns[0]):
        return columns[0]
    if isinstance(columns[0], Tensor):
        shapes = {tuple(column.shape[1:]) for column in columns}
        if len(shapes) > 1:
            raise ValueError(
                "batches can be joined only if their rows have one shape, got rows of shapes"
                f" {' and '.join(map(str, sorted(shapes)))}; write a collate_fn that makes them equal"
            )
        return torch.cat(columns)
    if isinstance(columns[0], np.ndarray):
        return np.concatenate(columns)
    return type(columns[0])(member for column in columns for member in column)
