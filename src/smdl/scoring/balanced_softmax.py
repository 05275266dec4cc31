"""balanced_softmax: cross-entropy for a long tail, whose logits fit equal classes."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from smdl.common.messages import one_of
from smdl.common.names import Reduction


def balanced_softmax(
    logits: Tensor, targets: Tensor, counts: Tensor | np.ndarray | Sequence[float], reduction: Reduction = "mean"
) -> Tensor:
    """Return the cross-entropy of logits + log(counts): the loss of balanced softmax (Ren et al. 2020).

    The class sizes are added in training and left out in the evaluation, so the logits fit a test set with equal
    classes. It is uniform training with another loss, and costs nothing.

    Args:
        logits: (B, C), as the model returns them.
        targets: (B,) class numbers.
        counts: (C,) training samples of each class.
        reduction: "mean", "sum" or "none", as for the losses of torch.

    Returns:
        The loss: one number, or (B,) with "none".

    Raises:
        ValueError: If there is not one positive count per class.

    Examples:
        >>> import smdl, torch
        >>> labels = torch.tensor([0, 0, 0, 1])
        >>> loss = smdl.balanced_softmax(torch.zeros(4, 2), labels, labels.bincount())
        >>> round(float(loss), 4)
        0.5623
    """
    one_of("reduction", reduction, get_args(Reduction))
    sizes = torch.as_tensor(counts, dtype=torch.float32, device=logits.device)
    if sizes.shape != logits.shape[1:] or not bool((sizes > 0).all()) or not bool(sizes.isfinite().all()):
        raise ValueError(
            f"counts must be {logits.shape[1]} positive numbers, one per class, got shape {tuple(sizes.shape)} with"
            f" {int((sizes <= 0).sum())} that are not positive"
        )
    return F.cross_entropy(logits + sizes.log(), targets, reduction=reduction)
