"""Taps: the module whose input or output are the features, and how features become one row per sample."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.common.messages import choice, unknown
from smdl.scoring.losses import members, shape_of
from smdl.scoring.model_access import whole_weight
from smdl.scoring.output_check import agreement, are_moved
from smdl.scoring.row_matching import sampled
from smdl.scoring.scoring_options import Pooling

Call = tuple[nn.Module, Any, Any]  # a module, its first input, its output
#: Rows for which a layer is compared with its weights.
FEW = 16

#: How features of more than two dimensions become (batch, width).
POOLING: dict[str, Callable[[Tensor], Tensor]] = {
    "first": lambda features: features[:, 0],
    "flatten": lambda features: features.flatten(1),
    "last": lambda features: features[:, -1],
    "mean": lambda features: features.mean(dim=1) if features.ndim == 3 else features.flatten(2).mean(dim=2),
}


def as_pooling(pooling: Pooling) -> Callable[[Tensor], Tensor] | None:
    """Return the function of a name in POOLING, or a callable as it is."""
    if pooling is None or callable(pooling):
        return pooling
    if not isinstance(pooling, str):
        raise TypeError(choice("pooling", pooling, f"one of {', '.join(POOLING)}, or a callable"))
    if pooling not in POOLING:
        raise ValueError(unknown("pooling", pooling, POOLING) + ", or a callable")
    return POOLING[pooling]


def pooled(features: Any, pooling: Callable[[Tensor], Tensor] | None) -> Tensor:
    """Return features as (batch, width) in float32, or raise an error with the shape found."""
    if isinstance(features, Tensor) and features.ndim >= 2:
        features = features.detach().float()
        if pooling is not None and features.ndim > 2:
            features = pooling(features)
        if isinstance(features, Tensor) and features.ndim > 2 and max(features.shape[1:]) == features[0].numel():
            features = features.flatten(1)  # such as (batch, channels, 1, 1)
        if isinstance(features, Tensor) and features.ndim == 2:
            return features
    more = isinstance(features, Tensor) and features.ndim > 2
    raise ValueError(
        f"features must be a tensor of shape (batch, width), got {shape_of(features)}; "
        + ('pass pooling="mean", "first", "last", "flatten" or a callable' if more else "see features=")
    )


def named_module(model: nn.Module, name: str) -> nn.Module:
    """Return a module by its name in `named_modules`."""
    modules = dict(model.named_modules())
    if name not in modules or not name:
        raise ValueError(unknown("module in features=", name, [found for found in modules if found]))
    return modules[name]


def linear_layers(model: nn.Module) -> list[nn.Module]:
    """Return the linear layers of a model."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


def is_plain(module: nn.Module) -> bool:
    """Whether a module is a linear layer that does just what its weights say. Subclasses may do more (cosine heads,
    adapters), and a weight that is no parameter is computed in each forward (weight_norm, pruning)."""
    return type(module) is nn.Linear and "weight" in dict(module.named_parameters(recurse=False))


def does_what_weights_say(call: Call) -> bool:
    """Whether a linear layer is plain and a call of it made weight · features + bias: a hook may have changed that."""
    layer, given, made = call
    if not (
        isinstance(layer, nn.Linear) and is_plain(layer) and isinstance(given, Tensor) and isinstance(made, Tensor)
    ):
        return False
    with torch.no_grad():
        weight, bias = whole_weight(layer.weight), None if layer.bias is None else whole_weight(layer.bias).float()
        if weight.shape != (layer.out_features, layer.in_features) or weight.device != given.device:
            return False  # some libraries hold the weights during the forward alone
        plain = F.linear(given[:FEW].float(), weight.float(), bias)
    return makes(made[:FEW], plain.to(made.dtype), shifted=False)


def no_head(model: nn.Module, outputs: Tensor) -> str:
    """Return the error for a model without a linear layer that makes its outputs."""
    names = [name for name, module in model.named_modules() if name and not list(module.children())]
    return (
        f"{type(model).__name__} has no linear layer that makes its outputs of shape {tuple(outputs.shape)}:"
        f' name the module whose output are the features, such as features="{(names or ["pool"])[-2:][0]}",'
        f" or give features=, a callable (model, batch) -> features. Its last modules are {', '.join(names[-5:])}"
    )


