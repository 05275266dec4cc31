"""Principal components of rows, for maps."""

import torch
from torch import Tensor


def principal_axes(points: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return the centre (D,), the first two principal axes (D, 2), and the share of the variance along them."""
    centre = points.mean(dim=0)
    moved = (points - centre).double()
    values, vectors = torch.linalg.eigh(moved.T @ moved)
    first, total = values.argsort(descending=True)[:2], float(values.sum())
    held = float(values[first].sum()) / total if total > 0 else 1.0
    axes = vectors[:, first].float()
    axes = axes * torch.sign(axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)))  # an axis has no sign of its own
    return centre, torch.nn.functional.pad(axes, (0, 2 - axes.shape[1])), held
