"""Feedback: what training computed for the current batch, for methods that learn from it."""

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.engine.pool import as_matrix, finite, host
from smdl.engine.selection import Selection
from smdl.loading.candidates.base import Candidates
from smdl.loading.ranks import Ranks
from smdl.loading.step_record import StepRecord
from smdl.loading.strategies.strategy import Strategy
from smdl.scoring.label_check import WIDTH, label_evidence, tells
from smdl.scoring.observation import Doubt, Observation, Observer
from smdl.scoring.scorer import Scorer

#: Batches whose evidence about labels is computed at once.
HELD = 16


class Feedback:
    """Passes losses, features and logits of the training forward on to the strategy and the candidates.

    They come from hooks on the model, or from `loader.observe`. With several ranks they are kept until the end of the
    step, and exchanged then.
    """

    def __init__(self, scorer: Scorer, strategy: Strategy, candidates: Candidates, method: str) -> None:
        self._scorer, self._strategy, self._candidates, self._method = scorer, strategy, candidates, method
        #: Whether features of the training forward are kept.
        self.needs_features = candidates.needs_features and strategy.needs_scores
        watches = strategy.needs_losses or (self.needs_features and candidates.watches_model)
        self._observer = Observer(scorer, features=self.needs_features) if watches else None
        scorer.criterion.labels_seen.strict = not strategy.needs_label_evidence
        self._doubt = Doubt.NONE  # of the model, as far as it is acted upon
        self._selection: Selection | None = None  # of the current batch
        self._targets: Tensor | None = None  # of the current batch
        self._is_checked = True  # whether to find out, at the price of waiting for the device, if it was recognised
        self._received = False  # whether anything is known of it
        self._rows_known: Tensor | bool = False  # which of its rows are known: all, none, or (B,) bool
        self._missed: Tensor | int = 0  # rows of all batches so far that were not recognised
        self._rows = 0  # of all batches so far
        self._warned = False  # of rows that were not recognised
        self._gave_up = False  # whether nothing can be learned, where the strategy can do without
        self._held: list[tuple[np.ndarray, Tensor, Tensor]] = []  # rows, outputs and labels whose evidence is not taken
        self._record: StepRecord | None = None  # with several ranks: what they have to exchange about it
        self._ranks = Ranks()

    @property
    def has_unexchanged(self) -> bool:
        """Whether ranks have still to exchange what they know of the current batch."""
        return self._record is not None

    def forget(self) -> None:
        """Drop what is not passed on yet."""
        self._record = None
        self._held.clear()

    def flush(self) -> None:
        """Pass on the evidence about labels of the last batches."""
        if not self._held:
            return
        rows, outputs, labels = zip(*self._held, strict=True)
        self._held.clear()
        evidence = label_evidence(torch.cat(outputs), torch.cat(labels))
        self._strategy.observe(np.concatenate(rows), host(evidence).astype(np.float64))

    def expect(self, selection: Selection, batch: Any, ranks: Ranks, check: bool) -> None:
        """This batch is trained on next. `check` makes sure that it is recognised; this waits for the device."""
        self._selection, self._ranks, self._is_checked, self._received = selection, ranks, check, False
        self._rows_known = False
        if self._observer is not None or self.needs_features:
            self._targets = None
            if not self._gave_up:
                self._start(batch)
            if ranks.size > 1:
                targets = self._scorer.kept.targets(self._targets)
                width = (WIDTH,) if self._strategy.needs_label_evidence else ()
                self._record = StepRecord(selection.indices, targets, self._scorer.network.device, width)

    def _start(self, batch: Any) -> None:
        """Keep the targets of this batch, and expect forwards of it."""
        criterion = self._scorer.criterion
        try:
            targets = criterion.targets(batch)
            self._targets = None if targets is None else targets.clone()  # the loop may change them in place
            if self._observer is not None:
                self._observer.start(batch, criterion.targets_column(batch))
        except (TypeError, ValueError) as error:
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Raise this error, or learn nothing from now on and say so, if the strategy can do without."""
        if not self._strategy.needs_label_evidence:
            raise error
        self._gave_up = True
        warnings.warn(
            f"method {self._method} cannot check the labels, because it cannot tell what the model says about a"
            f' batch, and leaves nothing out: {error}. options={{"check_labels": False}} says that this is meant',
            stacklevel=5,
        )

    def stop(self) -> None:
        """No more of the current batch is expected: take what is there."""
        if self._observer is not None:
            self.take()
            self._observer.stop()

    def receive(
        self,
        losses: Tensor | np.ndarray | None,
        features: Tensor | np.ndarray | None,
        logits: Tensor | np.ndarray | None,
        rows: Tensor | np.ndarray | None,
    ) -> None:
        """Take what the training loop computed itself, see `DataLoader.observe`."""
        if self._selection is None:
            raise ValueError("observe takes what was computed for the current batch, and there was no batch yet")
        places = np.arange(len(self._selection)) if rows is None else np.asarray(host(torch.as_tensor(rows)))
        if places.ndim != 1 or (places.size and not 0 <= places.min() <= places.max() < len(self._selection)):
            raise ValueError(f"rows must be places in the current batch, 0..{len(self._selection) - 1}, got {rows}")
        outputs = None if logits is None else self._scorer.criterion.outputs_in(finite("logits", logits))
        if self.needs_features and (features is not None or not self._strategy.needs_losses):
            self._scorer.criterion.decide(outputs, self._targets)
            if features is None or (outputs is None and self._scorer.criterion.loss is not None):
                raise ValueError(f"{self._candidates.describe()} needs both features and logits of the batch")
            matrix = as_matrix("features", features)
            for name, given in (("features", matrix), ("logits", outputs)):
                if given is not None and len(given) != len(places):
                    raise ValueError(f"{name} must have one row per sample, {len(places)}, got {len(given)}")
            self._keep(Observation(None, None if outputs is None else outputs.float(), matrix.float()), places)
        elif losses is not None or (outputs is not None and self._strategy.needs_losses):
            more = self._strategy.needs_errors or self._strategy.needs_label_evidence  # than losses
            if more and outputs is None:
                raise ValueError(f"method {self._method} needs the logits of the batch: call observe(logits=...)")
            if self._strategy.needs_label_evidence and self._ranks.size == 1:
                self._hold(Observation(None, outputs, None), places)
            else:
                found = self._losses(places, outputs) if losses is None or more else losses
                if found is not None:
                    self._keep_losses(places, found)
        self._received = self._rows_known = True

    def take(self) -> None:
        """Pass on what the training forwards of the current batch have shown so far."""
        if self._observer is None or self._selection is None:
            return
        if not self._gave_up:
            self._take_seen(self._observer)
        if self._gave_up:
            self._observer.stop()  # what it noted of later forwards would stay in memory

    def _take_seen(self, observer: Observer) -> None:
        try:
            seen = observer.finish()
        except ValueError as error:
            self._give_up(error)
            return
        if self._ranks.size == 1:
            self._believe(observer.doubt)
        if seen is not None:
            self._keep(seen)
            if seen.found is None or self._rows_known is True:
                self._rows_known = True
            else:
                self._rows_known = seen.found | self._rows_known
            self._received = self._received or not self._is_checked or seen.found is None or bool(seen.found.any())

    def finish(self, ranks: Ranks) -> None:
        """Take what is known of the current batch, once, and with several ranks exchange it. Forwards that come later
        in this step are ignored then: every rank exchanges once per step."""
        self._ranks = ranks
        self.take()
        if self._record is None:
            return
        record, self._record = self._record, None
        doubt = Doubt.NONE if self._observer is None else self._observer.doubt
        seen = record.exchange(ranks, self.needs_features, self._strategy.needs_losses, doubt)
        self._believe(Doubt(seen.doubt))
        if seen.features is not None and self._doubt < Doubt.ORDER:
            observation = Observation(seen.found, seen.outputs, seen.features)
            self._candidates.remember(self._scorer, seen.rows, observation, seen.targets)
        if self._strategy.needs_losses:
            self._strategy.observe(seen.rows[seen.known], seen.losses[seen.known])

    @property
    def missed(self) -> int:
        """Rows of all batches so far that were trained on and not recognised in a forward."""
        return int(self._missed)

    def count(self, last: bool) -> None:
        """Count the rows of the current batch that were not recognised. Warn if all of them are needed and none is
        known. After the last batch of an epoch, warn once if there were others."""
        if (not self._strategy.needs_losses and not self.needs_features) or self._gave_up:
            return
        assert self._selection is not None
        self._rows += len(self._selection)
        if isinstance(self._rows_known, Tensor):
            self._missed = (~self._rows_known).sum() + self._missed  # does not wait for the device
        elif not self._rows_known:
            self._missed = self._missed + len(self._selection)
        if self._doubt == Doubt.ORDER:  # of which there was a warning
            return
        self._warn_if_missing()
        if last and not self._warned and self.missed:
            self._warned = True
            warnings.warn(
                f"{self.missed} of {self._rows} samples that were trained on were not recognised in a forward of the"
                " model: they were left out of the forward, changed in place, or cannot be told from another one. What"
                " was known of them before still counts. loader.unobserved counts them",
                stacklevel=3,
            )

    def _warn_if_missing(self) -> None:
        if self._received:
            return
        self._warned, strategy = True, self._strategy
        need = "the training losses" if strategy.needs_losses else "the features of the training forward"
        need = "the outputs of the training forward, to check the labels," if strategy.needs_label_evidence else need
        call = "losses" if strategy.needs_losses else "features=..., logits=..."
        call = "logits=..." if strategy.needs_errors or strategy.needs_label_evidence else call
        warnings.warn(
            f"method {self._method} needs {need} and got none for this batch. The model was not called on it"
            " with gradients, does not return logits, was compiled and called before the first use of this loader,"
            f" or its inputs are changed before they reach it. Call loader.observe({call})."
            + ("" if self._observer is None else self._observer.hint),
            stacklevel=4,
        )

    def _believe(self, doubt: Doubt) -> None:
        """Follow what training forwards have shown about the model: once, and on every rank at the same step."""
        if doubt <= self._doubt or self._observer is None:
            return
        self._doubt = doubt
        self._observer.give_up(doubt)
        name = type(self._scorer.model).__name__
        if self._scorer.network.forget_head() and doubt == Doubt.HEAD:
            warnings.warn(
                f"the outputs of {name} are not those of its last linear layer alone any more, as with an adapter or a"
                " learned temperature: smdl.Observed keeps the outputs of the training forwards from now on, instead of"
                " applying this layer to the features, and starts again. Pass head=, a callable features -> outputs, to"
                " score with the current head",
                stacklevel=2,
            )
            self._candidates.forget_features()
        elif doubt == Doubt.ORDER:
            warnings.warn(
                f"the rows inside {name} are in another order than those of its inputs, as if it sorted or shuffled"
                " them: smdl.Observed cannot tell which features belong to which sample, and batches are random from"
                ' now on. Use smdl.Observed(observe="manual") and call loader.observe(features=..., logits=...)',
                stacklevel=2,
            )
            self._candidates.forget_features()

    def _keep(self, seen: Observation, places: np.ndarray | None = None) -> None:
        """Pass on what is known of these rows of the current batch, by default all."""
        assert self._selection is not None
        if self._strategy.needs_label_evidence and self._ranks.size == 1:
            self._hold(seen, places)
        elif self.needs_features and self._ranks.size > 1:
            if self._record is not None:
                assert seen.features is not None
                everywhere = np.arange(len(self._selection)) if places is None else places
                targets = self._targets
                if targets is not None:
                    targets = targets[torch.from_numpy(everywhere).to(targets.device)]
                outputs = self._scorer.kept.outputs(seen.logits, targets)
                self._record.add_features(everywhere, seen.found, seen.features, outputs)
        elif self.needs_features:
            rows, labels = self._selection.indices, self._targets
            if places is not None:
                rows = rows[places]
                labels = None if labels is None else labels[torch.from_numpy(places).to(labels.device)]
            self._candidates.remember(self._scorer, rows, seen, labels)
        if self._strategy.needs_losses and not (self._strategy.needs_label_evidence and self._ranks.size == 1):
            places = np.arange(len(self._selection)) if places is None else places
            losses, found = self._losses(places, seen.logits), slice(None) if seen.found is None else host(seen.found)
            if losses is not None:
                self._keep_losses(places[found], losses[found])

    def _hold(self, seen: Observation, places: np.ndarray | None) -> None:
        """Hold outputs and labels until there are those of HELD batches: a few calls for all take less time."""
        assert self._selection is not None
        rows, labels, outputs = self._selection.indices, self._targets, seen.logits
        if not self._judges(outputs):
            return
        assert outputs is not None
        assert labels is not None
        if places is not None:
            rows, labels = rows[places], labels[torch.from_numpy(places).to(labels.device)]
        if seen.found is not None:
            rows, outputs, labels = rows[host(seen.found)], outputs[seen.found], labels[seen.found.to(labels.device)]
        if self._held and outputs.shape[1] != self._held[0][1].shape[1]:
            self.flush()
        self._held.append((rows, outputs, labels))
        if len(self._held) >= HELD:
            self.flush()

    def _judges(self, outputs: Tensor | None) -> bool:
        """Whether outputs of the current batch tell anything about its labels. If not, no others will."""
        criterion, labels = self._scorer.criterion, self._targets
        criterion.decide(outputs, labels)
        if outputs is None or labels is None or not criterion.classes or not tells(outputs, labels):
            self._gave_up = True
            return False
        criterion.check_outputs(outputs)
        return True

    def _losses(self, places: np.ndarray, logits: Tensor | None) -> np.ndarray | None:
        """Return what the strategy learns from these outputs; None if it takes what there is, and there is nothing."""
        strategy, criterion = self._strategy, self._scorer.criterion
        if strategy.needs_label_evidence and not self._judges(logits):
            return None
        assert logits is not None
        assert self._targets is not None
        targets = self._targets.to(logits.device)[torch.from_numpy(places).to(logits.device)]
        if strategy.needs_label_evidence:
            return host(label_evidence(logits, targets))
        return host((criterion.error_norms if strategy.needs_errors else criterion.losses)(logits, targets))

    def _keep_losses(self, places: np.ndarray, losses: Tensor | np.ndarray) -> None:
        assert self._selection is not None
        values = host(losses) if isinstance(losses, Tensor) else np.asarray(losses)
        if values.shape[:1] != places.shape or (values.ndim > 1 and not self._strategy.needs_label_evidence):
            raise ValueError(f"losses must be one per sample of the batch, {len(places)}, got shape {values.shape}")
        if self._ranks.size == 1:
            self._strategy.observe(self._selection.indices[places], values.astype(np.float64))
        elif self._record is not None:
            self._record.add_losses(places, values.astype(np.float64))
