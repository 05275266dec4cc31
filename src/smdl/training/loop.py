"""The training loop. It does not know which method it runs: batches come from a loader."""

import copy
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import yaml

from smdl.common import clock, storage
from smdl.common.environment import environment, pick_device
from smdl.common.interrupts import Interrupted, interruptible
from smdl.common.names import Balance
from smdl.common.progress import Display
from smdl.loading.candidates.observed import Observed
from smdl.loading.head_refit import refit_head
from smdl.loading.loader import DataLoader
from smdl.scoring.batches import move
from smdl.scoring.reading import WORKER_KILLED, worker_was_killed
from smdl.scoring.scorer import NotFiniteError
from smdl.scoring.training_step import descend
from smdl.scoring.weighted_loss import weighted_mean
from smdl.training import checkpoint
from smdl.training.build import make_loader, make_loss, make_optimizer
from smdl.training.config import TrainConfig, from_dict, to_dict
from smdl.training.datasets.load import Splits, load
from smdl.training.evaluation import batches_of, check_forward, fixed_subset, loss_and_errors, uniform_statistics
from smdl.training.generators import seeded_generators
from smdl.training.meters import Meters, gradient_norm
from smdl.training.models import make_model
from smdl.training.run_files import write_config, write_counts, write_results
from smdl.training.schedule import rate
from smdl.training.state import restore, state_of
from smdl.training.trackers import Tracker, check_tracker, make_tracker

#: Training samples from which `recalibrate_batchnorm` takes the statistics, and how many are forwarded at a time.
BATCHNORM_SAMPLES, BATCHNORM_BATCH = 2000, 250
#: Training samples that are forwarded at a time to refit the last layer.
REFIT_BATCH = 500


class DivergedError(RuntimeError):
    """The loss is not a finite number any more."""


class KilledError(OSError):
    """A worker process was killed."""


def train(config: TrainConfig, out: Path, display: Display | None = None, tracker: str | None = None) -> dict[str, Any]:
    """Train a new run in `out`, or in the next free name (out-2, …) if that is used. Return its summary."""
    run = TrainingRun(config, display, tracker=tracker)  # errors in the config show before a folder is made
    with storage.claimed(out) as folder:
        return run.begin(folder)


def resume(folder: Path, display: Display | None = None, tracker: str | None = None) -> dict[str, Any]:
    """Resume an interrupted run; the result is the same as without the interruption."""
    if not (folder / "config.yaml").exists():
        raise ValueError(
            f"{folder} is not the folder of a run: it has no config.yaml. To start a run there, use --out {folder}"
        )
    if storage.read_json(folder / "summary.json") is not None:  # a damaged one is written again
        raise ValueError(f"the run in {folder} is finished: there is nothing to resume")
    with storage.locked(folder):
        try:
            values = yaml.safe_load((folder / "config.yaml").read_text())
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{folder / 'config.yaml'} is damaged: {' '.join(str(error).split())}") from error
        run = TrainingRun(from_dict(TrainConfig, values), display, tracker=tracker)
        try:
            return run.train(folder)
        except checkpoint.CheckpointError as error:
            advice = f"Delete {folder / 'checkpoint.pt'} to train the run again from its start"
            raise checkpoint.CheckpointError(f"{error}. {advice}") from error


