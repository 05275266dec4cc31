"""Criterion: the loss in use, and what it says about the outputs and targets of a batch."""

import warnings
from typing import Any

import torch
from torch import Tensor

from smdl.engine.pool import Pool
from smdl.scoring.batch_form import BatchForm
from smdl.scoring.losses import (
    CrossEntropy,
    Loss,
    OwnLoss,
    Scores,
    are_probabilities,
    as_loss,
    check_targets,
    output_of,
    shape_of,
)
from smdl.scoring.scoring_options import LossFunction


class LabelsSeen:
    """The greatest class number of the batches so far, and the width of the model's outputs."""

    def __init__(self) -> None:
        self.width: int | None = None  # None before the first forward, or if outputs have more dimensions
        self.strict = True  # whether a class number that the outputs do not have is an error
        self._greatest, self._warned = -1, False

    def add(self, targets: Tensor) -> None:
        """Take the class numbers of a batch. If `strict`, raise an error if the outputs have no such class. Class
        numbers on a device are not looked at: that would wait for it."""
        if targets.ndim != 1 or targets.device.type != "cpu" or len(targets) == 0:
            return
        low, high = map(int, targets.aminmax())
        self._greatest = max(self._greatest, high)
        if self.strict and self.width is not None and (low < 0 or high >= self.width):
            check_targets(targets, self.width)

    def warn_if_few(self) -> None:
        """Warn once, after an epoch, if the outputs are much wider than the labels need."""
        if self._warned or self.width is None or self._greatest < 0 or self.width < 2 * (self._greatest + 1):
            return
        self._warned = True
        warnings.warn(
            f"the model has {self.width} outputs per sample, and the labels of an epoch are 0..{self._greatest}. If"
            " these outputs are not the logits, say where the logits are: scoring=smdl.Scoring(forward=...), a callable"
            " (model, batch) -> logits",
            stacklevel=4,
        )


