"""InMemory: a data set held in memory, which hands out whole batches."""

from collections.abc import Sequence
from copy import copy
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from smdl.training.datasets.augment import Augmentation


class InMemory(Dataset[tuple[Tensor, Any]]):
    """Images (N, C, H, W) as uint8, or float vectors (N, D), and a class number for each.

    `memory[i]` is (input, class number); `memory.__getitems__(indices)` is a whole batch, augmented and normalised at
    once: a DataLoader takes it with `collate_fn=whole`.

    mean, std  (C,), in the images' own units: inputs are (image − mean) / std
    classes    their names
    """

    def __init__(
        self,
        images: Tensor,
        labels: Tensor,
        mean: Tensor | None = None,
        std: Tensor | None = None,
        augmentation: Augmentation | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        if len(images) != len(labels):
            raise ValueError(f"labels must be one an image: {len(images)} images, {len(labels)} labels")
        self.images = images
        self.labels = labels.to(torch.int64)
        self.mean = mean
        self.std = std
        self.augmentation = augmentation
        self.classes = classes

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        inputs, labels = self.__getitems__([index % len(self)])
        return inputs[0], int(labels[0])

    def __getitems__(self, indices: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """(inputs float32 (B, ...), labels (B,))."""
        chosen = torch.as_tensor(indices, dtype=torch.int64)
        images = self.images.index_select(0, chosen)
        if self.augmentation is not None:
            images = self.augmentation(images)
        inputs = images.to(torch.float32)  # of uint8 or float64 a copy, of float32 what index_select has made
        if self.mean is not None and self.std is not None:
            across = (-1, *[1] * (inputs.ndim - 2))
            inputs.sub_(self.mean.view(across)).div_(self.std.view(across))
        return inputs, self.labels.index_select(0, chosen)

    def plain(self) -> "InMemory":
        """The same samples, in the same memory, without augmentation."""
        twin = copy(self)
        twin.augmentation = None
        return twin

    def take(self, indices: Tensor, labels: Tensor) -> "InMemory":
        """These samples alone, under these labels."""
        twin = copy(self)
        if not torch.equal(indices, torch.arange(len(self))):  # else the images are shared
            twin.images = self.images.index_select(0, indices)
        twin.labels = labels
        return twin


def whole(batch: Any) -> Any:
    """The collate_fn of InMemory: its batches are whole already."""
    return batch


def moments(images: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (1 where it is 0) of each channel of uint8 images (N, C, H, W), exactly."""
    values = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([images[:, c].flatten().bincount(minlength=256) for c in range(images.shape[1])])
    shares = counts.double() / counts.sum(dim=1, keepdim=True)
    mean = shares @ values
    std = (shares * (values - mean[:, None]) ** 2).sum(dim=1).sqrt()
    return mean.float(), torch.where(std > 0, std, 1.0).float()
