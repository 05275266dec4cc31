"""Scoring: how to score other batches, models and losses than the usual ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from smdl.common.messages import names_checked
from smdl.common.names import LossName, PoolingName

Forward = Callable[[nn.Module, Any], Any]
Targets = str | int | Callable[[Any], Tensor] | None
Features = str | Callable[[nn.Module, Any], Any] | None
Pooling = PoolingName | Callable[[Tensor], Tensor] | None
Head = Callable[[Tensor], Tensor]
LossFunction = Callable[[Tensor, Tensor], Tensor]


@names_checked
@dataclass(frozen=True)
class Scoring:
    """How to score batches, models and losses that differ from `(inputs, class numbers)` and a model that ends in a
    linear layer. Both loaders, the trainers and `smdl.compare` take it as `scoring=`.

    Args:
        forward: A callable (model, batch) -> outputs. By default the model is called with the inputs of the batch:
            `x` of `(x, y)`, the columns of a dict without its targets. Outputs are a tensor, or `logits` of a dict or
            an object.
        targets: The name or the place of the column of targets, or a callable batch -> targets. By default `labels` or
            `label` of a dict, the last column of a tuple.
        features: The module whose features are compared. The name of an nn.Linear means its input, that of any other
            module its output. A callable (model, batch) returns features, or (features, outputs) to save the second
            forward. By default the input of the linear layer that makes the outputs.
        pooling: How features of more than two dimensions become (batch, width): "mean", "first", "last", "flatten", or
            a callable.
        head: A callable features -> outputs. By default the linear layer that makes the outputs, if the features are
            its input.
        loss: "cross_entropy" (class numbers or soft targets), "binary_cross_entropy", "mean_squared_error" ("mse"), a
            loss of torch such as `nn.MSELoss()`, or a callable (outputs, targets) -> one loss per sample. By default
            cross_entropy with class numbers.

    Examples:
        >>> import smdl
        >>> smdl.Scoring(features="pool", loss="mean_squared_error").features
        'pool'
    """

    forward: Forward | None = None
    targets: Targets = None
    features: Features = None
    pooling: Pooling = None
    head: Head | None = None
    loss: LossName | LossFunction | None = None
