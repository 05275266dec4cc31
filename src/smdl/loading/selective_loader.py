"""SelectiveLoader: wraps any iterable of batches and yields the selected part."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from torch import nn

from smdl.common.messages import choice, names_checked
from smdl.common.names import MethodName, ObjectiveName
from smdl.engine.objective import Objective
from smdl.loading.base_loader import Loader
from smdl.loading.candidates.stream import Stream, StreamEpoch
from smdl.loading.methods import Method, as_method
from smdl.loading.strategies.strategy import Strategy
from smdl.scoring.padding import Padding, check_padding
from smdl.scoring.scorer import Scorer
from smdl.scoring.scoring_options import Scoring


@names_checked
class SelectiveLoader(Loader):
    """Wraps any iterable of batches: joins 1/keep of them to a pool and yields the selected part of it.

    With several ranks, the wrapped loader must give each its own batches. Each rank selects from what it reads.

    A state holds that of the wrapped loader if it has a `state_dict`. Otherwise a resumed epoch reads the batches
    before its first step again and skips them: the wrapped loader must then yield them in the same order.

    Args:
        loader: Any iterable of batches.
        model: The model in training.
        keep: The fraction of the samples that is trained on. Batches keep their size. If 1/keep is no whole number,
            the size of the pool changes from step to step; above 1/2, some steps train on a whole batch.
        method: As for `smdl.DataLoader`; its strategy is used, its candidates are the stream. By default facility
            location over last-layer gradients.
        objective: As for `smdl.DataLoader`.
        options: As for `smdl.DataLoader`.
        reference: For feature_match and rho_loss: a trained model.
        scoring: How to score other batches, models and losses, see `smdl.Scoring`.
        padding: The value that fills shorter rows if the batches of a pool were padded to different lengths, or a dict
            of column: value. By default 0 (−100 for labels) if the batches have an attention_mask.
        seed: As for `smdl.DataLoader`.
        process_group: As for `smdl.DataLoader`.

    Raises:
        ValueError: If an argument is wrong. The message names the argument, the value and the choices.
        TypeError: If an argument has the wrong type.

    Examples:
        >>> import smdl, torch
        >>> batches = [(torch.randn(30, 8), torch.arange(30) % 3) for _ in range(6)]
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        >>> sum(len(inputs) for inputs, targets in smdl.SelectiveLoader(batches, model, keep=1 / 3))
        60
    """

    def __init__(
        self,
        loader: Iterable[Any],
        model: nn.Module,
        keep: float = 1 / 3,
        *,
        method: MethodName | str | Method | Strategy = "fresh",
        objective: Objective | ObjectiveName | None = None,
        options: Mapping[str, Any] | None = None,
        reference: nn.Module | None = None,
        scoring: Scoring | None = None,
        padding: Padding = None,
        seed: int | None = 0,
        process_group: Any = None,
    ) -> None:
        if not isinstance(loader, Iterable):
            raise TypeError(choice("loader", type(loader).__name__, "an iterable of batches"))
        stream = Stream(keep)
        scorer = Scorer(model, scoring)
        super().__init__(as_method(method).changed(objective, stream, options), scorer, seed, process_group)
        if self.strategy.needs_reference and reference is None:
            need = "rho_loss" if self.strategy.needs_holdout else "feature_match"
            raise ValueError(f"{need} needs reference=, a trained model, to score a stream")
        self.loader, self.keep = loader, stream.keep
        self._reference = None if reference is None else scorer.of(reference)
        self._skip, self._padding = 0, check_padding(padding)

    def __len__(self) -> int:
        """Return the number of batches per epoch, if the wrapped loader has a length."""
        return self.candidates.steps(len(self.loader))  # type: ignore[arg-type, attr-defined]

    def _steps(self) -> int | None:
        """Return the number of batches per epoch; None if the wrapped loader does not know its length."""
        try:
            return len(self)
        except TypeError:  # a DataLoader of torch has a __len__ that raises, if its dataset is a stream
            return None

    def __repr__(self) -> str:
        return (
            f"smdl.SelectiveLoader({type(self.loader).__name__}, method={self.method.name}: {self.strategy.describe()};"
            f" keep={self.keep:.6g}, seed={self.seed})"
        )

    def __iter__(self) -> Iterator[Any]:
        iteration, steps = self._start_iteration(), self._steps()
        batches, self._skip = islice(self.loader, self._skip, None), 0
        epoch = StreamEpoch(*self._basics(), stream=batches, reference=self._reference, padding=self._padding)
        for selection, batch in self.candidates.batches(epoch):
            self._selection = selection
            self._step += 1
            if (
                self._step == steps and epoch.ended()
            ):  # a state taken after the last batch was yielded is that of the next epoch
                self._begin(self._epoch + 1)
            yield batch
            self._check_latest(iteration)
            self._warn_unweighted()
        if self._step:
            self._begin(self._epoch + 1)
        self._watch.finish()
        self.scorer.criterion.labels_seen.warn_if_few()

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        return {**state, "loader": self.loader.state_dict()} if hasattr(self.loader, "state_dict") else state  # type: ignore[attr-defined]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._skip = 0
        if "loader" in state:
            self.loader.load_state_dict(state["loader"])  # type: ignore[attr-defined]
        else:
            self._skip = self.candidates.read_before(self._step)  # type: ignore[attr-defined]
