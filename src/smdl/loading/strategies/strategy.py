"""Strategy: the part of a method that chooses a batch among candidates."""

from typing import Any

import numpy as np

from smdl.engine.greedy.partition import Spread
from smdl.engine.pool import Pool
from smdl.engine.selection import Selection


class Strategy:
    """Chooses each batch. A strategy of your own overrides `select` and says here what it needs.

    A selection may have `weights`, factors of the losses of its samples: the training loop applies them by
    `smdl.weighted_mean`.

    With several ranks (`torch.distributed`), each has a strategy of its own. `observe` gets the losses of all ranks, in
    the same order on each: what a strategy learns there is the same everywhere. What it learns in `select` is the same
    if it learns from what `gather` returns (set `gathers = True` then). `select` gets the candidates of its rank, or
    those of all ranks (candidates such as Full, and ranks="global"): then it must choose the same on every rank.

    Attributes:
        needs_scores: `select` gets a pool: features, probabilities and losses of the candidates by the current model
        needs_reference: the pool also holds the features of the reference model
        needs_holdout: with needs_reference: the pool's `reference`, (N, 1), is the loss of each sample by a model
            trained for so many epochs on the half of the data that does not hold the sample
        needs_losses: `observe` gets the loss of every sample trained on
        needs_errors: with needs_losses: `observe` gets ‖p − onehot(y)‖ of every sample trained on instead of its loss
        needs_label_evidence: with needs_losses: `observe` gets what the outputs say about each label, (B, 6), see
            `smdl.scoring.label_check`, if the targets are class numbers; otherwise it gets nothing
        needs_labels: `set_labels` gets the class number of every sample of the dataset, before the first step
        needs_all: candidates must be the whole dataset, at every step: the strategy draws by its own rule
        needs_passes: candidates must be RandomPool(1), shuffled samples: the strategy chooses nothing, it says by
            `admitted` and `quotas` what is drawn
        needs_length: `selects_at` depends on the length of the run
        repeats: the same candidates and scores always give the same batch
        evidence: what `select` reads from the pool besides features (probabilities, labels, losses, errors); None is
            everything that there is. If it reads features only, the batches may hold targets of any kind.
        gathers: whether it learns in `select`, from what `gather` returns.
        draws_seldom: `select` hardly ever needs a random number. Making a generator takes longer than a small
            selection, so it is made at the first draw, and `rng` has the methods of a generator but is none
        admitted: rows of the dataset from which RandomPool draws in this epoch; None is all of them
        quotas: class of each sample, (N,), if the pools of RandomPool hold every class equally often
        spread: shares the parts of a search among the ranks; set by the loader.

    Examples:
        >>> import numpy as np, smdl, torch
        >>> class Last(smdl.Strategy):
        ...     def select(self, pool, remaining, batch_size, rng):
        ...         rows = np.sort(remaining)[-batch_size:]
        ...         return smdl.Selection(rows, np.zeros(len(rows)), 0.0)
        >>> data = torch.utils.data.TensorDataset(torch.randn(40, 4), torch.arange(40) % 2)
        >>> loader = smdl.DataLoader(data, torch.nn.Linear(4, 2), 10, method=Last())
        >>> [len(targets) for _, targets in loader]
        [10, 10, 10, 10]
    """

    needs_scores: bool = False
    needs_reference: bool = False
    needs_holdout: int = 0
    needs_losses: bool = False
    needs_errors: bool = False
    needs_label_evidence: bool = False
    needs_labels: bool = False
    needs_all: bool = False
    needs_passes: bool = False
    needs_length: bool = False
    repeats: bool = False
    gathers: bool = False
    draws_seldom: bool = False
    evidence: frozenset[str] | None = None
    admitted: np.ndarray | None = None
    quotas: np.ndarray | None = None
    #: Shares the parts of a search among the ranks; None unless all ranks make the same choice. Set by the loader.
    spread: Spread | None = None

    def gather(self, mine: np.ndarray) -> np.ndarray:
        """Return the rows that every rank has found, put together. Replaced by the loader if there are several ranks:
        then each must call it at the same step, with as many rows."""
        return mine

    def prepare(self, samples: int, epochs: int | None) -> None:
        """Take the size of the dataset and the length of the run (None if unknown). Called once, by the loader."""

    def set_labels(self, labels: np.ndarray) -> None:
        """Take the class number of every sample of the dataset. Called once, by the loader, if `needs_labels`."""

    def begin_epoch(self, epoch: int) -> None:
        """Take the number of the epoch, and decide which samples are `admitted`. RandomPool and Full call it before the
        first step of an epoch."""

    def selects_at(self, epoch: int, step: int, steps: int) -> bool:  # noqa: ARG002
        """Whether a step, of `steps` in its epoch, chooses among candidates; otherwise its batch is drawn at random.

        It may depend on nothing else: workers read the candidates of later steps ahead.
        """
        return True

    def scores_now(self) -> bool:
        """Whether a strategy that needs scores needs those of the next step. Without them, `select` gets no pool.

        RandomPool asks before it forwards its candidates. It may depend on what was observed.
        """
        return True

    def select(self, pool: Pool | None, remaining: np.ndarray, batch_size: int, rng: np.random.Generator) -> Selection:
        """Choose `batch_size` of the rows in `remaining`.

        pool    None unless `needs_scores`; from Full, a strategy that also needs losses gets it at a refresh only
        rng     belongs to this step: the same (seed, epoch, step) gives the same draws
        """
        raise NotImplementedError

    def observe(self, indices: np.ndarray, losses: np.ndarray) -> None:
        """Take the losses of the last batch, of all ranks; indices are those of the dataset."""

    def describe(self) -> str:
        """Return a text on which a saved state and the strategy that loads it must agree."""
        return type(self).__name__

    def state_dict(self) -> dict[str, Any]:
        """Return what `load_state_dict` needs: tensors and plain values."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that `state_dict` returned."""


def drawn(indices: np.ndarray, weights: np.ndarray | None = None) -> Selection:
    """Return a selection that maximised nothing."""
    return Selection(indices.astype(np.int64), np.zeros(len(indices)), 0.0, weights=weights)
