"""Losses: what the model's outputs and the targets say about each sample.

A loss turns outputs and targets into Scores: one loss per sample, and, where the loss defines them, probabilities,
class numbers and errors. The errors are the gradient of each sample's loss with respect to the model's output.
"""

import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.common.messages import choice, unknown
from smdl.scoring.scoring_options import LossFunction


class Scores(NamedTuple):
    """What the model computes for a batch, row by row. None: the loss does not say."""

    features: Tensor  # (B, D) float32
    probabilities: Tensor | None = None  # (B, C) float32
    labels: Tensor | None = None  # (B,) int64
    losses: Tensor | None = None  # (B,) float32
    errors: Tensor | None = None  # (B, C) float32; None also if they are probabilities − onehot(labels)

    def each(self, do: Callable[[Tensor], Tensor]) -> "Scores":
        """Return scores with `do` applied to every field that is there."""
        return Scores(*(None if value is None else do(value) for value in self))  # type: ignore[arg-type]

    def known_losses(self) -> Tensor:
        """Return the losses. An error says that there are none: only features are needed of these batches."""
        if self.losses is None:
            raise ValueError("this method needs one loss per sample: pass loss=")
        return self.losses

    def gives(self, evidence: str) -> bool:
        """Whether a Pool of these scores has this evidence."""
        if evidence == "errors" and self.errors is None:
            return self.probabilities is not None and self.labels is not None
        return getattr(self, evidence) is not None


