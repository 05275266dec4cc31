"""KeptOutputs: what is kept of the outputs and targets of a forward, besides features."""

from torch import Tensor

from smdl.scoring.criterion import Criterion


class KeptOutputs:
    """Outputs as rows, (B, C). Of outputs with more dimensions (a token or a pixel each) the loss, (B, 1), is kept, and
    no targets. Nothing if only features are needed."""

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
