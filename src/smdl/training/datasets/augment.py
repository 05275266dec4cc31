"""Random crops and flips of a whole batch at once.

A crop of a zero-padded image is a shifted window of memory in which the pixels outside the image are set to 0. So a
batch is cropped by one copy per sample and one multiplication, without padding. A flipped image is copied from a
mirrored batch. Images (B, C, H, W) are uint8 or float, on any device. Random numbers come from the global CPU generator
of torch.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from smdl.common.messages import whole_number


@dataclass(frozen=True)
class Augmentation:
    """Crop images padded by `padding` zeros per side, then flip half of them."""

    padding: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        whole_number("padding", self.padding, 0)

    def __call__(self, images: Tensor) -> Tensor:
        """Return a new batch of the same shape and type."""
        table = _table(images.shape, self.padding, self.flip, images.dtype, images.device)
        place = torch.randint(len(table.steps), table.starts.shape).to(images.device)
        mirrored = [images.flip(3).flatten()] if self.flip else []
        memory = torch.cat([table.margin, images.flatten(), *mirrored, table.margin])
        starts = table.starts + table.steps.index_select(0, place)
        moved = memory.unfold(0, images[0].numel(), 1).index_select(0, starts).view_as(images)
        return moved.mul_(table.inside.index_select(0, table.corners.index_select(0, place))) if self.padding else moved


class _Table(NamedTuple):
    """What all batches of one shape share. A place is one of (2·padding + 1)² windows, mirrored or not."""

    starts: Tensor  # (B,) where each image starts in memory
    steps: Tensor  # (places,) offset of each place from the start
    margin: Tensor  # before the first image and after the last
    inside: Tensor  # (corners, 1, H, W) 1 inside the image, 0 in the padding; a view of one padded image
    corners: Tensor  # (places,) index into `inside`


@lru_cache(maxsize=32)
def _table(shape: torch.Size, padding: int, mirror: bool, dtype: torch.dtype, device: torch.device) -> _Table:
    count, channels, height, width = shape
    size, wide = channels * height * width, width + 2 * padding
    row, column = torch.meshgrid(*[torch.arange(2 * padding + 1, device=device)] * 2, indexing="ij")
    steps, corners = (row * width + column).flatten(), (row * wide + column).flatten()
    if mirror:
        steps, corners = torch.cat([steps, steps + count * size]), torch.cat([corners, corners])
    padded = F.pad(torch.ones(height, width, dtype=dtype, device=device), [padding] * 4)
    return _Table(
        starts=torch.arange(0, count * size, size, device=device),
        steps=steps,
        margin=torch.zeros(padding * (width + 1), dtype=dtype, device=device),
        inside=padded.as_strided((int(corners.max()) + 1, 1, height, width), (1, 0, wide, 1)),
        corners=corners,
    )