class TrainingRun:
    """A run: the objects that its config describes, and the training loop."""

    def __init__(
        self,
        config: TrainConfig,
        display: Display | None = None,
        splits: Splits | None = None,
        tracker: str | None = None,
    ) -> None:
        """`splits` are the data of the config, if they are already loaded."""
        config = replace(config, method=config.method_name)  # the folder says which, whatever becomes the default
        self.config, self.display, self.tracker = config, display or Display(), tracker
        check_tracker(tracker)
        self.checkpoint: Path | None = None
        with threads(config.threads):
            self._build(config, splits)

    def _build(self, config: TrainConfig, splits: Splits | None) -> None:
        self.device = pick_device(config.device)
        self.environment = environment(self.device)  # now: the checkout may change during the run
        self.display.phase("loading")
        self.splits: Splits = splits or load(config.data)
        classes = len(self.splits.classes)
        self.model = make_model(config.model, self.splits.shape, classes, config.seed).to(self.device)
        if len(self.splits.shape) == 3:  # convolutions are several times faster this way, on a CPU too
            self.model = self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.loss = make_loss(config)
        self.optimizer = make_optimizer(config.optimizer, self.model.parameters())
        check_forward(self.model, self.loss, config.loss, self.splits)
        self.loader: DataLoader = make_loader(
            config, self.splits, self.model, lambda done, total: self.display.step("reference model", done, total)
        )
        self.display.phase("compiling kernels")
        self.loader.warm_up()
        self.epochs = config.epochs if config.steps is None else math.ceil(config.steps / len(self.loader))
        shown = fixed_subset(self.splits.train, config.train_evaluation, config.data.seed)
        sets = {"train": shown, "test": self.splits.test, "validation": self.splits.validation}
        self.sets = {name: dataset for name, dataset in sets.items() if dataset is not None}
        self.epoch = self.step = 0
        self.meters, self.records = Meters(), list[dict[str, Any]]()
        self.counts = torch.zeros(len(self.splits.train), dtype=torch.int32)  # type: ignore[arg-type]
        self.stopped_by: int | None = None

    def begin(self, folder: Path) -> dict[str, Any]:
        """Write the config and train."""
        write_config(folder, to_dict(self.config))
        return self.train(folder)

    def train(self, folder: Path) -> dict[str, Any]:
        """Train to the end, from the checkpoint in the folder if there is one."""
        self.folder, self.checkpoint = folder, folder / "checkpoint.pt"
        for part in folder.glob(".*.part"):  # left by a write that was killed
            part.unlink()
        with seeded_generators(self.config.seed), threads(self.config.threads), interruptible(self._stop):
            if self.checkpoint.exists():
                restore(self, checkpoint.load(self.checkpoint))
            metrics = folder / "metrics.jsonl"
            storage.write_lines(metrics, self.records)  # without records after the checkpoint
            tracker = make_tracker(self.tracker, folder, to_dict(self.config))
            for record in self.records:
                self._show(record, tracker)
            try:
                while self.epoch < self.epochs:
                    record = self._one_epoch()
                    storage.append_line(metrics, record)
                    self._show(record, tracker)
                    write_counts(folder, self.counts.numpy())
                    self._save()
            except NotFiniteError as error:
                raise DivergedError(self._divergence_message(str(error).partition(":")[0])) from error
            except RuntimeError as error:
                if not worker_was_killed(error):
                    raise
                raise KilledError(f"{WORKER_KILLED}. Resume with smdl train --resume {folder}") from error
            finally:
                self.display.close()
                tracker.close()
            return write_results(self)

    def _show(self, record: dict[str, Any], tracker: Tracker) -> None:
        self.display.epoch(record, self.epochs)
        tracker.epoch(record)

    def _one_epoch(self) -> dict[str, Any]:
        for loss in self.steps():
            self.display.step(
                f"epoch {self.epoch + 1}/{self.epochs}", self.meters.batches, len(self.loader), f"loss {loss:.4f}"
            )
            if self.stopped_by is not None:
                self._save()
                raise Interrupted(self.stopped_by, f"smdl train --resume {self.folder}")
        if self.config.refit is not None and self.epoch + 1 == self.epochs:
            self.display.phase("refitting the last layer")
            with self._timed("refit"):
                self.refit()
        with self._timed("evaluation"):
            measured = self.evaluate()
        for name, value in measured.items():
            if value is not None and not math.isfinite(value):
                raise DivergedError(self._divergence_message(f"{name} is {value}"))
        record = {
            "epoch": self.epoch,
            "steps": self.step,
            **measured,
            "lr": self.optimizer.param_groups[0]["lr"],
            **self.meters.means(),
        }
        self.records.append(record)
        self.epoch, self.meters = self.epoch + 1, Meters()
        return record

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        """Count the seconds of the block as those of a phase."""
        started = clock.now()
        yield
        self.meters.seconds[phase] += clock.now() - started

    def refit(self, copy: bool = False) -> None:
        """Fit the last layer again as the config says. With `copy` only to time it: of a few steps not every class is
        known, so all samples count alike."""
        assert self.config.refit is not None
        kept = isinstance(self.loader.candidates, Observed)
        with self.evaluated_model():
            data = self.loader if kept else batches_of(self.splits.train, REFIT_BATCH)
            refit_head(self.model, data, "none" if copy else cast(Balance, self.config.refit), copy=copy)

    def steps(self) -> Iterator[float]:
        """Train the rest of the epoch; yield the loss of each step."""
        if self.loader.epoch > self.epoch:  # resumed after the last batch of the epoch
            return
        self.loader.set_epoch(self.epoch)
        self.model.train()
        batches = iter(self.loader)
        while self.config.steps is None or self.step < self.config.steps:
            started, before = clock.now(), (dict(self.loader.seconds), self.loader.forwards)
            batch = next(batches, None)
            if batch is None:
                return
            waited = self._charge_loader(*before)
            loss = self._one_step(batch)
            if self.meters.batches == 1 and self.loader.selection is not None:
                self.meters.terms = self.loader.selection.terms
            self.meters.seconds["training"] += clock.now() - started - waited
            yield loss

    def _charge_loader(self, before: dict[str, float], forwards: int) -> float:
        """Add the seconds that the loader spent on a batch to the meters; return their sum."""
        spent = {name: now - before[name] for name, now in self.loader.seconds.items()}
        for name, seconds in spent.items():
            self.meters.seconds[name] += seconds
        self.meters.forwards += self.loader.forwards - forwards
        return sum(spent.values())

    def _one_step(self, batch: Any) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.optimizer.lr * rate(self.config.schedule, self._done())
        inputs, targets = move(batch, self.device)[:2]
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.amp):
            logits = self.model(inputs)
            loss = self._batch_loss(logits, targets)
        value = loss.item()
        if not math.isfinite(value):
            raise DivergedError(self._divergence_message(f"the loss is {value}"))
        descend(self.optimizer, loss)
        wrong = int((logits.argmax(dim=1) != targets).sum())
        norm = gradient_norm(self.model.parameters())
        self.meters.add(value, wrong, norm, targets.cpu().numpy(), len(self.splits.classes))
        assert self.loader.selection is not None
        np.add.at(self.counts.numpy(), self.loader.selection.indices, 1)
        self.step += 1
        return value

    def _batch_loss(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss of a batch. Weights of the samples, if the method gives any, multiply their losses."""
        selection = self.loader.selection
        if selection is None or selection.weights is None:
            return self.loss(logits, targets)
        each = copy.copy(self.loss)
        each.reduction = "none"  # type: ignore[assignment]
        loss = weighted_mean(each(logits, targets), selection)
        return loss * len(targets) if self.loss.reduction == "sum" else loss

    def _done(self) -> float:
        """Return the fraction of the run that is done."""
        if self.config.steps is not None:
            return self.step / self.config.steps
        return min(1.0, (self.epoch + self.meters.samples / len(self.counts)) / self.epochs)

    def evaluate(self) -> dict[str, float | None]:
        """Return loss and error on the test set and by its groups, on a sample of the training set, and on the
        validation set."""
        found: dict[str, float | None] = {}
        with self.evaluated_model():
            for name, dataset in self.sets.items():
                loss, wrong = loss_and_errors(self.model, self.loss, dataset)
                found |= {f"{name}_loss": loss, f"{name}_error": float(wrong.mean()) if len(wrong) else None}
                if name == "test":
                    found |= self.splits.groups.errors(wrong)
        return found

    def evaluated_model(self) -> AbstractContextManager[None]:
        """Give the model the BatchNorm statistics that it is evaluated with, within a block."""
        if not self.config.recalibrate_batchnorm:
            return nullcontext()
        samples = fixed_subset(self.splits.train, BATCHNORM_SAMPLES, self.config.data.seed)
        return uniform_statistics(self.model, batches_of(samples, BATCHNORM_BATCH))

    def _divergence_message(self, cause: str) -> str:
        lr = self.optimizer.param_groups[0]["lr"]
        there = self.checkpoint is not None and self.checkpoint.exists()
        kept = f"the last checkpoint is {self.checkpoint}" if there else "there is no checkpoint yet"
        return (
            f"{cause} at step {self.step} (epoch {self.epoch + 1}, learning rate {lr:g}); {kept}."
            " A lower optimizer.lr or a schedule.warmup usually helps"
        )

    def _stop(self, number: int) -> None:
        self.stopped_by = number
        self.display.note("stopping after this step, writing a checkpoint (Ctrl-C to stop at once)")

    def _save(self) -> None:
        assert self.checkpoint is not None
        checkpoint.save(self.checkpoint, state_of(self))


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """Use this many torch threads within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
