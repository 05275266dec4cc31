"""Train on the digits with Lightning, and resume in the middle of an epoch.

    python examples/trainer_lightning.py [--out runs/lightning]

There is nothing to subclass: Lightning saves the loader with its own checkpoints.
Needs pip install "submodular-data-loader[lightning,train]".
"""

import argparse
from pathlib import Path

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl


class Digits(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def training_step(self, batch, _):
        inputs, targets = batch
        return F.cross_entropy(self.net(inputs), targets)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


def fit(out: Path, resume: str | None = None) -> tuple[Digits, smdl.DataLoader]:
    lightning.seed_everything(0, verbose=False)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.from_numpy(np.asarray(pixels, np.float32) / 16), torch.from_numpy(np.asarray(labels)))
    module = Digits()
    loader = smdl.DataLoader(data, module.net, batch_size=50, num_workers=2)  # instead of torch's DataLoader
    checkpoints = ModelCheckpoint(out, filename="{step}", every_n_train_steps=50, save_top_k=-1)
    settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", callbacks=[checkpoints], **settings)
    trainer.fit(module, loader, ckpt_path=resume)
    return module, loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/lightning"))
    out = parser.parse_args().out
    module, loader = fit(out)
    print(loader)
    print(f"{loader.forwards} samples forwarded for scoring, batches chosen {loader.staleness} steps ahead")
    resumed, _ = fit(out, str(out / "step=50.ckpt"))  # in the middle of the second epoch
    same = all(torch.equal(*pair) for pair in zip(module.parameters(), resumed.parameters(), strict=True))
    print(f"resumed from step 50 of {3 * len(loader)}: {'the same' if same else 'other'} weights")


if __name__ == "__main__":
    main()
