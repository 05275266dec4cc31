"""InMemory: a data set held in memory that reads whole batches at once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from smdl.training.datasets.augment import Augmentation


@dataclass(eq=False, repr=False)
class InMemory(Dataset[tuple[Tensor, Any]]):
    """Images (N, C, H, W) as uint8, or float vectors (N, D), with one class number per sample.

    `data[i]` is (input, class number). `data.__getitems__(indices)` is a whole batch, augmented and normalised at once;
    a DataLoader needs `collate_fn=identity_collate` for it.

    mean, std  (C,), in the units of the images: inputs are (image − mean) / std
    classes    the names of the classes
    """

    images: Tensor
    labels: Tensor
    mean: Tensor | None = None
    std: Tensor | None = None
    augmentation: Augmentation | None = None
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        images, labels = len(self.images), len(self.labels)
        if images != labels:
            raise ValueError(f"there must be one label per image, got {images} images, {labels} labels")
        self.labels = self.labels.to(torch.int64)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        inputs, labels = self.__getitems__([index % len(self)])
        return inputs[0], int(labels[0])

    def __getitems__(self, indices: Sequence[int] | Tensor) -> tuple[Tensor, Tensor]:
        """Return (inputs float32 (B, ...), labels (B,))."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        images = self.images.index_select(0, rows)
        if self.augmentation is not None:
            images = self.augmentation(images)
        inputs = images.to(torch.float32)  # float32 images are not copied again
        if self.mean is not None and self.std is not None:
            across = (-1, *[1] * (inputs.ndim - 2))
            inputs.sub_(self.mean.view(across)).div_(self.std.view(across))
        return inputs, self.labels.index_select(0, rows)

    def plain(self) -> "InMemory":
        """Return the same samples, in the same memory, without augmentation."""
        return replace(self, augmentation=None)

    def labelled_subset(self, indices: Tensor, labels: Tensor) -> "InMemory":
        """Return these samples with these labels."""
        whole = torch.equal(indices, torch.arange(len(self)))  # then share the images
        return replace(self, images=self.images if whole else self.images.index_select(0, indices), labels=labels)


def add_noise(images: Tensor, rows: np.ndarray, rng: np.random.Generator) -> None:
    """Change these samples a little, in place. Bytes get whole numbers from −8 to 8, drawn uniformly, and stay in
    0..255. Floats get normal noise of 1 % of the standard deviation of their column."""
    scale = None if images.dtype == torch.uint8 else 0.01 * images.double().std(dim=0, correction=0).numpy()
    for row in rows:  # one at a time: the noise of a whole set would take several times its memory
        image = images[row].numpy()
        if scale is None:
            noise = rng.integers(-8, 9, image.shape, dtype=np.int16)
            image[...] = np.clip(image + noise, 0, 255)
        else:
            image += scale * rng.standard_normal(image.shape)


def identity_collate(batch: Any) -> Any:
    """Return the batch unchanged: the collate_fn for InMemory, which reads whole batches."""
    return batch


def mean_and_std(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the exact mean and standard deviation (1 if it is 0) of each channel of uint8 images (N, C, H, W)."""
    values = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([images[:, c].flatten().bincount(minlength=256) for c in range(images.shape[1])])
    shares = counts.double() / counts.sum(dim=1, keepdim=True)
    mean = shares @ values
    std = (shares * (values - mean[:, None]) ** 2).sum(dim=1).sqrt()
    return mean.float(), torch.where(std > 0, std, 1.0).float()
