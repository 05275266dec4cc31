"""Lightning: nothing to subclass. Its own checkpoints hold the loader, also in the middle of an epoch."""

import copy
import warnings
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import smdl
from tests.integrations.runs import OURS_ARE_ERRORS, WAYS, check_staleness, same_weights, step_of
from tests.toys import Net, Tuples

pytestmark = [pytest.mark.integrations, OURS_ARE_ERRORS]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.callbacks import ModelCheckpoint


class Module(lightning.LightningModule):
    def __init__(self, options, remade=False):
        super().__init__()
        self.net, self.options, self.remade = Net(), options, remade
        self.loader: Any = None
        self.steps, self.epochs = list[Any](), []

    def train_dataloader(self) -> Any:
        if self.loader is None or self.remade:
            self.loader = smdl.DataLoader(Tuples(27), self.net, 4, seed=3, **self.options)
        return self.loader

    def training_step(self, batch, index):  # noqa: ARG002
        self.steps.append(step_of(self.loader))
        inputs, targets = batch
        return F.cross_entropy(self.net(inputs), targets)

    def on_train_epoch_start(self):
        self.epochs.append(self.loader.epoch)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.3, momentum=0.9)


def trainer_of(folder, accumulation=1, **settings):
    return lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        accumulate_grad_batches=accumulation,
        callbacks=[ModelCheckpoint(folder, filename="{step}", every_n_train_steps=3, save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


def fit(options, folder, accumulation=1, resume=None, remade=False, **settings):
    module = Module(options, remade)
    trainer_of(folder, accumulation, **settings).fit(module, ckpt_path=resume)
    return module


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("way", WAYS)
def test_every_checkpoint_resumes_to_the_same_weights(way, accumulation, tmp_path):
    options, _ = WAYS[way]
    whole = fit(options, tmp_path / "whole", accumulation)
    assert len(whole.steps) == 21
    for number, trained in {1: {3: 3, 6: 6}, 2: {3: 6, 6: 11}}[accumulation].items():
        checkpoint = tmp_path / "whole" / f"step={number}.ckpt"
        part = fit(options, tmp_path / "part", accumulation, str(checkpoint))
        assert part.steps == whole.steps[trained:]
        assert same_weights(part.net, whole.net)


@pytest.mark.parametrize("accumulation", [1, 2])
@pytest.mark.parametrize("way", ["fresh", "fresh with workers", "observed", "observed with workers"])
def test_batches_are_chosen_with_the_weights_that_train_on_them(way, accumulation, tmp_path):
    options, lag = WAYS[way]
    check_staleness(fit(options, tmp_path, accumulation).steps, 7, lag)


def test_reloading_the_same_loader_gives_the_next_epoch(tmp_path):
    module = fit({"method": "observed"}, tmp_path, reload_dataloaders_every_n_epochs=1)
    assert module.epochs == [0, 1, 2]
    assert module.loader.state_dict()["candidates"]["observations"] == 21


def test_reloading_a_new_loader_says_that_the_epoch_starts_again(tmp_path):
    with pytest.warns(UserWarning, match="reload_dataloaders_every_n_epochs of Lightning, return the same loader"):
        module = fit({}, tmp_path, remade=True, reload_dataloaders_every_n_epochs=1)
    assert module.epochs == [0, 0, 0]


def test_a_loader_with_a_copy_of_the_network_is_noticed(tmp_path):
    class Copied(Module):
        def train_dataloader(self):
            self.loader = smdl.DataLoader(Tuples(27), copy.deepcopy(self.net), 4, method="fresh")
            return self.loader

    with pytest.warns(UserWarning, match="is this the model in training"):
        trainer_of(tmp_path).fit(Copied({}))


def test_a_sanity_check_and_validation_change_no_batch(tmp_path):
    class Validated(Module):
        def val_dataloader(self):
            return torch.utils.data.DataLoader(Tuples(9, seed=1), batch_size=3)

        def validation_step(self, batch, _):
            self.net(batch[0])

    plain, validated = fit({}, tmp_path / "plain"), Validated({})
    trainer_of(tmp_path / "validated").fit(validated)
    assert validated.steps == plain.steps


def test_a_stream_without_a_length_is_fetched_one_batch_ahead():
    """What docs/trainers.md warns of: the loader cannot know that the batch it yields is trained on a step later."""

    class Stream:
        def __iter__(self):
            return iter(torch.utils.data.DataLoader(Tuples(36), batch_size=4))

    class Streamed(Module):
        def train_dataloader(self):
            self.loader = smdl.SelectiveLoader(Stream(), self.net)
            return self.loader

        def training_step(self, batch, index):
            self.steps.append((index, self.loader.step))
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def on_train_epoch_start(self):
            pass

    module = Streamed({})
    settings = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    lightning.Trainer(max_epochs=1, accelerator="cpu", **settings).fit(module)
    assert module.steps[:2] == [(0, 2), (1, 3)]
