"""DataLoader: batches of a dataset, drawn by a method that may look at the model that is about to train on them."""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import Dataset

from smdl.common.messages import choice, of_scoring, one_of, true_or_false, unknown, whole_number
from smdl.common.names import MethodName, ObjectiveName, RanksChoice
from smdl.engine.objective import Objective
from smdl.loading.agreement import data_fingerprint, option_texts
from smdl.loading.base_loader import Loader
from smdl.loading.candidates.base import Candidates, DatasetEpoch, steps_per_epoch
from smdl.loading.feedback import Feedback
from smdl.loading.methods import Method, as_method
from smdl.loading.ranks import current_ranks
from smdl.loading.restarts import finished_epoch, warn_of_restart
from smdl.loading.strategies.recommended import Recommended
from smdl.loading.strategies.strategy import Strategy
from smdl.scoring.label_check import Suspects
from smdl.scoring.reading import (
    Reader,
    ReadRequest,
    are_confirmed,
    check_dataset,
    check_labels,
    read_labels,
    stored_labels,
    worker_errors,
)
from smdl.scoring.reference_model import ReferenceFeatures, check_reference
from smdl.scoring.scorer import Scorer
from smdl.scoring.scoring_options import Scoring

#: The label that torch's losses ignore unless they are told another one.
IGNORED = -100
_DECIDED_HERE = ("shuffle", "sampler", "batch_sampler", "generator", "in_order")


