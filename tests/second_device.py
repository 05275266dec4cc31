"""A second device for machines without one: its tensors compute on the CPU, and refuse what tensors of a GPU refuse.

They say that they are on the device "meta". They have no `.numpy()` and no pointer, and an operation on tensors of both
devices is an error, except for the few that a GPU allows: copies, numbers (tensors without dimensions) and indexing
with an index on the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

SECOND = torch.device("meta")
ops = torch.ops.aten
#: Operations between devices that a GPU allows: copies, and reading and writing at an index that is on the CPU.
COPIES = {ops._to_copy.default, ops.copy_.default}
WRITES = {ops.index_put_.default, ops.index_put.default, ops._index_put_impl_.default}
INDEXING = {ops.index.Tensor, *WRITES}


class MixedDevicesError(RuntimeError):
    """An operation on tensors of two devices."""


class Remote(Tensor):
    """A tensor of the second device: `held` holds its numbers."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "Remote":
        made = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, held.shape, strides=held.stride(), storage_offset=held.storage_offset(), dtype=held.dtype,
            device=SECOND,
        )  # fmt: skip
        made.held = held
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Remote({self.held!r})"

    def numpy(self, *, force: bool = False) -> Any:
        if not force:
            raise TypeError("can't convert a tensor of the second device to numpy: copy it to the host first")
        return self.detach().cpu().numpy()

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


def run(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an operation on the CPU. Its results are where those of a GPU would be."""
    given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    remote = [isinstance(each, Remote) for each in given]
    device = kwargs.get("device")
    there = any(remote) if device is None else torch.device(device) == SECOND
    if func is ops.copy_.default:
        there = remote[0]
    elif any(remote) and func not in COPIES:
        same = given[:1] + (given[-1:] if func in WRITES else []) if func in INDEXING else given
        if (func in INDEXING and not remote[0]) or any(each.ndim for each in same if not isinstance(each, Remote)):
            raise MixedDevicesError(f"{func} got tensors of two devices: {[tuple(each.shape) for each in given]}")
    if device is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    found = func(*tree_map(_near, args), **tree_map(_near, kwargs))
    if not there:
        return found
    far = tree_map(_far, found)
    return return_and_correct_aliasing(func, args, kwargs, far) if any(remote) else far


def _near(thing: Any) -> Any:
    return thing.held if isinstance(thing, Remote) else thing


def _far(thing: Any) -> Any:
    return Remote(thing) if isinstance(thing, Tensor) and not isinstance(thing, Remote) else thing


class _Mode(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(func, args, kwargs or {})


class _Factories(TorchFunctionMode):
    """Makes tensors of Python numbers: torch makes those without its dispatcher."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.tensor, torch.as_tensor) and torch.device(kwargs.get("device") or "cpu") == SECOND:
            kwargs.pop("device")
            return func(*args, **kwargs).to(SECOND)
        return func(*args, **kwargs)


@contextmanager
def second_device() -> Iterator[torch.device]:
    """Within the block there is a second device."""
    state = SimpleNamespace(
        device_count=lambda: 1, get_rng_state=lambda *_: torch.empty(0), set_rng_state=lambda *_: None
    )
    asked = torch.is_autocast_enabled
    with (
        mock.patch.object(torch, SECOND.type, state, create=True),
        mock.patch.object(torch, "is_autocast_enabled", lambda *kind: kind != (SECOND.type,) and asked(*kind)),
        _Factories(),
        _Mode(),
    ):
        yield SECOND
