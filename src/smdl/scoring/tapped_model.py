"""TappedModel: run the model on a batch, and take its features at the tap and its outputs."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.common.messages import callable_or_none, choice
from smdl.scoring.batch_form import BatchForm
from smdl.scoring.batches import move
from smdl.scoring.criterion import Criterion
from smdl.scoring.losses import Loss, members, output_of
from smdl.scoring.model_access import device_of, eval_mode, unwrapped, whole_weight
from smdl.scoring.scoring_options import Scoring
from smdl.scoring.taps import (
    as_pooling,
    check_tuple,
    is_plain,
    linear_layers,
    makes,
    named_module,
    no_head,
    pooled,
    recording,
)


class TappedModel:
    """A model, and the module whose input or output are its features: the tap. Unless it is named, the first forward
    finds it."""

    def __init__(self, model: nn.Module, scoring: Scoring, form: BatchForm, criterion: Criterion) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(choice("model", type(model).__name__, "a torch.nn.Module"))
        self.model = model = unwrapped(model)
        self._form, self._criterion, self._pooling = form, criterion, as_pooling(scoring.pooling)
        self._head, self._features = callable_or_none("head", scoring.head), scoring.features
        named = isinstance(scoring.features, str)
        self._callable = None if named else callable_or_none("features", scoring.features)
        self.tap = named_module(model, scoring.features) if isinstance(scoring.features, str) else None
        self._tap_makes_outputs: bool | None = None  # not known before the first forward
        self._member: int | None = None  # the place of the outputs in a tuple that the model returns
        self._weight = next(model.parameters(), None)  # tells the device; looking for it at every step is slow

    @property
    def device(self) -> torch.device:
        return device_of(self.model) if self._weight is None else self._weight.device

    @property
    def bias(self) -> bool:
        """Whether the head adds a bias."""
        return not isinstance(self.tap, nn.Linear) or self.tap.bias is not None

    @property
    def knows_head(self) -> bool:
        """Whether `outputs_from` works."""
        return self._head is not None or bool(self._tap_makes_outputs)

    def state_dict(self) -> dict[str, Any]:
        """Return the name of the tap, and whether its output is the model's."""
        names = {module: name for name, module in self.model.named_modules()}
        return {"tap": None if self.tap is None else names[self.tap], "makes_outputs": self._tap_makes_outputs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        tap = None if state["tap"] is None else named_module(self.model, state["tap"])
        if state["makes_outputs"] and not isinstance(tap, nn.Linear):
            raise ValueError(f"the tap {state['tap']!r} makes the outputs and must be an nn.Linear, got {tap}")
        self.tap, self._tap_makes_outputs = tap, state["makes_outputs"]

    def check_tap(self) -> None:
        """Raise an error if a training forward does not show the features."""
        if self._callable is not None:
            raise ValueError(
                "features= is a callable, so a training forward does not show its features: name a module instead, or"
                ' use candidates=smdl.Observed(observe="manual") or smdl.RandomPool()'
            )

    def pooled(self, features: Any) -> Tensor:
        """Return features as (B, D) in float32."""
        return pooled(features, self._pooling)

    def outputs_from(self, features: Tensor) -> Tensor | None:
        """Apply the head as it is now to features, (B, D) -> (B, C). None if the head is not known."""
        if self._head is not None:
            with eval_mode(self.model):
                outputs = self._criterion.outputs_in(self._head(features))
                return None if outputs is None else outputs.float()
        if not self._tap_makes_outputs:
            return None
        assert isinstance(self.tap, nn.Linear)
        with torch.no_grad():
            bias = None if self.tap.bias is None else whole_weight(self.tap.bias).float()
            return F.linear(features, whole_weight(self.tap.weight).float(), bias)

    def outputs(self, batch: Any) -> Tensor | None:
        """Return the outputs of a plain forward; None if they are not needed."""
        return self._criterion.outputs_in(self._run(batch))

    def forward(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """Run the model and return features, (B, D), and outputs."""
        features, outputs = self._features_and_outputs(batch)
        if self._tap_makes_outputs and isinstance(features, Tensor) and features.ndim > 2:
            self._tap_makes_outputs = False  # it would make other outputs of pooled features
        return self.pooled(features), outputs

    def find_outputs(self, batch: Any) -> None:
        """Find out which part of what the model returns `forward=` takes, if it is given."""
        if self._form.has_forward:
            with eval_mode(self.model):
                self._run(move(batch, self.device))

    @property
    def member(self) -> int:
        """The place of the outputs among the tensors of a tuple that the model returns: those that `forward=` takes."""
        return self._member or 0

    def forget_head(self) -> bool:
        """From now on the outputs are not those of the tap alone. Return whether it was taken for the head."""
        was_head, self._tap_makes_outputs = self._head is None and bool(self._tap_makes_outputs), False
        return was_head

    def _tapped(self, calls: Sequence[tuple[Any, Any]], found: Any) -> tuple[Any, Any]:
        """Return one of the calls of the tap in a forward, (features, what it made), the latest first: the one that
        made the model's output. A model may apply its head again, for an auxiliary loss."""
        outputs = output_of(found, self.member)
        if len(calls) == 1:
            return calls[0]
        for call in calls:
            if isinstance(outputs, Tensor) and self._makes(call[1], outputs):
                return call
        raise ValueError(
            f"the module of the features (features={self._features!r}) is called {len(calls)} times in a forward, so it"
            " does not tell the features of a sample: name a module that is called once"
        )

    def _features_and_outputs(self, batch: Any) -> tuple[Any, Tensor | None]:
        """Return features, as the tap gives them, and outputs."""
        if self._callable is not None:
            found, criterion = self._callable(self.model, batch), self._criterion
            if isinstance(found, tuple):
                return found[0], criterion.outputs_in(found[1])
            return found, None if criterion.undecided or criterion.loss is None else self.outputs(batch)
        if self.tap is None:
            return self._find(batch)
        with recording([self.tap, *(linear_layers(self.model) if self._tap_makes_outputs is None else ())]) as made_by:
            found = self._run(batch)
        if self._tap_makes_outputs is None:
            check_tuple(found, made_by, self._criterion.classes)
        outputs = self._criterion.outputs_in(found)
        calls = [call for call in made_by if call[0] is self.tap]
        if not calls:
            raise ValueError(f"features={self._features!r} was not used in the model's forward")
        takes_input = isinstance(self.tap, nn.Linear)
        features, made = self._tapped([(given if takes_input else made, made) for _, given, made in calls[::-1]], found)
        if self._tap_makes_outputs is None and outputs is not None:
            self._tap_makes_outputs = is_plain(self.tap) and self._makes(made, outputs)
        return features, outputs

    def _find(self, batch: Any) -> tuple[Any, Tensor]:
        """Run a forward and tap the linear layer whose output is the model's."""
        with recording(linear_layers(self.model)) as calls:
            found = self._run(batch)
        check_tuple(found, calls, self._criterion.classes)
        loss = self._criterion.loss
        outputs = (Loss() if self._criterion.undecided or loss is None else loss).outputs(found)
        for module, given, made in reversed(calls):
            if self._makes(made, outputs):
                # A subclass may do more than its weights say (cosine heads, adapters): then outputs are kept instead.
                self.tap, self._tap_makes_outputs = module, is_plain(module)
                return given, outputs
        self._criterion.check_outputs(outputs)
        raise ValueError(no_head(self.model, outputs))

    def _run(self, batch: Any) -> Any:
        weight, dtype = self._weight, None
        if weight is not None and weight.is_floating_point() and not torch.is_autocast_enabled(weight.device.type):
            dtype = weight.dtype
        if self._member is not None:
            return self._form.run(self.model, batch, self._criterion.classes, dtype)
        with recording([self.model]) as calls:
            found = self._form.run(self.model, batch, self._criterion.classes, dtype)
        returned, output = members(calls[-1][2]) if calls else [], output_of(found)
        if isinstance(output, Tensor) and output.ndim > 2:
            self._criterion.check_dense("the model's outputs", output)
        self._member = next((place for place, one in enumerate(returned) if one is output), 0)
        return found

    def _makes(self, made: Any, outputs: Tensor) -> bool:
        return makes(made, outputs, shifted=self._criterion.classes)
