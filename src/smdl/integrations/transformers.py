"""SelectiveTrainer: the Trainer of transformers on selected batches, with exact resume."""

# pyright: reportAttributeAccessIssue=false, reportGeneralTypeIssues=false, reportMissingImports=false

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from transformers import Trainer, TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from smdl.loading.loader import DataLoader

FILE = "smdl_loader.pt"
Base: Any = object  # the Trainer that follows in the list of base classes


class SaveLoader(TrainerCallback):
    """Writes the state of a loader into every checkpoint of the Trainer."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        taken = self.loader.state_dict()  # on every rank: they exchange what they observed
        if args.should_save:
            torch.save(taken, Path(args.output_dir) / f"checkpoint-{state.global_step}" / FILE)


class SelectiveTrainerMixin(Base):
    """Put this before a Trainer class: `class MyTrainer(SelectiveTrainerMixin, Seq2SeqTrainer)`.

    selection   arguments of `smdl.DataLoader`, such as {"method": "fresh"}. The data set, the collator, the batch size,
                the workers and the seed are those of the Trainer, unless they are given here.

    `loader` is the smdl.DataLoader. It exists from the first `train` on.
    """

    def __init__(self, *arguments: Any, selection: dict[str, Any] | None = None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.selection, self.loader = dict(selection or {}), cast(Any, None)
        self._scored: Any = None  # the model of the loader
        self._checkpoint: str | None = None  # from which the loader is still to be restored
        if self.args.auto_find_batch_size:
            raise ValueError("auto_find_batch_size cannot be used with selection: a loader has one batch size")
        if self.args.train_sampling_strategy != "random":
            raise ValueError(
                f"train_sampling_strategy={self.args.train_sampling_strategy!r} cannot be used with selection, which"
                " decides the order: leave it at 'random'"
            )

    def make_loader(self) -> DataLoader:
        """Return the loader of the training. Override it for a loader of your own."""
        args, plain = self.args, super().get_train_dataloader()  # the Trainer removes columns that the model ignores
        options = {
            "batch_size": args.train_batch_size,
            "collate_fn": plain.collate_fn,
            "num_workers": args.dataloader_num_workers,
            "drop_last": args.dataloader_drop_last,
            "seed": args.seed if args.data_seed is None else args.data_seed,
            "pin_memory": args.dataloader_pin_memory and args.device.type != "cpu",
        }
        if args.dataloader_num_workers:
            options["prefetch_factor"] = args.dataloader_prefetch_factor
        return DataLoader(plain.dataset, self.model, **{**options, **self.selection})

    def get_train_dataloader(self) -> DataLoader:
        if self._scored is not self.model:  # with model_init, every `train` makes a model
            self.loader, self._scored = self.make_loader(), self.model
            self.remove_callback(SaveLoader)
            self.add_callback(SaveLoader(self.loader))
        if self._checkpoint is not None:
            load_loader(self.loader, self._checkpoint)
            self._checkpoint = None
        return self.loader

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **named: Any) -> Any:
        folder = resume_from_checkpoint or None
        self._checkpoint = get_last_checkpoint(self.args.output_dir) if folder is True else folder
        # The Trainer would skip batches by building a plain DataLoader. The state of the loader holds its position.
        self.args.ignore_data_skip = True
        return super().train(resume_from_checkpoint, *arguments, **named)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Any) -> tuple[Any, Any]:
        """Return the batches of one step of the optimizer. The Trainer takes all of them before the first forward. A
        method that learns from the forwards would miss all but the last, so it gets them one by one."""
        count, loader = min(num_batches, self._left), self.loader  # less than asked for at the end of a resumed epoch
        self._left -= count
        if count == 1 or not (loader.candidates.needs_features or loader.strategy.needs_losses):
            return super().get_batch_samples(epoch_iterator, count, device)
        return _Group(epoch_iterator, count), None  # each batch has the same weight in the loss

    def _run_epoch(self, **arguments: Any) -> Any:
        """The Trainer also steps the optimizer at the last batch of an epoch. Tell it how many a resumed epoch has."""
        self._left = len(self.loader) - self.loader.step
        return super()._run_epoch(**{**arguments, "steps_in_epoch": self._left})


class _Group:
    """Batches that are taken from an iterator when they are needed."""

    def __init__(self, batches: Iterator[Any], count: int) -> None:
        self._batches, self._count = batches, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Any]:
        return islice(self._batches, self._count)


class SelectiveTrainer(SelectiveTrainerMixin, Trainer):
    """The Trainer on selected batches: `SelectiveTrainer(model=model, args=args, train_dataset=data)`."""


def load_loader(loader: DataLoader, checkpoint: str | Path) -> None:
    """Restore a loader from a checkpoint of the Trainer."""
    path = Path(checkpoint) / FILE
    if not path.exists():
        raise ValueError(
            f"{checkpoint} has no {FILE}: it was not saved by a SelectiveTrainer, or by a Trainer with"
            " smdl.integrations.transformers.SaveLoader. Selection cannot be resumed from it"
        )
    loader.load_state_dict(torch.load(path, weights_only=True))
