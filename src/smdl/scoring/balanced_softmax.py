"""balanced_softmax: cross-entropy for a long tail, whose logits fit equal classes."""

from collections.abc import Sequence
from typing import get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from smdl.common.messages import choice, one_of
from smdl.common.names import Reduction


def balanced_softmax(
    logits: Tensor, targets: Tensor, counts: Tensor | np.ndarray | Sequence[float], reduction: Reduction = "mean"
) -> Tensor:
    """Return the cross-entropy of logits + log(counts): the loss of balanced softmax (Ren et al. 2020).

    The class sizes are added in training and left out in the evaluation, so the logits fit a test set with equal
    classes. It is uniform training with another loss, and costs nothing.

    Args:
        logits: (B, C), as the model returns them.
        targets: (B,) class numbers, or (B, C) probabilities, such as those of mixup. −100 is ignored.
        counts: (C,) training samples of each class.
        reduction: "mean", "sum" or "none", as for the losses of torch.

    Returns:
        The loss: one number, or (B,) with "none".

    Raises:
        ValueError: If there is not one positive count per class, or a shape is wrong.
        TypeError: If logits or targets are no tensors, or counts are no numbers.

    Examples:
        >>> import smdl, torch
        >>> labels = torch.tensor([0, 0, 0, 1])
        >>> loss = smdl.balanced_softmax(torch.zeros(4, 2), labels, labels.bincount())
        >>> round(float(loss), 4)
        0.5623
    """
    one_of("reduction", reduction, get_args(Reduction))
    for name, given, shape in (("logits", logits, "(batch, classes)"), ("targets", targets, "(batch,)")):
        if not isinstance(given, Tensor):
            raise TypeError(choice(name, type(given).__name__, f"a tensor of shape {shape}"))
    if logits.ndim != 2:
        raise ValueError(choice("logits", tuple(logits.shape), "of shape (batch, classes)"))
    numbers, soft = not targets.is_floating_point(), tuple(logits.shape)
    if targets.shape != (logits.shape[:1] if numbers else soft):
        raise ValueError(
            f"targets must be of shape ({len(logits)},), class numbers, or {soft}, probabilities, got"
            f" {tuple(targets.shape)} of {targets.dtype}"
        )
    allowed = f"{logits.shape[1]} positive numbers, one per class"
    try:
        sizes = torch.as_tensor(counts, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(choice("counts", counts, allowed)) from error
    sizes = sizes.to(logits.device)  # outside: an earlier error of the device may surface here
    if sizes.shape != logits.shape[1:]:
        raise ValueError(f"counts must be {allowed}, got shape {tuple(sizes.shape)}")
    good = (sizes > 0) & sizes.isfinite()
    if not bool(good.all()):
        place = int((~good).nonzero()[0, 0])
        raise ValueError(f"counts must be {allowed}, got {float(sizes[place]):g} for class {place}")
    try:
        return F.cross_entropy(logits + sizes.log(), targets.long() if numbers else targets, reduction=reduction)
    except IndexError as error:  # on a device, torch says it
        wrong = targets[((targets < 0) & (targets != -100)) | (targets >= soft[1])]
        raise ValueError(choice("targets", int(wrong[0]), f"in 0..{soft[1] - 1}, or −100")) from error
