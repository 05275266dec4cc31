"""Scoring: model + batch -> Pool. The only forward pass of selection; it leaves the model unchanged."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.batches import move
from smdl.errors import callable_or_none, check_keys, choice, unknown
from smdl.pool import Pool

Forward = Callable[[nn.Module, Any], Any]
Targets = Callable[[Any], Tensor]
Features = str | Callable[[nn.Module, Any], Any] | None
Head = Callable[[Tensor], Tensor]


class Scores(NamedTuple):
    """What the model computes for a batch, row by row."""

    features: Tensor  # (B, D) float32
    probabilities: Tensor  # (B, C) float32
    labels: Tensor  # (B,) int64
    losses: Tensor  # (B,) float32

    @classmethod
    def of(cls, features: Tensor, logits: Tensor, labels: Tensor) -> "Scores":
        """Return the scores of a forward that made these features and logits."""
        log_probabilities = logits.log_softmax(dim=1)
        losses = F.nll_loss(log_probabilities, labels, reduction="none")
        return cls(features, log_probabilities.exp(), labels, losses)


class NotFiniteError(ValueError):
    """The model's features or probabilities are not finite."""


class Scorer:
    """Computes the features and probabilities of a batch.

    forward   (model, batch) -> logits; by default model(batch[0])
    targets   batch -> class numbers; by default batch[1]
    features  by default the input of the linear layer that makes the logits. The name of an nn.Linear means its
              input, that of any other module its output. A callable (model, batch) returns features, or
              (features, logits) to save the second forward.
    head      features -> logits; by default the linear layer that makes the logits, if the features are its input
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        forward: Forward | None = None,
        targets: Targets | None = None,
        features: Features = None,
        head: Head | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(choice("model", type(model).__name__, "a torch.nn.Module"))
        model = getattr(model, "_orig_mod", model)  # torch.compile wraps the model; compiled code ignores late hooks
        self.model = model
        self._forward, self._targets = callable_or_none("forward", forward), callable_or_none("targets", targets)
        self._head = callable_or_none("head", head)
        self._tap_makes_logits: bool | None = None  # not known before the first forward
        self._tap = _named(model, features) if isinstance(features, str) else None
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

    def of(self, model: nn.Module) -> "Scorer":
        """Return a scorer of another model of the same form."""
        return Scorer(model, forward=self._forward, targets=self._targets, features=self._features)

    def state_dict(self) -> dict[str, Any]:
        """Return what the first forward found out: the name of the tap, and whether its output is the logits."""
        names = {module: name for name, module in self.model.named_modules()}
        return {"tap": None if self._tap is None else names[self._tap], "makes_logits": self._tap_makes_logits}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        check_keys("the state of the scoring", state, ("tap", "makes_logits"))
        tap = None if state["tap"] is None else _named(self.model, state["tap"])
        if state["makes_logits"] and not isinstance(tap, nn.Linear):
            raise ValueError(f"the tap {state['tap']!r} makes the logits and must be an nn.Linear, got {tap}")
        self._tap, self._tap_makes_logits = tap, state["makes_logits"]

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
        """Whether `logits_from` works."""
        return self._head is not None or bool(self._tap_makes_logits)

    def logits_from(self, features: Tensor) -> Tensor | None:
        """Apply the head as it is now to features, (B, D) -> (B, C). None if the head is not known."""
        if self._head is not None:
            with eval_mode(self.model):
                return check_logits(self._head(features)).float()
        if not self._tap_makes_logits:
            return None
        assert isinstance(self._tap, nn.Linear)
        with torch.no_grad():
            bias = None if self._tap.bias is None else self._tap.bias.float()
            return F.linear(features, self._tap.weight.float(), bias)

    def logits(self, batch: Any) -> Tensor:
        """Return the logits of a plain forward, (B, C)."""
        if self._forward is not None:
            return check_logits(self._forward(self.model, batch))
        if not isinstance(batch, tuple | list):
            raise ValueError(f"a batch that is {_form(batch)} needs forward=, a callable (model, batch) -> logits")
        return check_logits(self.model(batch[0]))

    def targets(self, batch: Any) -> Tensor:
        """Return the class numbers of a batch."""
        if self._targets is not None:
            found = self._targets(batch)
        elif isinstance(batch, tuple | list) and len(batch) >= 2:
            found = batch[1]
        else:
            raise ValueError(f"a batch that is {_form(batch)} needs targets=, a callable batch -> class numbers")
        if not isinstance(found, Tensor) or found.ndim != 1 or found.is_floating_point() or found.dtype == torch.bool:
            got = f"{found.dtype} of {_shape(found)}" if isinstance(found, Tensor) else type(found).__name__
            raise ValueError(
                f"targets must be one class number per sample, got {got}; pass targets= to say where they are"
            )
        return found.to(torch.int64)

    def __call__(self, batch: Any) -> Scores:
        with eval_mode(self.model):
            batch = move(batch, self.device)
            features, logits = self._run(batch)
            if not isinstance(features, Tensor) or features.ndim < 2:
                raise ValueError(
                    f"features must be a tensor of shape (batch, width), got {_shape(features)}; see features="
                )
            labels = self.targets(batch)
            check_targets(labels, logits.shape[1])
            if len(labels) != len(logits) or len(features) != len(logits):
                raise ValueError(
                    f"features, logits and targets must have one row per sample,"
                    f" got {len(features)}, {len(logits)} and {len(labels)}"
                )
            self.samples += len(logits)
            return Scores.of(features.float().flatten(1), logits.float(), labels)

    def pool(self, scores: Scores, reference: Tensor | None = None) -> Pool:
        """Return scores as a Pool; `reference` holds the features of the reference model for the same samples."""
        try:
            return Pool(
                scores.features,
                scores.probabilities,
                scores.labels,
                scores.losses,
                None if reference is None else reference.to(scores.features.device),
                bias=self.bias,
            )
        except ValueError as error:
            if "finite" in str(error):
                raise NotFiniteError(f"the model's {error}: has training diverged?") from error
            raise

    def all(self, batches: Iterable[Any], n: int) -> Scores:
        """Score n samples that come in batches, in their order: N·(D + C + 1) floats and no second copy."""
        held: Scores | None = None
        start = end = 0
        for batch in batches:
            scores = self(batch)
            start, end = end, end + len(scores.labels)
            if end > n:
                break
            if held is None:
                held = Scores(*(value.new_empty((n, *value.shape[1:])) for value in scores))
            for whole, part in zip(held, scores, strict=True):
                whole[start:end] = part
        if held is None or end != n:
            raise ValueError(f"collate_fn must make one row of each sample, got {end} rows of {n} samples")
        return held

    def _run(self, batch: Any) -> tuple[Tensor, Tensor]:
        if callable(self._features):
            found = self._features(self.model, batch)
            features, logits = found if isinstance(found, tuple) else (found, self.logits(batch))
            return features, check_logits(logits)
        if self._tap is None:
            return self._find(batch)
        with _recording([self._tap]) as calls:
            logits = self.logits(batch)
        if not calls:
            raise ValueError(f"features={self._features!r} was not used in the model's forward")
        _, given, made = calls[-1]
        if self._tap_makes_logits is None:
            self._tap_makes_logits = type(self._tap) is nn.Linear and _same_logits(made, logits)
        return (given if isinstance(self._tap, nn.Linear) else made), logits

    def _find(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Run a forward and tap the linear layer whose output is the logits."""
        linear = [module for module in self.model.modules() if isinstance(module, nn.Linear)]
        with _recording(linear) as calls:
            logits = self.logits(batch)
        for module, given, made in reversed(calls):
            if _same_logits(made, logits):
                # A subclass may do more than its weights say (cosine heads, adapters): then logits are kept instead.
                self._tap, self._tap_makes_logits = module, type(module) is nn.Linear
                return given, logits
        names = [name for name, module in self.model.named_modules() if name and not list(module.children())]
        raise ValueError(
            f"{type(self.model).__name__} has no linear layer that makes its logits of shape {tuple(logits.shape)}:"
            f' name the module whose output are the features, such as features="{(names or ["pool"])[-2:][0]}",'
            f" or give features=, a callable (model, batch) -> features. Its last modules are {', '.join(names[-5:])}"
        )


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Use eval mode without gradients within the block; afterwards restore every module's mode and the random state.

    no_grad, not inference_mode: a module may keep a tensor of the forward, and training must be able to use it.
    """
    modes = [(module, module.training) for module in model.modules()]
    with kept_generators(device_of(model)), torch.no_grad():
        model.eval()
        try:
            yield
        finally:
            for module, training in modes:
                module.training = training


def kept_generators(device: torch.device) -> AbstractContextManager[None]:
    """Restore the random state of the CPU and of the device after the block."""
    devices = [] if device.type == "cpu" else [device]
    return torch.random.fork_rng(devices, device_type=device.type if devices else "cuda")


def device_of(model: nn.Module) -> torch.device:
    """Return the device of the model's weights."""
    for tensor in (*model.parameters(), *model.buffers()):
        return tensor.device
    return torch.device("cpu")