def makes(made: Any, outputs: Tensor, shifted: bool) -> bool:
    """Whether a layer made these outputs; with `shifted`, up to a constant per row, which a softmax removes and
    log_softmax adds. The model may drop a last dimension of 1."""
    if made is outputs:
        return True
    if not isinstance(made, Tensor) or made.numel() != outputs.numel() or len(made) != len(outputs):
        return False
    if made.shape != outputs.shape and made.shape != (*outputs.shape, 1):
        return False
    if not bool(made.isfinite().all()):  # Pool raises the error
        return True
    agrees = agreement(made.flatten(1), outputs.reshape(len(outputs), -1), shifted and outputs.ndim == 2)
    return agrees is None or bool(agrees.all())


def call_that_made(calls: Sequence[Call], outputs: Any, shifted: bool, name: Any) -> Call:
    """Return one of the calls of the tap in a forward, the latest first: the one that made the model's output. A model
    may apply its head again, for an auxiliary loss."""
    if len(calls) == 1:
        return calls[0]
    for call in calls:
        if isinstance(outputs, Tensor) and makes(call[2], outputs, shifted):
            return call
    raise ValueError(
        f"the module of the features (features={name!r}) is called {len(calls)} times in a forward, so it does not tell"
        " the features of a sample: name a module that is called once"
    )


def is_reordered(calls: Sequence[Call], outputs: Tensor, shifted: bool) -> bool:
    """Whether a layer made the rows of these outputs in another order."""
    wanted = sampled(outputs)
    for _, _, made in calls:
        rows = sampled(made) if isinstance(made, Tensor) and made.ndim > 0 else wanted[:0]
        agrees = agreement(rows, wanted, shifted) if rows.shape == wanted.shape else None
        if agrees is not None and are_moved(rows, wanted, agrees, shifted):
            return True
    return False


def check_order(model: nn.Module, calls: Sequence[Call], outputs: Tensor, shifted: bool) -> None:
    """Raise an error if the rows inside the model are in another order than those of its inputs."""
    if is_reordered(calls, outputs, shifted):
        raise ValueError(
            f"the rows inside {type(model).__name__} are in another order than those of its inputs, as if it sorted or"
            " shuffled them: it cannot be told which features belong to which sample. Give features=, a callable"
            " (model, batch) -> features with one row per sample of the batch, and candidates=smdl.RandomPool()"
        )


def _made(outputs: Tensor, calls: Sequence[Call], shifted: bool) -> bool:
    return any(isinstance(module, nn.Linear) and makes(made, outputs, shifted) for module, _, made in calls)


def check_tuple(found: Any, calls: Sequence[Call], shifted: bool) -> None:
    """Raise an error if a model returns a tuple, and its first member may not be the outputs: linear layers make others
    of another width, such as the logits in (features, logits)."""
    outputs = [one for one in members(found) if one.ndim == 2]
    for place, other in enumerate(outputs[1:], start=1):
        if other.shape[1] != outputs[0].shape[1] and _made(other, calls, shifted):
            shapes = " and ".join(str(tuple(one.shape)) for one in outputs)
            which = "more than one" if _made(outputs[0], calls, shifted) else f"number {place}"
            raise ValueError(
                f"the model returns a tuple with outputs of shapes {shapes}, and a linear layer makes"
                f" {which} of them, counted from 0: say which are the logits by forward=, such as"
                f" forward=lambda model, batch: model(batch[0])[{place}]"
            )


@contextmanager
def recording(modules: Sequence[nn.Module]) -> Iterator[list[Call]]:
    """Record (module, first input, output) of each call of the modules, in the order of the calls."""
    calls: list[Call] = []

    def record(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        calls.append((module, args[0] if args else None, output))

    handles = [module.register_forward_hook(record) for module in dict.fromkeys(modules)]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
