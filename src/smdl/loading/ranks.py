"""Ranks: the processes of torch.distributed that train together.

Row i of a batch, a pool or a list of samples belongs to rank i mod W. So parts of equal length, put together again row
by row, are the whole in its order, and the whole does not tell how many ranks there were.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from smdl.common.messages import choice

Rows = TypeVar("Rows", np.ndarray, Tensor, list)


class Ranks(NamedTuple):
    """The ranks of a process group: which one this process is, and how many there are."""

    number: int = 0
    size: int = 1
    group: Any = None

    @property
    def path(self) -> tuple[int, ...]:
        """What tells the random numbers of this rank from those of the others; nothing if it is the only one."""
        return () if self.size == 1 else (self.number,)

    def share(self, rows: Rows) -> Rows:
        """Return the rows that belong to this rank."""
        return rows if self.size == 1 else rows[self.number :: self.size]  # type: ignore[return-value]

    def gather(self, mine: Tensor) -> Tensor:
        """Return the rows of all ranks, put together. Every rank must call this, with a tensor of the same shape."""
        if self.size == 1:
            return mine
        sent = mine.detach().to(self._device(mine.device)).contiguous()
        found = [torch.empty_like(sent) for _ in range(self.size)]
        with self._waiting():
            dist.all_gather(found, sent, group=self.group)
        return torch.stack(found, dim=1).flatten(0, 1).to(mine.device)

    def gather_rows(self, mine: np.ndarray) -> np.ndarray:
        """`gather`, for an array."""
        return self.gather(torch.from_numpy(np.ascontiguousarray(mine))).numpy() if self.size > 1 else mine

    def gather_objects(self, mine: Any) -> list[Any]:
        """Return one object per rank. Every rank must call this."""
        found: list[Any] = [mine] * self.size
        if self.size > 1:
            with self._waiting():
                dist.all_gather_object(found, mine, group=self.group)
        return found

    def spread(self, parts: int, find: Callable[[Sequence[int]], list[np.ndarray]]) -> list[np.ndarray]:
        """Return find(parts 0, 1, …), of which this rank finds its share. Every rank must call this."""
        padded = [*range(parts), *[parts - 1] * (-parts % self.size)]
        return list(self.gather_rows(np.stack(find(self.share(padded)))))[:parts]

    def first(self, mine: np.ndarray) -> np.ndarray:
        """Return the array of rank 0. Every rank must call this, with an array of the same shape."""
        sent = torch.from_numpy(np.ascontiguousarray(mine))
        sent = sent.to(self._device(sent.device))
        with self._waiting():
            dist.broadcast(sent, group=self.group, group_src=0)
        return sent.cpu().numpy()

    def agree(self, named: dict[str, Any]) -> None:
        """Raise an error on every rank unless all ranks have the same values. Every rank must call this."""
        for rank, other in enumerate(self.gather_objects(named)):
            for name, value in named.items():
                if other[name] != value:
                    raise RuntimeError(
                        f"ranks must agree on {name}: rank {self.number} has {value}, rank {rank} has {other[name]}."
                        " Give every rank the same arguments, load the same state on every rank, and take the same"
                        " number of steps"
                    )

    def _device(self, mine: torch.device) -> torch.device:
        """Return a device that the group can send from: that of the tensor, if possible."""
        known = [pair.split(":")[0] for pair in dist.get_backend_config(self.group).split(",")]
        return mine if mine.type in known else torch.device(known[0])

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise RuntimeError(
                f"rank {self.number} of {self.size} waited for the other ranks, and one of them did not answer: it has"
                " stopped, or did not reach this point within the timeout of the process group. The first error among"
                " the ranks tells why"
            ) from error


def current_ranks(group: Any = None) -> Ranks:
    """Return the ranks as they are now: one before a process group exists."""
    if not (dist.is_available() and dist.is_initialized()):
        return Ranks()
    if dist.get_rank(group) < 0:
        raise ValueError(choice("process_group", group, "a group that this rank belongs to"))
    return Ranks(dist.get_rank(group), dist.get_world_size(group), group)