def check_logits(logits: Any) -> Tensor:
    """Return logits of shape (batch, classes), or raise an error with the shape found."""
    if not isinstance(logits, Tensor):
        logits = logits.get("logits", logits) if isinstance(logits, Mapping) else getattr(logits, "logits", logits)
    if not isinstance(logits, Tensor) or logits.ndim != 2 or not logits.is_floating_point() or logits.shape[1] < 2:
        raise ValueError(
            f"the model's output must be logits of shape (batch, classes), got {_shape(logits)}; see forward="
        )
    return logits


def check_targets(targets: Tensor, classes: int) -> None:
    """Raise an error that names a class number outside 0..classes-1."""
    low, high = int(targets.min()), int(targets.max())
    if low < 0 or high >= classes:
        raise ValueError(f"targets must be in 0..{classes - 1}, the model's classes, got {low if low < 0 else high}")


def _same_logits(made: Any, logits: Tensor) -> bool:
    """Whether a layer made these logits, up to a constant per row, which the softmax removes (log_softmax adds one)."""
    if not isinstance(made, Tensor) or made.shape != logits.shape:
        return False
    if not bool(made.isfinite().all()):  # Pool raises the error
        return True
    gaps = (made - logits).float()
    return bool((gaps - gaps[:, :1]).abs().max() <= 1e-4 * (1.0 + made.abs().max()))


def _named(model: nn.Module, name: str) -> nn.Module:
    modules = dict(model.named_modules())
    if name not in modules or not name:
        raise ValueError(unknown("module in features=", name, [found for found in modules if found]))
    return modules[name]


def _shape(value: Any) -> str:
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def _form(batch: Any) -> str:
    return f"a {type(batch).__name__}" + (f" of {', '.join(map(str, batch))}" if isinstance(batch, Mapping) else "")


@contextmanager
def _recording(modules: Sequence[nn.Module]) -> Iterator[list[tuple[nn.Module, Tensor, Any]]]:
    """Record (module, first input, output) of each call of the modules, in the order of the calls."""
    calls: list[tuple[nn.Module, Tensor, Any]] = []

    def record(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        calls.append((module, args[0] if args else None, output))  # type: ignore[arg-type]

    handles = [module.register_forward_hook(record) for module in modules]
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()
