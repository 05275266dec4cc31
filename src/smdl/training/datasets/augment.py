"""Random crops and flips of a whole batch at once.

A crop of a zero-padded image is the image moved in memory, with zeros where pixels of its neighbours came in: so a
batch is cropped by one copy a sample and one multiplication, without padding a single row. Flipping is choosing the
copy from a mirrored twin. Images (B, C, H, W) are uint8 or float, on any device; the draws are those of torch's global
CPU generator.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from smdl.errors import choice


@dataclass(frozen=True)
class Augmentation:
    """Crops of images padded by `padding` zeros a side, then flips of half of them."""

    padding: int = 0
    flip: bool = False

    def __post_init__(self) -> None:
        if self.padding < 0:
            raise ValueError(choice("padding", self.padding, "a whole number ≥ 0"))

    def __call__(self, images: Tensor) -> Tensor:
        """A batch of the same shape and type; the one given stays as it is."""
        return _moved(images, self.padding, self.flip)


def pad_crop(images: Tensor, padding: int) -> Tensor:
    """A crop at a random place of each image, padded by `padding` zeros a side."""
    return Augmentation(padding)(images)


def flip(images: Tensor) -> Tensor:
    """Each image mirrored left to right, or not, with equal chances."""
    return Augmentation(flip=True)(images)


def _moved(images: Tensor, padding: int, mirror: bool) -> Tensor:
    table = _table(images.shape, padding, mirror, images.dtype, images.device)
    place = torch.randint(len(table.steps), table.starts.shape).to(images.device)
    twin = [images.flip(3).flatten()] if mirror else []
    memory = torch.cat([table.margin, images.flatten(), *twin, table.margin])
    starts = table.starts + table.steps.index_select(0, place)
    moved = memory.unfold(0, images[0].numel(), 1).index_select(0, starts).view_as(images)
    return moved.mul_(table.inside.index_select(0, table.corners.index_select(0, place))) if padding else moved


class _Table(NamedTuple):
    """What all batches of a shape have in common; a place is one of (2·padding + 1)² windows, mirrored or not."""

    starts: Tensor  # (B,) of each image in memory
    steps: Tensor  # (places,) from there
    margin: Tensor  # before the first image and after the last
    inside: Tensor  # (corners, 1, H, W) 1 inside the image and 0 in the padding, a view of one padded image
    corners: Tensor  # (places,)


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
