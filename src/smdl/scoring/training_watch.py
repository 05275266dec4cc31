"""TrainingWatch: whether the model that is scored is the one in training."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

#: Parameters that are compared, and values of each.
PARAMETERS, VALUES = 8, 64


class TrainingWatch:
    """Warns once if an epoch has passed and no parameter of the model has changed: the loader may have got a copy."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._before: Tensor | None = None
        self._ended = self._warned = False

    def start(self) -> None:
        """Take the parameters at the start of an epoch."""
        if self._ended:  # the loop did not ask for more than the last batch
            self.finish()
        self._ended, self._before = False, None if self._warned else _sample(self._model)

    def last_batch(self) -> None:
        """The epoch has yielded its last batch."""
        self._ended = True

    def finish(self) -> None:
        """Compare them at its end."""
        before, self._before = self._before, None
        if before is None or len(before) == 0:
            return
        now = _sample(self._model)
        if torch.equal(before, now):
            self._warned = True
            warnings.warn(
                f"an epoch has passed, and the parameters of the {type(self._model).__name__} that smdl scores have not"
                " changed: is this the model in training? Pass the model itself, not a copy",
                stacklevel=4,
            )


def _sample(model: nn.Module) -> Tensor:
    """Return a few values of a few parameters that are trained, the last one among them."""
    trained = [one for one in model.parameters() if one.requires_grad and not is_lazy(one)]
    chosen = trained[:: -max(1, len(trained) // PARAMETERS)][:PARAMETERS]
    return torch.cat([torch.zeros(0), *map(_values, chosen)])


def _values(parameter: Tensor) -> Tensor:
    local: Any = getattr(parameter, "to_local", lambda: parameter)()  # that of this rank, if it is sharded
    flat = local.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // VALUES)][: 2 * VALUES].float().cpu()