class Loss:
    """A loss by its name. Outputs are (B, C), or (B,) where that makes sense."""

    name: str
    gives: frozenset[str] = frozenset({"errors", "labels", "losses", "probabilities"})  # fields of Scores, at most

    def targets(self, found: Tensor) -> Tensor:
        """Return targets in the type that the loss takes, or raise an error with what was found."""
        raise NotImplementedError

    def outputs(self, found: Any) -> Tensor:
        """Return the tensor of outputs in what the model returned, or raise an error with what was found."""
        output = output_of(found)
        if not isinstance(output, Tensor) or output.ndim == 0:
            raise ValueError(
                "the model's output must be a tensor, a tuple that starts with one, or a dict or an object with"
                f" `logits`, got {shape_of(output)}; see forward="
            )
        return output

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        """Raise an error unless outputs and targets fit each other."""

    def scores(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Scores:
        """Return the scores of a forward that made these features and outputs."""
        raise NotImplementedError

    def scores_but_losses(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Scores:
        """Return the same without losses, unless that saves nothing."""
        return self.scores(features, outputs, targets)

    def labels(self, targets: Tensor) -> Tensor | None:  # noqa: ARG002
        """Return the class number of each sample; None if targets are no classes."""
        return None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return one loss per sample, (B,), through which gradients can flow."""
        raise NotImplementedError


class CrossEntropy(Loss):
    """−Σ_c q_c log p_c with p = softmax(outputs): q is a class number, or with `soft` also a row of probabilities."""

    name = "cross_entropy"

    def __init__(self, soft: bool) -> None:
        self._soft = soft

    def outputs(self, found: Any) -> Tensor:
        return check_logits(found)

    def targets(self, found: Tensor) -> Tensor:
        if self._soft and found.ndim == 2 and found.is_floating_point():
            return found.float()
        if found.ndim != 1 or found.is_floating_point() or found.dtype == torch.bool:
            raise ValueError(
                f"targets must be one class number per sample, got {found.dtype} of {shape_of(found)};"
                " pass targets= to say where they are, or loss= if this is no classification"
            )
        return found.to(torch.int64)

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        if targets.ndim == 1:
            check_targets(targets, outputs.shape[1])
        elif targets.shape != outputs.shape:
            raise ValueError(
                f"soft targets must have the shape of the logits, {tuple(outputs.shape)}, got {shape_of(targets)}"
            )
        elif bool((targets < 0).any()) or float((targets.sum(dim=1) - 1).abs().max()) > 1e-3:
            raise ValueError(
                "soft targets of cross_entropy must be ≥ 0 and sum to 1 in every row;"
                ' for several labels per sample use loss="binary_cross_entropy"'
            )

    def scores(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Scores:
        return self._scores(features, outputs, targets, losses=True)

    def scores_but_losses(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Scores:
        return self._scores(features, outputs, targets, losses=False)

    def _scores(self, features: Tensor, outputs: Tensor, targets: Tensor, losses: bool) -> Scores:
        log_probabilities = outputs.log_softmax(dim=1)
        probabilities = log_probabilities.exp()
        if targets.ndim == 1:
            found = F.nll_loss(log_probabilities, targets, reduction="none") if losses else None
            return Scores(features, probabilities, targets, found)
        errors = probabilities * targets.sum(dim=1, keepdim=True) - targets
        return Scores(features, probabilities, None, -(targets * log_probabilities).sum(dim=1), errors)

    def labels(self, targets: Tensor) -> Tensor | None:
        return targets if targets.ndim == 1 else None

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none")


class _PerOutput(Loss):
    """A mean over the outputs of a sample: targets have the shape of the outputs, (B,), (B, 1) or (B, C)."""

    def targets(self, found: Tensor) -> Tensor:
        if found.ndim not in (1, 2):
            raise ValueError(
                f"targets of {self.name} must have the shape (batch,) or (batch, outputs), got {shape_of(found)};"
                " pass targets= to say where they are, or a callable as loss="
            )
        return found.float()

    def outputs(self, found: Any) -> Tensor:
        outputs = super().outputs(found)
        if outputs.ndim not in (1, 2) or not outputs.is_floating_point():
            raise ValueError(
                f"outputs of {self.name} must be floats of shape (batch,) or (batch, outputs), got {outputs.dtype} of"
                f" {shape_of(outputs)}; see forward=, or pass a callable as loss="
            )
        return outputs

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        if _column(outputs).shape != _column(targets).shape:
            raise ValueError(
                f"targets of {self.name} must have the shape of the model's output, {tuple(outputs.shape)},"
                f" got {shape_of(targets)}"
            )


class BinaryCrossEntropy(_PerOutput):
    """−(y log p + (1 − y) log(1 − p)) with p = sigmoid(output): one output for two classes, or one per label."""

    name = "binary_cross_entropy"

    def check(self, outputs: Tensor, targets: Tensor) -> None:
        super().check(outputs, targets)
        if bool((targets < 0).any()) or bool((targets > 1).any()):
            low, high = float(targets.min()), float(targets.max())
            found = low if low < 0 else high
            raise ValueError(f"targets of binary_cross_entropy must be in [0, 1], got {found:g}")

    def scores(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Scores:
        outputs, targets = _column(outputs), _column(targets)
        p = outputs.sigmoid()
        losses = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)
        one = outputs.shape[1] == 1
        probabilities = torch.cat([1 - p, p], dim=1) if one else None
        # The likelier class. Whether there are labels must not depend on values: other batches and ranks have others.
        labels = targets[:, 0].round().to(torch.int64) if one else None
        return Scores(features, probabilities, labels, losses, (p - targets) / outputs.shape[1])

    def labels(self, targets: Tensor) -> Tensor | None:
        targets = _column(targets)
        if targets.shape[1] > 1 or bool((targets != targets.round()).any()):
            return None
        return targets[:, 0].to(torch.int64)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        outputs, targets = _column(outputs), _column(targets)
        return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)


class MeanSquaredError(_PerOutput):
    """The mean of (output − target)² over the outputs of a sample."""

    name = "mean_squared_error"
    gives = frozenset({"errors", "losses"})

    def scores(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Scores:
        gaps = _column(outputs) - _column(targets)
        return Scores(features, losses=gaps.square().mean(dim=1), errors=2 * gaps / gaps.shape[1])

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (_column(outputs) - _column(targets)).square().mean(dim=1)


class OwnLoss(Loss):
    """A callable (outputs, targets) -> one loss per sample. Errors come from autograd if outputs are (B,) or (B, C):
    other outputs, such as those of a token each, have no gradient in factored form."""

    name = "callable"
    gives = frozenset({"errors", "losses"})

    def __init__(self, function: LossFunction) -> None:
        self._function = function

    def targets(self, found: Tensor) -> Tensor:
        return found

    def scores(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Scores:
        if outputs.ndim > 2:
            return Scores(features, losses=self(outputs, targets).float())
        with torch.enable_grad():
            leaf = outputs.detach().requires_grad_()
            losses = self(leaf, targets)
            (errors,) = torch.autograd.grad(losses.sum(), leaf) if losses.requires_grad else (None,)
        errors = None if errors is None else _column(errors).float()
        return Scores(features, losses=losses.detach().float(), errors=errors)

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        losses = self._function(outputs, targets)
        if not isinstance(losses, Tensor) or losses.shape != outputs.shape[:1]:
            raise ValueError(
                f"loss= must return one loss per sample, ({len(outputs)},), got {shape_of(losses)}"
                ' (use reduction="none", then the mean over all dimensions but the first)'
            )
        return losses


LOSSES: dict[str, Callable[[], Loss]] = {
    "binary_cross_entropy": BinaryCrossEntropy,
    "cross_entropy": lambda: CrossEntropy(soft=True),
    "mean_squared_error": MeanSquaredError,
}


#: Short names.
SHORT = {"bce": "binary_cross_entropy", "mse": "mean_squared_error"}
#: Losses of torch that are one of these, unless they have options.
_OF_TORCH = {
    nn.BCEWithLogitsLoss: "binary_cross_entropy",
    nn.CrossEntropyLoss: "cross_entropy",
    nn.MSELoss: "mean_squared_error",
}


def as_loss(loss: str | LossFunction | None) -> Loss:
    """Return a loss by its name, of a loss of torch, or of a callable. None is cross-entropy with class numbers."""
    if loss is None:
        return CrossEntropy(soft=False)
    if isinstance(loss, nn.Module) and hasattr(loss, "reduction"):
        return _of_torch(loss)
    if isinstance(loss, str):
        loss = SHORT.get(loss, loss)
        if loss not in LOSSES:
            raise ValueError(unknown("loss", loss, LOSSES) + ", or a callable that returns one loss per sample")
        return LOSSES[loss]()
    if isinstance(loss, type):
        made = f"nn.{loss.__name__}()" if issubclass(loss, nn.Module) else f"{loss.__name__}()"
        raise TypeError(f"loss must be an object, not a class: pass {made}")
    if not callable(loss):
        raise TypeError(choice("loss", loss, f"one of {', '.join(LOSSES)}, or a callable"))
    return OwnLoss(loss)


def _of_torch(loss: nn.Module) -> Loss:
    """Return the loss of each sample instead of the mean over the batch."""
    name, plain = _OF_TORCH.get(type(loss)), type(loss)
    if name is not None and _settings(loss) == _settings(plain()):
        return LOSSES[name]()
    each = copy.copy(loss)
    each.reduction = "none"  # type: ignore[assignment]

    def losses(outputs: Tensor, targets: Tensor) -> Tensor:
        found = each(outputs, targets)
        return found.flatten(1).mean(dim=1) if found.ndim > 1 else found

    return OwnLoss(losses)


def _settings(loss: nn.Module) -> str:
    """Return the options of a loss of torch that change its values for a sample."""
    kept = {name: value for name, value in vars(loss).items() if not name.startswith("_")}
    return repr(({**kept, "reduction": "", "training": ""}, list(loss.state_dict())))


def check_logits(found: Any) -> Tensor:
    """Return the logits, (batch, classes), in a model's output, or raise an error with the shape found."""
    logits = output_of(found)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point() or logits.shape[1] < 2:
        raise ValueError(
            f"the model's output must be logits of shape (batch, classes), got {shape_of(logits)}; see forward="
            " for other outputs and loss= for other losses"
        )
    return logits


def members(found: Any) -> list[Tensor]:
    """Return the members of a tuple or list that are tensors with rows; none if it does not begin with a tensor."""
    if not isinstance(found, tuple | list) or not found or not isinstance(found[0], Tensor):
        return []
    return [one for one in found if isinstance(one, Tensor) and one.ndim > 0]


def output_of(found: Any, place: int = 0) -> Any:
    """Return the tensor of outputs: `logits` of a dict or an object, or one of the members of a tuple with a row per
    sample, by default the first. (A model of transformers with return_dict=False returns the loss, one number, before
    them.)"""
    if isinstance(found, Tensor):
        return found
    if isinstance(found, Mapping):
        return found.get("logits", found)
    if hasattr(found, "logits"):
        return found.logits
    return next(iter(members(found)[place:]), found)


def check_targets(targets: Tensor, classes: int) -> None:
    """Raise an error that names a class number outside 0..classes-1."""
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise ValueError(f"targets must be in 0..{classes - 1}, the model's classes, got {low if low < 0 else high}")


def are_probabilities(outputs: Tensor) -> bool:
    """Whether every row is ≥ 0 and sums to 1, as after a softmax."""
    if outputs.ndim != 2 or outputs.shape[1] < 2 or bool((outputs < 0).any()):
        return False
    tolerance = 1e-3 if outputs.dtype in (torch.float32, torch.float64) else 2e-2
    return bool(((outputs.float().sum(dim=1) - 1).abs() < tolerance).all())


def shape_of(value: Any) -> str:
    """Return a text for errors: the shape of a tensor, the type of anything else."""
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _column(values: Tensor) -> Tensor:
    return values[:, None] if values.ndim == 1 else values