class Criterion:
    """The loss of a scorer. If the method needs features only, and no loss was given, the first forward decides whether
    there is one: the batches may be of any kind."""

    def __init__(self, loss: str | LossFunction | None, form: BatchForm, pools: bool = False) -> None:
        self._given, self._form, self._pools = loss, form, pools
        #: None if only features are needed and the batches are no classification.
        self.loss: Loss | None = as_loss(loss)
        self._needs: frozenset[str] = frozenset()
        self.undecided = False
        self._checked = False  # whether outputs were checked for being probabilities
        #: The class numbers that were seen.
        self.labels_seen = LabelsSeen()

    @property
    def classes(self) -> bool:
        """Whether targets are class numbers, or rows of probabilities."""
        return isinstance(self.loss, CrossEntropy)

    def require(self, evidence: frozenset[str] | None) -> None:
        """Take what the strategy reads from a pool; None is everything that the loss gives."""
        self._needs = frozenset() if evidence is None else evidence & Loss.gives
        self.undecided = evidence is not None and not self._needs and self._given is None
        loss = as_loss(self._given)
        for need in sorted(self._needs - loss.gives):
            raise ValueError(_not_given(need, loss))

    def twin(self) -> "Criterion":
        """Return a criterion for another model on the same batches."""
        twin = Criterion(self._given, self._form, self._pools)
        twin.undecided, twin.loss = self.undecided, self.loss
        return twin

    def restore(self, name: str | None, decided: bool) -> None:
        """Take the name of the loss of a saved state; `decided` if a forward was made before."""
        loss = as_loss(self._given)
        if name not in (None, loss.name):
            raise ValueError(f"this state belongs to a loader with loss {name}, this one has {loss.name}")
        self.loss = None if name is None else loss
        self.undecided = self.undecided and self.loss is not None and not decided

    def decide(self, outputs: Tensor | None, targets: Tensor | None) -> None:
        """Give up the loss, once, if only features are needed and this is no classification, or if there are no
        outputs: ranks must not decide by what their own batches look like."""
        if not self.undecided or self.loss is None:
            return
        self.undecided = False
        if outputs is None or targets is None or are_probabilities(outputs):
            self.loss = None
            return
        try:
            logits = self.loss.outputs(outputs)
            if self.labels_seen.strict:
                self.loss.check(logits, targets)
        except ValueError:
            self.loss = None

    def outputs_in(self, found: Any) -> Tensor | None:
        """Return the outputs in what the model returned; None if they are not needed."""
        if self.loss is None:
            return None
        if self.undecided:
            output = output_of(found)
            return output if isinstance(output, Tensor) and output.ndim > 0 else None
        return self.loss.outputs(found)

    def targets(self, batch: Any) -> Tensor | None:
        """Return the targets of a batch; None if they are not needed."""
        if self.loss is None:
            return None
        try:
            found = self._form.targets(batch, self.classes)
            if self.classes and found.ndim > 1 and not found.is_floating_point() and found.max() > 1:  # not one-hot
                self.check_dense("targets", found)
            found = self.loss.targets(found)
        except ValueError:
            if self.undecided:
                return None
            raise
        if self.classes and not self.undecided:
            self.labels_seen.add(found)
        return found

    def check_dense(self, name: str, found: Tensor) -> None:
        """Raise one error with everything that a model of tokens or pixels needs and that was not given."""
        if self.loss is None or self.undecided:
            return
        own = isinstance(self.loss, OwnLoss)
        missing = [] if own else ["loss=, a callable (outputs, targets) -> the mean loss of each sample"]
        missing += [] if self._pools else ['pooling="mean", or features= with the name of a module']
        scoring = [f"smdl.Scoring({'; '.join(missing)})"] if missing else []
        if self._needs - {"losses"}:
            scoring.append('objective=smdl.Objective.gradients(space="features")')
        if scoring:
            raise ValueError(
                f"{name} of {shape_of(found)} are one per token or pixel of a sample. Such a model needs"
                f" {' and '.join(scoring)}. If other values are meant, say where they are by targets= or forward="
            )

    def targets_column(self, batch: Any) -> Tensor | None:
        """Return the targets as they are in the batch; None if they are not known or not needed."""
        try:
            return None if self.loss is None else self._form.targets(batch, self.classes)
        except ValueError:
            return None

    def labels(self, batch: Any) -> Tensor:
        """Return the class numbers of a batch."""
        loss = as_loss(self._given)
        found = loss.targets(self._form.targets(batch, classes=isinstance(loss, CrossEntropy)))
        labels = loss.labels(found)
        if labels is None and found.ndim == 1 and not found.is_floating_point():
            labels = found  # a callable as loss= does not say what its targets are
        if labels is None:
            raise ValueError(f"targets must be one class number per sample, got {found.dtype} of {shape_of(found)}")
        return labels

    def check_outputs(self, outputs: Tensor) -> None:
        """Raise an error if the first outputs are probabilities and the loss takes logits."""
        if self._checked or not self.classes:
            return
        self.labels_seen.width = outputs.shape[1] if outputs.ndim == 2 else None
        if are_probabilities(outputs):
            raise ValueError(
                "the rows of the model's output are ≥ 0 and sum to 1: these are probabilities, and cross-entropy takes"
                " logits. Let the model return logits or log-probabilities"
            )
        self._checked = True

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return one loss per sample, (B,), of outputs that a training forward computed."""
        assert self.loss is not None
        self.check_outputs(outputs)
        with torch.no_grad():
            return self.loss(outputs.float(), targets.to(outputs.device)).float()

    def error_norms(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the length of the gradient of each sample's loss with respect to its outputs, (B,)."""
        found = self.scores(outputs.new_zeros(len(outputs), 1), outputs.float(), targets.to(outputs.device))
        if not found.gives("errors"):
            name = None if self.loss is None else self.loss.name
            raise ValueError(f"this method needs the errors of each sample, which the loss ({name}) does not give")
        return Pool(found.features, found.probabilities, found.labels, errors=found.errors).errors.norm(dim=1)

    def scores(
        self, features: Tensor, outputs: Tensor | None, targets: Tensor | None, needs_losses: bool = True
    ) -> Scores:
        """Return what the loss says about these outputs."""
        if self.loss is None or outputs is None or targets is None:
            return Scores(features)
        of = self.loss.scores if needs_losses else self.loss.scores_but_losses
        scores = of(features, outputs, targets)
        for need in self._needs:
            if not scores.gives(need):
                forms = f" for outputs of {shape_of(outputs)} and targets of {shape_of(targets)}"
                raise ValueError(_not_given(need, self.loss, forms))
        return scores


class KeptOutputs:
    """What is kept of the outputs and targets of a forward, besides features.

    Outputs as rows, (B, C). Of outputs with more dimensions (a token or a pixel each) the loss, (B, 1), is kept, and no
    targets. Nothing if only features are needed.
    """

    def __init__(self, criterion: Criterion) -> None:
        self._criterion = criterion
        self.shape: tuple[int, ...] | None = None  # of the outputs of one sample; None before the first forward

    @property
    def are_losses(self) -> bool:
        """Whether losses are kept instead of outputs."""
        return self.shape is not None and len(self.shape) > 1

    def outputs(self, outputs: Tensor | None, targets: Tensor | None) -> Tensor | None:
        """Return what is kept of outputs, (B, …). Kept losses are returned as they are."""
        if self._criterion.loss is None or outputs is None:
            return None
        if outputs.ndim != 2:
            self.shape = tuple(outputs.shape[1:])
        if outputs.ndim > 2:
            return None if targets is None else self._criterion.losses(outputs, targets)[:, None]
        return outputs if outputs.ndim == 2 else outputs[:, None]

    def targets(self, targets: Tensor | None) -> Tensor | None:
        """Return the targets if they are kept."""
        return None if self._criterion.loss is None or self.are_losses else targets

    def shaped(self, outputs: Tensor) -> Tensor:
        """Return outputs (B, C) in the shape that the model gives them: it may drop a dimension of 1."""
        return outputs if self.shape is None else outputs.reshape(len(outputs), *self.shape)


def _not_given(need: str, loss: Loss, forms: str = "") -> str:
    return (
        f"the objective needs {need}, which the loss ({loss.name}) does not give{forms}: use an objective over"
        ' features, such as smdl.Objective.gradients(space="features")'
    )
