"""Scoring: model + batch -> Pool. The only forward pass of selection; it leaves the model unchanged."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from torch import Tensor, nn

from smdl.common.messages import choice
from smdl.common.saved_state import check_keys
from smdl.engine.pool import Pool
from smdl.scoring.batch_form import BatchForm
from smdl.scoring.batches import height, move
from smdl.scoring.criterion import Criterion, KeptOutputs
from smdl.scoring.losses import Scores
from smdl.scoring.model_access import eval_mode
from smdl.scoring.scoring_options import Scoring
from smdl.scoring.tapped_model import TappedModel


class Forwarded(NamedTuple):
    """What a forward of a batch gives, row by row."""

    features: Tensor  # (B, D) float32
    outputs: Tensor | None  # (B, …); None, as the targets, if only features are needed
    targets: Tensor | None  # (B, …)


class NotFiniteError(ValueError):
    """The model's features or probabilities are not finite."""


class Scorer:
    """Computes the features of a batch and what a loss says about its samples.

    network     runs the model: features, outputs, the head
    criterion   the loss: targets, losses, scores
    kept        the form in which outputs are kept
    samples     forwarded so far
    """

    def __init__(self, model: nn.Module, scoring: Scoring | None = None, criterion: Criterion | None = None) -> None:
        if scoring is not None and not isinstance(scoring, Scoring):
            raise TypeError(choice("scoring", scoring, "a smdl.Scoring"))
        self.scoring = scoring = Scoring() if scoring is None else scoring
        self._form = BatchForm(scoring.forward, scoring.targets)
        pools = scoring.pooling is not None or scoring.features is not None
        self.criterion = criterion or Criterion(scoring.loss, self._form, pools)
        self.network = TappedModel(model, scoring, self._form, self.criterion)
        self.kept, self.samples = KeptOutputs(self.criterion), 0

    @property
    def model(self) -> nn.Module:
        return self.network.model

    def of(self, model: nn.Module) -> "Scorer":
        """Return a scorer of another model of the same form. A given head belongs to this model."""
        return Scorer(model, replace(self.scoring, head=None), self.criterion.twin())

    def state_dict(self) -> dict[str, Any]:
        """Return what the first forward found out: the name of the tap, whether its output is the model's, the shape
        of the output of a sample, and the name of the loss."""
        shape, loss = self.kept.shape, self.criterion.loss
        more = {"output_shape": None if shape is None else list(shape), "loss": None if loss is None else loss.name}
        return {**self.network.state_dict(), **more}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""
        check_keys("the state of the scoring", state, self.state_dict())
        self.network.load_state_dict(state)
        self.criterion.restore(state["loss"], decided=self.network.tap is not None)
        self.kept.shape = None if state["output_shape"] is None else tuple(state["output_shape"])

    def find_tap(self, batch: Any) -> nn.Module:
        """Forward a batch and return the tap. Raise an error if the model has none or does not use the named one."""
        self.network.check_tap()
        samples = self.samples
        self(batch)
        self.samples = samples
        assert self.network.tap is not None
        return self.network.tap

    def __call__(self, batch: Any) -> Scores:
        return self.criterion.scores(*self.forward(batch))

    def forward(self, batch: Any) -> Forwarded:
        """Forward a batch in eval mode and return what it gives."""
        with eval_mode(self.model):
            batch = move(batch, self.network.device)
            features, outputs = self.network.forward(batch)
            self.kept.shape = None if outputs is None else tuple(outputs.shape[1:])
            targets = self.criterion.targets(batch)
            self.criterion.decide(outputs, targets)
            self.samples += len(features)
            loss = self.criterion.loss
            if loss is None or outputs is None or targets is None:
                if len(features) != height(batch):
                    raise ValueError(f"features must have one row per sample, {height(batch)}, got {len(features)}")
                return Forwarded(features, None, None)
            if len(targets) != len(outputs) or len(features) != len(outputs):
                raise ValueError(
                    f"features, outputs and targets must have one row per sample,"
                    f" got {len(features)}, {len(outputs)} and {len(targets)}"
                )
            self.criterion.check_outputs(outputs)
            loss.check(outputs, targets)
            return Forwarded(features, outputs.float(), targets)

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
                bias=self.network.bias,
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
