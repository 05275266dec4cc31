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
    Call,
    as_pooling,
    call_that_made,
    check_order,
    check_tuple,
    does_what_weights_say,
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
        self._form, self._criterion, self.pooling = form, criterion, as_pooling(scoring.pooling)
        self._head, self._features = callable_or_none("head", scoring.head), scoring.features
        named = isinstance(scoring.features, str)
        self._callable = None if named else callable_or_none("features", scoring.features)
        self.tap = named_module(model, scoring.features) if isinstance(scoring.features, str) else None
        self._tap_makes_outputs: bool | None = None  # not known before the first forward
        #: The linear layer that makes the model's outputs, if there is one; with a head after it, none.
        self.maker: nn.Module | None = None
        self._looked = False  # for the maker
        #: The place of the outputs among the tensors of a tuple that the model returns: those that `forward=` takes.
        self.member = 0
        self._ran = False  # so the member is known
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
        name = state["tap"]
        tap = None if name is None else named_module(self.model, name) if name else self.model
        if state["makes_outputs"] and not isinstance(tap, nn.Linear):
            raise ValueError(f"the tap {state['tap']!r} makes the outputs and must be an nn.Linear, got {tap}")
        self.tap, self._tap_makes_outputs, self._looked = tap, state["makes_outputs"], False

    def check_tap(self) -> None:
        """Raise an error if a training forward does not show the features."""
        if self._callable is not None:
            raise ValueError(
                "features= is a callable, so a training forward does not show its features: name a module instead, or"
                ' use candidates=smdl.Observed(observe="manual") or smdl.RandomPool()'
            )

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
        return pooled(features, self.pooling), outputs

    def find_outputs(self, batch: Any) -> None:
        """Find out which part of what the model returns `forward=` takes, if it is given."""
        if self._form.has_forward:
            with eval_mode(self.model):
                self._run(move(batch, self.device))

    def forget_head(self) -> bool:
        """From now on the outputs are not those of the tap alone. Return whether it was taken for the head."""
        was_head, self._tap_makes_outputs = self._head is None and bool(self._tap_makes_outputs), False
        return was_head

    def _features_and_outputs(self, batch: Any) -> tuple[Any, Tensor | None]:
        """Return features, as the tap gives them, and outputs."""
        if self._callable is not None:
            found, criterion = self._callable(self.model, batch), self._criterion
            if isinstance(found, tuple):
                return found[0], criterion.outputs_in(found[1])
            return found, None if criterion.undecided or criterion.loss is None else self.outputs(batch)
        known = [module for module in (self.tap, self.maker) if module is not None]
        with recording([*known, *([] if self._looked else linear_layers(self.model))]) as calls:
            found = self._run(batch)
        outputs, shifted = self._criterion.outputs_in(found), self._criterion.classes
        self._check_rows(found, calls)
        taken = [call for call in reversed(calls) if call[0] is self.tap]
        if not taken:
            raise ValueError(f"features={self._features!r} was not used in the model's forward")
        call = call_that_made(taken, output_of(found, self.member), shifted, self._features)
        if self._tap_makes_outputs is None and outputs is not None:
            self._tap_makes_outputs = makes(call[2], outputs, shifted) and does_what_weights_say(call)
        return call[1] if isinstance(self.tap, nn.Linear) else call[2], outputs

    def _check_rows(self, found: Any, calls: Sequence[Call]) -> None:
        """Find the layer that makes the outputs, and the tap; later check that it still makes them. Raise an error if
        the rows inside the model are in another order than those of its inputs."""
        shifted, outputs = self._criterion.classes, output_of(found, self.member)
        if not self._looked and self._tap_makes_outputs is None:
            check_tuple(found, calls, shifted)
        if self.tap is None:
            loss = self._criterion.loss
            outputs = (Loss() if self._criterion.undecided or loss is None else loss).outputs(found)
        if not isinstance(outputs, Tensor):
            return
        made = [call for call in reversed(calls) if isinstance(call[0], nn.Linear)]
        made = made if self.maker is None else [call for call in made if call[0] is self.maker]
        making = next((call for call in made if makes(call[2], outputs, shifted)), None)
        maker = None if making is None else making[0]
        if making is None:
            check_order(self.model, made, outputs, shifted)
        if self._looked and maker is None:
            self.forget_head()
        self.maker, self._looked = maker, True
        if self.tap is None:
            if making is None:
                self._criterion.check_outputs(outputs)
                raise ValueError(no_head(self.model, outputs))
            # A subclass or a hook may do more than the weights say (cosine heads, adapters): then outputs are kept.
            self.tap, self._tap_makes_outputs = maker, does_what_weights_say(making)

    def _run(self, batch: Any) -> Any:
        weight, dtype = self._weight, None
        if weight is not None and weight.is_floating_point() and not torch.is_autocast_enabled(weight.device.type):
            dtype = weight.dtype
        if self._ran:
            return self._form.run(self.model, batch, self._criterion.classes, dtype)
        with recording([self.model]) as calls:
            found = self._form.run(self.model, batch, self._criterion.classes, dtype)
        returned, output = members(calls[-1][2]) if calls else [], output_of(found)
        if isinstance(output, Tensor) and output.ndim > 2:
            self._criterion.check_dense("the model's outputs", output)
        self.member, self._ran = next((place for place, one in enumerate(returned) if one is output), 0), True
        return found
