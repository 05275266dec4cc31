"""A plain training step of a scorer's model: of the reference models, and of a preview."""

from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from smdl.scoring.batches import move
from smdl.scoring.scorer import Scorer


def training_losses(scorer: Scorer, batch: Any, remedy: str) -> Tensor:
    """Return the loss of each sample of a batch, with its graph. `remedy` says what to do where there is no loss."""
    batch, criterion = move(batch, scorer.network.device), scorer.criterion
    outputs, targets = scorer.network.outputs(batch), criterion.targets(batch)
    if criterion.loss is None or outputs is None or targets is None:
        raise ValueError(f"this trains a model and needs a loss: {remedy}")
    criterion.loss.check(outputs, targets)
    return criterion.loss(outputs.float(), targets)


def descend(optimizer: Optimizer, loss: Tensor) -> None:
    """Change the weights against the gradient of a loss. The gradients stay until the next step."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