class DataLoader(Loader):
    """Replaces torch.utils.data.DataLoader: a method draws each batch, or chooses it with the model in training.

    Args:
        dataset: Map-style; its items are whatever `collate_fn` accepts.
        model: The model in training. Methods that score samples use it as it is at that step. It is left unchanged.
        batch_size: Of every rank.
        method: A name of `smdl.methods()` (recommended, uniform, balanced, observed, loss, …), `package.module:name`, a
            `smdl.Method` or a `smdl.Strategy`. By default recommended, or observed if an objective or candidates are
            given.
        objective: Replaces what the method maximises: a `smdl.Objective`, or its name, such as "facility_location".
        candidates: Replaces what the method chooses from: `smdl.Observed(factor=3)`, `smdl.RandomPool(factor=3)`,
            `smdl.Full(every=5)`, or a `smdl.Candidates`.
        options: Changes options of the method's strategy, such as {"test_set": "balanced"} for recommended.
        epochs: Length of the run, for methods that change over it (loss).
        reference: For feature_match: features (N, M), or a model that computes them. For rho_loss: irreducible losses
            (N, 1), or a model whose losses they are. Trained here unless given.
        scoring: How to score other batches, models and losses, see `smdl.Scoring`.
        scoring_dataset: The same samples with the evaluation transform. By default the dataset itself.
        scoring_batch_size: Samples per forward where the whole dataset is scored.
        drop_last: Leave out the last batch of an epoch if it is shorter.
        num_workers: Processes that read samples, as in torch.
        seed: `torch.manual_seed` does not change the batches: this number seeds every random draw of the loader. None
            takes it from torch's generator.
        collate_fn: Makes a batch of samples, as in torch.
        ranks: With several ranks of torch.distributed, "local" lets each choose from its own candidates, "global"
            chooses the batches of all ranks from all candidates, as one process would.
        process_group: The ranks among which batches are divided. By default all of torch.distributed, if it is used.
        **torch_options: Options of torch's DataLoader: pin_memory, worker_init_fn, prefetch_factor, …

    Raises:
        ValueError: If an argument is wrong. The message names the argument, the value and the choices.
        TypeError: If an argument has the wrong type.

    Examples:
        >>> import smdl, torch
        >>> data = torch.utils.data.TensorDataset(torch.randn(100, 8), torch.arange(100) % 3)
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
        >>> loader = smdl.DataLoader(data, model, batch_size=10)
        >>> for inputs, targets in loader:
        ...     loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        >>> loader.selection.indices.shape
        (10,)
    """

    def __init__(
        self,
        dataset: Dataset,
        model: nn.Module,
        batch_size: int = 50,
        *,
        method: MethodName | str | Method | Strategy | None = None,
        objective: Objective | ObjectiveName | None = None,
        candidates: Candidates | None = None,
        options: Mapping[str, Any] | None = None,
        epochs: int | None = None,
        reference: Tensor | np.ndarray | nn.Module | None = None,
        scoring: Scoring | None = None,
        scoring_dataset: Dataset | None = None,
        scoring_batch_size: int = 500,
        drop_last: bool = False,
        num_workers: int = 0,
        seed: int | None = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        ranks: RanksChoice = "local",
        process_group: Any = None,
        **torch_options: Any,
    ) -> None:
        _check_torch_options(torch_options)
        scorer = Scorer(model, scoring)
        self._samples = check_dataset(dataset)
        if scoring_dataset is not None and check_dataset(scoring_dataset, "scoring_dataset") != self._samples:
            found = len(scoring_dataset)  # type: ignore[arg-type]
            raise ValueError(f"scoring_dataset must have the dataset's {self._samples} samples, got {found}")
        self.batch_size = whole_number("batch_size", batch_size)
        if self.batch_size > self._samples:
            raise ValueError(choice("batch_size", batch_size, f"at most the dataset's {self._samples} samples"))
        if method is None:
            method = "recommended" if objective is None and candidates is None else "observed"
        changed = as_method(method).changed(objective, candidates, options)
        together = one_of("ranks", ranks, get_args(RanksChoice)) == "global"
        super().__init__(changed, scorer, seed, process_group, together)
        self.strategy.prepare(self._samples, None if epochs is None else whole_number("epochs", epochs))
        self.dataset, self.model, self.drop_last = dataset, model, true_or_false("drop_last", drop_last)
        self._scoring_batch_size = whole_number("scoring_batch_size", scoring_batch_size)
        workers = whole_number("num_workers", num_workers, 0)
        if scoring_dataset is not None and self.candidates.needs_features:
            raise ValueError(
                f"scoring_dataset has no effect with candidates={self.candidates.describe()}, which forwards no sample"
                " for scoring: leave it out, or use candidates=smdl.RandomPool()"
            )
        ahead = self.candidates.set_workers(workers)
        self.reader = Reader(dataset, scoring_dataset, collate_fn, workers, ahead, **torch_options)
        if self.strategy.needs_labels:
            stored = stored_labels(dataset) if scorer.scoring.targets is None and scorer.scoring.loss is None else None
            labels = self._labels(stored)
            ignored = np.flatnonzero(labels == IGNORED)
            if len(ignored):
                found = f"sample {ignored[0]} has the label {IGNORED}, which cross-entropy ignores"
                raise ValueError(f"{self.strategy.describe()} draws by classes, and {found}: leave out such samples")
            self.strategy.set_labels(labels)
        self._both = scoring_dataset is not None
        self.reference = None
        if self.strategy.needs_reference:
            self.reference = ReferenceFeatures(reference, self._samples, self.strategy.needs_holdout)
        self._feedback = Feedback(scorer, self.strategy, self.candidates, self.method.name)
        self._data: str | None = None  # with several ranks: what they compare
        self._mark = object()  # tells this loader from others, also from one that was freed
        self._data_and_loss = {"dataset": type(dataset).__qualname__, "loss": scorer.scoring.loss}
        self._step_batch = self.batch_size  # samples per step of the current epoch, of all ranks
        self.arguments = {
            "epochs": epochs, "reference": reference, "scoring": scorer.scoring, "scoring_dataset": scoring_dataset,
            "scoring_batch_size": scoring_batch_size, "drop_last": drop_last, "num_workers": num_workers,
            "seed": self.seed, "collate_fn": collate_fn, "ranks": ranks, "process_group": process_group,
            **torch_options,
        }  # fmt: skip
        self._begin(0)

    def __len__(self) -> int:
        """Return the number of batches per epoch, the same on every rank."""
        return steps_per_epoch(self._samples, self.batch_size, self.drop_last, current_ranks(self._group).size)

    def __repr__(self) -> str:
        return (
            f"smdl.DataLoader(method={self.method.name}: {self.strategy.describe()};"
            f" candidates={self.candidates.describe()}, {self._samples} samples, batch_size={self.batch_size},"
            f" {len(self)} steps per epoch, seed={self.seed})"
        )

    def set_epoch(self, epoch: int) -> None:
        """Make the next iteration this epoch. Without it, every iteration is the next epoch."""
        whole_number("epoch", epoch, 0)
        if not (self._resumed and epoch == self._epoch):  # the epoch of a loaded state continues where it was
            self._begin(epoch)
            self._resumed = False
            self._iterations += 1  # an iteration that was under way cannot be continued

    def __iter__(self) -> Iterator[Any]:
        return self._iterate()

    def warm_up(self) -> None:
        """Compile what selection needs, on the first few samples. Otherwise the first step does, and takes seconds."""
        learns = self.strategy.needs_losses or self.strategy.gathers  # it would count this as a batch
        if not self.strategy.needs_scores or learns:
            return
        seconds, samples = dict(self.seconds), self.scorer.samples
        rows, epoch = np.arange(min(self._samples, 3 * self.batch_size)), self.new_epoch()
        with torch.random.fork_rng(devices=[]), worker_errors():
            _, batch = next(iter(self.reader.read([ReadRequest(0, rows.tolist(), train=False, score=True)])))
        epoch.choose(epoch.score_rows(batch, rows), rows, self.batch_size, step=0)
        self.seconds, self.scorer.samples = seconds, samples

    def observe(
        self,
        losses: Tensor | np.ndarray | None = None,
        *,
        features: Tensor | np.ndarray | None = None,
        logits: Tensor | np.ndarray | None = None,
        rows: Tensor | np.ndarray | None = None,
    ) -> None:
        """Take what the training forward computed for the current batch, if the model does not show it to its hooks.

        losses     (B,) for methods that need nothing but losses; computed from the logits if those are given
        features   (B, D), with logits, for smdl.Observed
        logits     the model's output, (B, …); the default method needs it
        rows       (B,) places in the current batch; by default all, in order
        """
        self._feedback.receive(losses, features, logits, rows)

    @property
    def unobserved(self) -> int:
        """Samples trained on so far, on this rank, of which the method needs features, losses or outputs and that were
        not recognised in a forward of the model. Reading it waits for the device."""
        return self._feedback.missed

    def suspects(self, count: int | None = None) -> Suspects:
        """Return the samples that are probably mislabelled, the most suspicious first: as many as labels seem to be
        wrong, or as many as `count` says. It needs method="recommended" and two epochs of training; the targets must be
        class numbers of at least 4 classes."""
        if not isinstance(self.strategy, Recommended) or not self.strategy.needs_label_evidence:
            found = self.strategy.describe()
            raise ValueError(f'suspects needs method="recommended", which checks the labels, got {found}')
        if count is not None:
            whole_number("count", count)
        self._feedback.take()
        self._feedback.flush()
        return self.strategy.suspects(count)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that decides the batches still to come, the same on every rank. Within an epoch call it on
        every rank: what they observed of the current batch is exchanged first. Between epochs one rank may call it."""
        self._finish_step()
        self._feedback.flush()
        trained = None if self.reference is None else self.reference.trained
        ranks = self._step_batch // self.batch_size
        return {**super().state_dict(), "ranks": ranks, "reference": trained, "scoring": self.scorer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        trained = state.get("reference") if isinstance(state, dict) else None
        checked, before = check_reference(trained, self._samples), self.scorer.state_dict()
        try:
            if isinstance(state, dict) and "scoring" in state:
                self.scorer.load_state_dict(state["scoring"])
            super().load_state_dict(state)
        except Exception:
            self.scorer.load_state_dict(before)
            raise
        self._feedback.forget()
        self._step_batch = state["run"]["batch_size"] * state["ranks"]
        if self.reference is not None and isinstance(checked, Tensor):
            self.reference.trained = checked

    def _check_run(self, state: dict[str, Any]) -> None:
        ranks, size = (
            whole_number("the state's ranks", state["ranks"]),
            whole_number("the state's batch_size", state["run"]["batch_size"]),
        )
        if ranks * size == self.batch_size * current_ranks(self._group).size:  # ranks may differ, the step is the same
            state = {**state, "run": {**state["run"], "batch_size": self.batch_size}}
        super()._check_run(state)

    def _signature(self) -> dict[str, Any]:
        own = {"samples": self._samples, "batch_size": self.batch_size, "drop_last": self.drop_last}
        return {**own, **super()._signature()}

    def _begin(self, epoch: int) -> None:
        super()._begin(epoch)
        self.candidates.begin(self._samples)

    def new_epoch(self) -> DatasetEpoch:
        """Return the current epoch, as the candidates see it."""
        return DatasetEpoch(
            *self._basics(),
            samples=self._samples,
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            reader=self.reader,
            reference=self.reference_features(),
            both=self._both,
            scoring_batch_size=self._scoring_batch_size,
        )

    def _labels(self, stored: np.ndarray | None) -> np.ndarray:
        """Return the class number of every sample, read from the dataset unless it holds them."""

        def read(rows: np.ndarray) -> np.ndarray:
            return read_labels(self.reader, self.scorer.criterion.labels, rows, self._scoring_batch_size)

        if stored is not None:
            labels = check_labels(stored, "the dataset", "; pass targets= to say where they are")
            try:
                if are_confirmed(labels, read):
                    return labels
            except ValueError:  # the batches do not show class numbers
                return labels
        return read(np.arange(self._samples))

    def reference_features(self) -> Tensor | None:
        """Return what the reference model says of the samples; train it first if that was not done yet."""
        if self.reference is None:
            return None
        return self.reference.compute(self.scorer, self.reader, self.batch_size, self.seed)

    def _start_iteration(self) -> int:
        if len(self.dataset) != self._samples:  # type: ignore[arg-type]
            raise ValueError(
                f"the dataset has {len(self.dataset)} samples, and had {self._samples} when the loader was made: make a"  # type: ignore[arg-type]
                " new loader for it"
            )
        iteration, batch = super()._start_iteration(), self.batch_size * self._ranks.size
        self._feedback.flush()
        if batch > self._samples:
            raise ValueError(
                f"batch_size × ranks must be at most the dataset's {self._samples} samples, got {self.batch_size} ×"
                f" {self._ranks.size}"
            )
        if self._step and batch != self._step_batch:  # another number of ranks resumes the epoch
            self._step = math.ceil(self._step * self._step_batch / batch)
            self.candidates.forget_plan()
            if self._step >= len(self):
                self._begin(self._epoch + 1)
        self._step_batch = batch
        return iteration

    def _agreed(self) -> dict[str, Any]:
        if self._data is None:  # reading samples at every epoch would take time
            self._data = data_fingerprint(self.reader, self._samples, self.scorer.criterion.targets)
        return {**option_texts(self.arguments), "the data": self._data}

    def _position(self) -> dict[str, Any]:
        return {**super()._position(), "whether a batch was left half-way": self._feedback.has_unexchanged}

    def _iterate(self) -> Iterator[Any]:
        if self._iterations == 0:  # never iterated, no state loaded, no epoch set
            warn_of_restart(self.scorer.model, {**self._signature(), **self._data_and_loss}, self._mark)
        iteration, steps = self._start_iteration(), len(self)
        try:
            with worker_errors():
                for selection, batch in self.candidates.batches(self.new_epoch()):
                    self._selection = selection
                    self._step += 1
                    ended = self._step == steps
                    self._feedback.expect(selection, batch, self._ranks, check=self._step == 1 or ended)
                    if ended:  # a state taken after the last batch was yielded is that of the next epoch
                        self._begin(self._epoch + 1)
                        self._watch.last_batch()
                        finished_epoch(self.scorer.model, {**self._signature(), **self._data_and_loss}, self._mark)
                    yield batch
                    if not ended:
                        self._check_latest(iteration)
                    if iteration == self._iterations:
                        self._finish_step()
                        self._feedback.count(last=ended)
                        self._warn_unweighted()
                    if ended:
                        self._watch.finish()
                        self.scorer.criterion.labels_seen.warn_if_few()
                        return
        finally:  # also if the loop over this iterator was left; after an error no rank may wait for the others
            if iteration == self._iterations:
                self._feedback.stop()

    def _finish_step(self) -> None:
        self._feedback.finish(self._ranks)


def _check_torch_options(options: Mapping[str, Any]) -> None:
    """Raise an error that says what was meant by an option that torch's DataLoader does not have."""
    known = set(inspect.signature(TorchLoader).parameters) - set(_DECIDED_HERE)
    own = set(inspect.signature(DataLoader).parameters) - {"torch_options"}
    for name in options:
        if name in _DECIDED_HERE:
            raise ValueError(f"`{name}` cannot be set: the method decides the order. Use `method=` and `seed=`.")
        if name in Scoring.__dataclass_fields__:
            raise TypeError(of_scoring(name))
        if name not in known:
            raise TypeError(unknown("argument of DataLoader", name, known | own))
