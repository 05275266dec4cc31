"""The loss of a batch whose samples have weights."""

import numpy as np
import torch
from torch import Tensor

from smdl.engine.selection import Selection


def weighted_mean(losses: Tensor, selection: Selection | None) -> Tensor:
    """Return the mean of weight · loss over a batch: (Σ wᵢ lᵢ) / B.

    Args:
        losses: (B,) the loss of each sample, as `reduction="none"` gives it
        selection: `loader.selection`; the plain mean if it has no weights

    Returns:
        The mean, a tensor of one number with a gradient.

    Raises:
        ValueError: losses that are not one per sample of the selection.

    Examples:
        >>> import smdl, torch
        >>> float(smdl.weighted_mean(torch.tensor([1.0, 3.0]), None))
        2.0
    """
    if losses.ndim != 1:
        raise ValueError(f'losses must be one per sample, (B,), got shape {tuple(losses.shape)}: use reduction="none"')
    if selection is None or selection.weights is None:
        return losses.mean()
    if len(losses) != len(selection):
        raise ValueError(f"losses must be one per sample of the selection, {len(selection)}, got {len(losses)}")
    weights = torch.from_numpy(selection.weights.astype(np.float32))
    return (weights.to(losses.device) * losses).mean()
