"""Random crops and flips of a whole batch at once.

A crop of a zero-padded image is the image moved in memory, with zeros where pixels of its neighbours came in: so a
batch is cropped by one copy a sample and one multiplication, without padding a single row. Flipping is choosing the
copy from a mirrored twin. Images (B, C, H, W) are uint8 or float, on any device; the draws are those of torch's global
CPU generator.
"""

from dataclasses import dataclass
from functools import lru_cache

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
    count, channels, height, width = images.shape
    size = channels * height * width
    steps, inside = _windows(height, width, padding, images.dtype, images.device)
    place = torch.randint(len(steps), (count,))
    start = torch.arange(0, count * size, size) + steps.index_select(0, place)
    margin = images.new_zeros(padding * (width + 1))
    parts = [margin, images.flatten(), margin]
    if mirror:
        parts.insert(2, images.flip(3).flatten())
        start += count * size * torch.randint(2, (count,))
    moved = torch.cat(parts).unfold(0, size, 1).index_select(0, start.to(images.device)).view_as(images)
    return moved.mul_(inside.index_select(0, place.to(images.device))[:, None]) if padding else moved


@lru_cache(maxsize=16)
def _windows(height: int, width: int, padding: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The (2·padding + 1)² places of a window: steps of each through memory, and 1 where it lies inside the image."""
    side = torch.arange(2 * padding + 1)
    padded = F.pad(torch.ones(height, width, dtype=dtype, device=device), [padding] * 4)
    inside = padded.unfold(0, height, 1).unfold(1, width, 1).flatten(0, 1)  # (places, H, W)
    return (side[:, None] * width + side).flatten(), inside
