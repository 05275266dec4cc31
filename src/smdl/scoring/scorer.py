"""Scoring: model + batch -> Pool. The only forward pass of selection; it leaves the model unchanged."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.common.messages import callable_or_none, check_keys, choice
from smdl.engine.pool import Pool
from smdl.scoring.batch_form import BatchForm, Forward, Targets
from smdl.scoring.batches import height, move
from smdl.scoring.losses import (
    CrossEntropy,
    Loss,
    LossFunction,
    Scores,
    are_probabilities,
    as_loss,
    output_of,
    shape_of,
)
from smdl.scoring.model_access import device_of, eval_mode, unwrapped, whole_weight
from smdl.scoring.taps import Pooling, as_pooling, linear_layers, makes, named_module, no_head, pooled, recording

Features = str | Callable[[nn.Module, Any], Any] | None
Head = Callable[[Tensor], Tensor]


class Forwarded(NamedTuple):
    """What a forward of a batch gives, row by row."""

    features: Tensor  # (B, D) float32
    outputs: Tensor | None  # (B, …); None, as the targets, if only features are needed
    targets: Tensor | None  # (B, …)


class NotFiniteError(ValueError):
    """The model's features or probabilities are not finite."""


class Scorer:
    """Computes the features of a batch and what a loss says about its samples.

    forward   (model, batch) -> outputs; by default the model is called with the inputs of the batch, see
              `smdl.scoring.batch_form.BatchForm`. Outputs are a tensor, `logits` of a dict or an object, or the first
              of a tuple.
    targets   the name or place of the column of targets, or a callable batch -> targets; by default see BatchForm
    features  by default the input of the linear layer that makes the outputs. The name of an nn.Linear means its
              input, that of any other module its output. A callable (model, batch) returns features, or
              (features, outputs) to save the second forward.
    pooling   how features of more than two dimensions become (batch, width): mean, first, last, flatten, a callable
    head      features -> outputs; by default the linear layer that makes the outputs, if the features are its input
    loss      cross_entropy (class numbers or soft targets), binary_cross_entropy, mean_squared_error, or a callable
              (outputs, targets) -> one loss per sample; by default cross_entropy with class numbers
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        forward: Forward | None = None,
        targets: Targets = None,
        features: Features = None,
        pooling: Pooling = None,
        head: Head | None = None,
        loss: str | LossFunction | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(choice("model", type(model).__name__, "a torch.nn.Module"))
        model = unwrapped(model)
        self.model = model
        self._form, self._pooling = BatchForm(forward, targets), as_pooling(pooling)
        self._head = callable_or_none("head", head)
        #: None if only features are needed and the batches are no classification.
        self.loss: Loss | None = as_loss(loss)
        self._given_loss = loss
        self._needs: frozenset[str] | None = None
        self._undecided = False  # whether the first forward decides if there is a loss
        self._checked = False  # whether outputs were checked for being probabilities
        self._tap_makes_outputs: bool | None = None  # not known before the first forward
        self._output_shape: tuple[int, ...] | None = None  # of one sample
        self._tap = named_module(model, features) if isinstance(features, str) else None
        self._features: Features = features if isinstance(features, str) else callable_or_none("features", features)
        self._weight = next(model.parameters(), None)  # tells the device; looking for it at every step is slow
        self.samples = 0  # forwarded so far

    @property
    def device(self) -> torch.device:
        return device_of(self.model) if self._weight is None else self._weight.device

    @property
    def bias(self) -> bool:
        """Whether the head adds a bias."""
        return not isinstance(self._tap, nn.Linear) or self._tap.bias is not None

    def pooled(self, features: Any) -> Tensor:
        """Return features as (B, D) in float32."""
        return pooled(features, self._pooling)

    def require(self, evidence: frozenset[str] | None) -> None:
        """Take what the strategy reads from a pool; None is everything. If that is features only, and no loss was
        given, the batches may be of any kind."""
        self._needs = None if evidence is None else evidence & Loss.gives
        self._undecided = self._needs == frozenset() and self._given_loss is None
        loss = as_loss(self._given_loss)
        for need in sorted((self._needs or frozenset()) - loss.gives):
            raise ValueError(_not_given(need, loss))

    def of(self, model: nn.Module) -> "Scorer":
        """Return a scorer of another model of the same form."""
        twin = Scorer(model, features=self._features, loss=self._given_loss)
        twin._form, twin._pooling, twin._undecided, twin.loss = self._form, self._pooling, self._undecided, self.loss
        return twin

    def state_dict(self) -> dict[str, Any]:
        """Return what the first forward found out: the name of the tap, whether its output is the model's, the shape
        of the output of a sample, and the name of the loss."""
        names = {module: name for name, module in self.model.named_modules()}
        return {
            "tap": None if self._tap is None else names[self._tap],
            "makes_outputs": self._tap_makes_outputs,
            "output_shape": None if self._output_shape is None else list(self._output_shape),
            "loss": None if self.loss is None else self.loss.name,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        check_keys("the state of the scoring", state, self.state_dict())
        tap = None if state["tap"] is None else named_module(self.model, state["tap"])
        if state["makes_outputs"] and not isinstance(tap, nn.Linear):
            raise ValueError(f"the tap {state['tap']!r} makes the outputs and must be an nn.Linear, got {tap}")
        loss = as_loss(self._given_loss)
        if state["loss"] not in (None, loss.name):
            raise ValueError(f"this state belongs to a loader with loss {state['loss']}, this one has {loss.name}")
        shape = state["output_shape"]
        self.loss = None if state["loss"] is None else loss
        self._undecided = self._undecided and self.loss is not None and tap is None
        self._tap, self._tap_makes_outputs = tap, state["makes_outputs"]
        self._output_shape = None if shape is None else tuple(shape)

    def find_tap(self, batch: Any) -> nn.Module:
        """Forward a batch and return the tap. Raise an error if the model has none or does not use the named one."""
        if callable(self._features):
            raise ValueError(
                "features= is a callable, so a training forward does not show its features: name a module instead, or"
                ' use candidates=smdl.Observed(observe="manual") or smdl.RandomPool()'
            )
        samples = self.samples
        self(batch)
        self.samples = samples
        assert self._tap is not None
        return self._tap

    @property
    def knows_head(self) -> bool:
        """Whether `outputs_from` works."""
        return self._head is not None or bool(self._tap_makes_outputs)

    def outputs_from(self, features: Tensor) -> Tensor | None:
        """Apply the head as it is now to features, (B, D) -> (B, …). None if the head is not known."""
        if self._head is not None:
            with eval_mode(self.model):
                outputs = self.outputs_in(self._head(features))
                return None if outputs is None else outputs.float()
        if not self._tap_makes_outputs:
            return None
        assert isinstance(self._tap, nn.Linear)
        with torch.no_grad():
            bias = None if self._tap.bias is None else whole_weight(self._tap.bias).float()
            return self.shaped(F.linear(features, whole_weight(self._tap.weight).float(), bias))

    def shaped(self, outputs: Tensor) -> Tensor:
        """Return outputs (B, C) in the shape that the model gives them: it may drop a dimension of 1."""
        return outputs if self._output_shape is None else outputs.reshape(len(outputs), *self._output_shape)

    def outputs(self, batch: Any) -> Tensor | None:
        """Return the outputs of a plain forward; None if they are not needed."""
        return self.outputs_in(self._run_model(batch))

    def targets(self, batch: Any) -> Tensor | None:
        """Return the targets of a batch; None if they are not needed."""
        if self.loss is None:
            return None
        try:
            return self.loss.targets(self._form.targets(batch, classes=isinstance(self.loss, CrossEntropy)))
        except ValueError:
            if self._undecided:
                return None
            raise

    def labels(self, batch: Any) -> Tensor:
        """Return the class numbers of a batch."""
        loss = as_loss(self._given_loss)
        found = loss.targets(self._form.targets(batch, classes=isinstance(loss, CrossEntropy)))
        labels = loss.labels(found)
        if labels is None and found.ndim == 1 and not found.is_floating_point():
            labels = found  # a callable as loss= does not say what its targets are
        if labels is None:
            raise ValueError(f"targets must be one class number per sample, got {found.dtype} of {shape_of(found)}")
        return labels

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

    def kept_outputs(self, outputs: Tensor | None, targets: Tensor | None) -> Tensor | None:
        """Return what is kept of outputs besides features: (B, C), or the losses, (B, 1), of outputs with more
        dimensions. Losses are returned as they are. None if nothing but features is needed."""
        if self.loss is None or outputs is None:
            return None
        if outputs.ndim != 2:
            self._output_shape = tuple(outputs.shape[1:])
        if outputs.ndim > 2:
            return None if targets is None else self.losses(outputs, targets)[:, None]
        return outputs if outputs.ndim == 2 else outputs[:, None]

    def kept_targets(self, targets: Tensor | None) -> Tensor | None:
        """Return the targets if they are kept: not with losses."""
        return None if self.loss is None or self.keeps_losses else targets

    @property
    def keeps_losses(self) -> bool:
        """Whether losses are kept instead of outputs."""
        return self._output_shape is not None and len(self._output_shape) > 1

    def give_up_loss(self) -> None:
        """Use features only, if that is enough: ranks must not decide by what their own batches look like."""
        if self._undecided:
            self.loss, self._undecided = None, False

    def scores(self, features: Tensor, outputs: Tensor | None, targets: Tensor | None) -> Scores:
        """Return what the loss says about these outputs."""
        if self.loss is None or outputs is None or targets is None:
            return Scores(features)
        scores = self.loss.scores(features, outputs, targets)
        for need in self._needs or ():
            if not scores.gives(need):
                forms = f" for outputs of {shape_of(outputs)} and targets of {shape_of(targets)}"
                raise ValueError(_not_given(need, self.loss, forms))
        return scores

    def __call__(self, batch: Any) -> Scores:
        return self.scores(*self.forward(batch))

    def forward(self, batch: Any) -> Forwarded:
        """Forward a batch in eval mode and return what it gives."""
        with eval_mode(self.model):
            batch = move(batch, self.device)
            found, outputs = self._run(batch)
            features = self.pooled(found)
            if self._tap_makes_outputs and isinstance(found, Tensor) and found.ndim > 2:
                self._tap_makes_outputs = False  # it would make other outputs of pooled features
            self._output_shape = None if outputs is None else tuple(outputs.shape[1:])
            targets = self.targets(batch)
            self.decide(outputs, targets)
            self.samples += len(features)
            if self.loss is None or outputs is None or targets is None:
                if len(features) != height(batch):
                    raise ValueError(f"features must have one row per sample, {height(batch)}, got {len(features)}")
                return Forwarded(features, None, None)
            if len(targets) != len(outputs) or len(features) != len(outputs):
                raise ValueError(
                    f"features, outputs and targets must have one row per sample,"
                    f" got {len(features)}, {len(outputs)} and {len(targets)}"
                )
            self.check_outputs(outputs)
            self.loss.check(outputs, targets)
            return Forwarded(features, outputs.float(), targets)

    def decide(self, outputs: Tensor | None, targets: Tensor | None) -> None:
        """Give up the loss, once, if only features are needed and this is no classification."""
        if not self._undecided or self.loss is None:
            return
        self._undecided = False
        if outputs is None or targets is None or are_probabilities(outputs):
            self.loss = None
            return
        try:
            self.loss.check(self.loss.outputs(outputs), targets)
        except ValueError:
            self.loss = None

    def check_outputs(self, outputs: Tensor) -> None:
        """Raise an error if the first outputs are probabilities and the loss takes logits."""
        if self._checked or not isinstance(self.loss, CrossEntropy):
            return
        if are_probabilities(outputs):
            raise ValueError(
                "the rows of the model's output are ≥ 0 and sum to 1: these are probabilities, and cross-entropy takes"
                " logits. Let the model return logits or log-probabilities"
            )
        self._checked = True

    def pool(self, scores: Scores, reference: Tensor | None = None) -> Pool:
        """Return scores as a Pool; `reference` holds the features of the reference model for the same samples."""
        try:
            return Pool(
                scores.features,
                scores.probabilities,
                scores.labels,
                scores.losses,
                None if reference is None else reference.to(scores.features.device),
                errors=scores.errors,
                bias=self.bias,
            )
        except ValueError as error:
            if "finite" in str(error):
                why = "has training diverged, or are there NaNs in the data?"
                raise NotFiniteError(f"the model's {error}: {why}") from error
            raise

    def all(self, batches: Iterable[Any], n: int) -> Scores:
        """Score n samples that come in batches, in their order: N·(D + C + 1) floats and no second copy."""
        held: Scores | None = None
        start = end = 0
        for batch in batches:
            scores = self(batch)
            start, end = end, end + len(scores.features)
            if end > n:
                break
            if held is None:
                held = scores.each(lambda value: value.new_empty((n, *value.shape[1:])))
            for whole, part in zip(held, scores, strict=True):
                if whole is not None and part is not None:
                    whole[start:end] = part
        if held is None or end != n:
            raise ValueError(f"collate_fn must make one row of each sample, got {end} rows of {n} samples")
        return held

    def _run_model(self, batch: Any) -> Any:
        weight, dtype = self._weight, None
        if weight is not None and weight.is_floating_point() and not torch.is_autocast_enabled(weight.device.type):
            dtype = weight.dtype
        return self._form.run(self.model, batch, isinstance(self.loss, CrossEntropy), dtype)

    def outputs_in(self, found: Any) -> Tensor | None:
        """Return the outputs in what the model returned; None if they are not needed."""
        if self.loss is None:
            return None
        if self._undecided:
            output = output_of(found)
            return output if isinstance(output, Tensor) and output.ndim > 0 else None
        return self.loss.outputs(found)

    def _run(self, batch: Any) -> tuple[Any, Tensor | None]:
        """Return features, as the tap gives them, and outputs."""
        if callable(self._features):
            found = self._features(self.model, batch)
            if isinstance(found, tuple):
                return found[0], self.outputs_in(found[1])
            return found, None if self._undecided or self.loss is None else self.outputs(batch)
        if self._tap is None:
            return self._find(batch)
        with recording([self._tap]) as calls:
            found = self._run_model(batch)
        outputs = self.outputs_in(found)
        if not calls:
            raise ValueError(f"features={self._features!r} was not used in the model's forward")
        takes_input = isinstance(self._tap, nn.Linear)
        features, made = self.tapped([(given if takes_input else made, made) for _, given, made in calls[::-1]], found)
        if self._tap_makes_outputs is None and outputs is not None:
            self._tap_makes_outputs = type(self._tap) is nn.Linear and self._makes(made, outputs)
        return features, outputs

    def tapped(self, calls: Sequence[tuple[Any, Any]], found: Any) -> tuple[Any, Any]:
        """Return one of the calls of the tap in a forward, (features, what it made), the latest first: the one that
        made the model's output. A model may apply its head again, for an auxiliary loss."""
        outputs = output_of(found)
        if len(calls) == 1 or not isinstance(outputs, Tensor):
            return calls[0]
        return next((call for call in calls if self._makes(call[1], outputs)), calls[0])

    def _find(self, batch: Any) -> tuple[Any, Tensor]:
        """Run a forward and tap the linear layer whose output is the model's."""
        with recording(linear_layers(self.model)) as calls:
            found = self._run_model(batch)
        loss = Loss() if self._undecided or self.loss is None else self.loss
        outputs = loss.outputs(found)
        for module, given, made in reversed(calls):
            if self._makes(made, outputs):
                # A subclass may do more than its weights say (cosine heads, adapters): then outputs are kept instead.
                self._tap, self._tap_makes_outputs = module, type(module) is nn.Linear
                return given, outputs
        self.check_outputs(outputs)
        raise ValueError(no_head(self.model, outputs))

    def _makes(self, made: Any, outputs: Tensor) -> bool:
        return makes(made, outputs, shifted=isinstance(self.loss, CrossEntropy))


def _not_given(need: str, loss: Loss, forms: str = "") -> str:
    return (
        f"the objective needs {need}, which the loss ({loss.name}) does not give{forms}: use an objective over"
        ' features, such as smdl.Objective.recommended(space="features")'
    )
