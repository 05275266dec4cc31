"""A rank of a training run with two: `torchrun -m tests.integrations.two_ranks LIBRARY FOLDER [resume]`.

Each rank writes the samples of its steps and its final weights. The run saves a checkpoint after step 5 of 10.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

import smdl
from tests.integrations.runs import step_of
from tests.toys import Net, Tuples

STEPS_PER_EPOCH, EPOCHS, SAVED = 5, 2, 3


def data():
    return Tuples(40)


def run_lightning(folder, resume):
    import lightning
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.steps = Net(), []
            self.loader = smdl.DataLoader(data(), self.net, 4)

        def train_dataloader(self):
            return self.loader

        def training_step(self, batch, _):
            self.steps.append(step_of(self.loader).rows)
            return F.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.3)

    module = Module()
    saving = ModelCheckpoint(folder, filename="{step}", every_n_train_steps=SAVED, save_top_k=-1)
    settings = {"logger": False, "enable_progress_bar": False, "callbacks": [saving]}
    trainer = lightning.Trainer(max_epochs=EPOCHS, accelerator="cpu", devices=2, strategy="ddp", **settings)
    trainer.fit(module, ckpt_path=str(folder / f"step={SAVED}.ckpt") if resume else None)
    return module.steps, module.net


def run_accelerate(folder, resume):
    from accelerate import Accelerator

    accelerator, net, steps = Accelerator(cpu=True), Net(), []
    loader = smdl.DataLoader(data(), net, 4)
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.3))
    accelerator.register_for_checkpointing(loader)
    if resume:
        accelerator.load_state(str(folder / "saved"))
    while loader.epoch < EPOCHS:
        for inputs, targets in loader:
            accelerator.backward(F.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            steps.append(step_of(loader).rows)
            if len(steps) == SAVED and not resume:
                accelerator.save_state(str(folder / "saved"))
    return steps, net


def run_transformers(folder, resume):
    from transformers import Trainer, TrainingArguments, set_seed

    from smdl.integrations.transformers import SelectiveTrainerMixin
    from tests.integrations.test_transformers import bert, pad

    class Watched(SelectiveTrainerMixin, Trainer):
        steps = []  # noqa: RUF012

        def training_step(self, *arguments):
            self.steps.append(step_of(self.loader).rows)
            return super().training_step(*arguments)

    set_seed(0)
    rows = [{"input_ids": [row + 1, row % 7 + 1], "attention_mask": [1, 1], "label": row % 3} for row in range(40)]
    args = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=EPOCHS,
        save_steps=SAVED,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
    )
    trainer = Watched(model=bert(), args=args, train_dataset=rows, data_collator=pad)
    trainer.train(resume_from_checkpoint=str(folder / f"checkpoint-{SAVED}") if resume else None)
    return trainer.steps, trainer.model


if __name__ == "__main__":
    library, folder, *rest = sys.argv[1:]
    steps, net = globals()[f"run_{library}"](Path(folder), bool(rest))
    total = sum(
        float(weight.double().sum()) for weight in net.parameters()
    )  # statistics of BatchNorm are the rank's own
    name = f"{'resumed' if rest else 'whole'}-{os.environ['RANK']}.json"
    (Path(folder) / name).write_text(json.dumps({"steps": steps, "weights": float(total).hex()}))
