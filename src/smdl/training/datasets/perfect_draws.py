"""What perfect knowledge of a data set would draw: the oracle of comparisons by regimes."""

import numpy as np


def perfect_draws(images: np.ndarray, groups: np.ndarray, wrong: np.ndarray, hidden_groups: bool) -> np.ndarray | None:
    """Return how often each training sample should be drawn, relative to the others, (N,). None if nothing is hidden.

    Wrong labels are never drawn, every image is drawn equally often however many copies it has, and with
    `hidden_groups` every group is drawn equally often.

    images   which samples are copies of one image: the number of the image, (N,)
    groups   the group of each sample, such as its class before classes were merged, (N,)
    wrong    which labels are wrong, (N,)
    """
    right = ~wrong
    copies = np.bincount(images[right], minlength=int(images.max()) + 1)[images]
    if not (wrong.any() or hidden_groups or (copies > 1).any()) or not right.any():
        return None
    weights = np.where(right, 1 / np.maximum(copies, 1), 0.0)
    if hidden_groups:
        sizes = np.bincount(groups, weights=weights)
        weights /= np.where(sizes > 0, sizes, 1.0)[groups]
    return weights
