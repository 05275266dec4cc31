"""Strategy: the part of a method that chooses a batch among candidates."""

from typing import Any

import numpy as np

from smdl.pool import Pool
from smdl.selection import Selection


class Strategy:
    """Chooses each batch. A strategy of your own overrides `select` and says here what it needs.

    needs_scores     `select` gets a pool: features, probabilities and losses of the candidates by the current model
    needs_reference  the pool also holds the features of the reference model
    needs_losses     `observe` gets the loss of every sample trained on
    needs_labels     `set_labels` gets the class number of every sample of the dataset, before the first step
    needs_all        candidates must be the whole dataset, at every step: the strategy draws by its own rule
    repeats          the same candidates and scores always give the same batch
    """

    needs_scores: bool = False
    needs_reference: bool = False
    needs_losses: bool = False
    needs_labels: bool = False
    needs_all: bool = False
    repeats: bool = False

    def prepare(self, samples: int, epochs: int | None) -> None:
        """Take the size of the dataset and the length of the run (None if unknown). Called once, by the loader."""

    def set_labels(self, labels: np.ndarray) -> None:
        """Take the class number of every sample of the dataset. Called once, by the loader, if `needs_labels`."""

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        """Choose `batch_size` of the rows in `remaining`.

        pool    None unless `needs_scores`; a strategy that also needs losses gets it at a refresh only
        rng     belongs to this step: the same (seed, epoch, step) gives the same draws
        """
        raise NotImplementedError

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:
        """Take the losses of the last batch; indices are those of the dataset."""

    def skip_warm_up(self) -> None:
        """Behave as after the first epoch. Used to time a typical step."""

    def describe(self) -> str:
        """Return a text on which a saved state and the strategy that loads it must agree."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""


def drawn(indices: np.ndarray) -> Selection:
    """Return a selection that maximised nothing."""
    return Selection(indices.astype(np.int64), np.zeros(len(indices)), 0.0)
