"""Train on the digits with Accelerate, and resume in the middle of an epoch.

    python examples/trainer_accelerate.py [--out runs/accelerate]
    torchrun --nproc-per-node 2 examples/trainer_accelerate.py

Prepare the model and the optimizer, not the loader: it divides its batches between processes itself.
Needs pip install "submodular-data-loader[accelerate,train]".
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl

EPOCHS = 3


def train(out: Path, resume: bool = False) -> tuple[nn.Module, smdl.DataLoader]:
    torch.manual_seed(0)
    pixels, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.from_numpy(np.asarray(pixels, np.float32) / 16), torch.from_numpy(np.asarray(labels)))
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    loader = smdl.DataLoader(data, net, batch_size=50)  # instead of torch's DataLoader
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    accelerator.register_for_checkpointing(loader)  # save_state would leave it out otherwise
    if resume:
        accelerator.load_state(str(out))
    while loader.epoch < EPOCHS:  # a resumed loader continues in its epoch
        for batch in loader:
            inputs, targets = (part.to(accelerator.device) for part in batch)
            accelerator.backward(F.cross_entropy(model(inputs), targets))
            optimizer.step()
            optimizer.zero_grad()
            if not resume and loader.epoch == 1 and loader.step == len(loader) // 2:
                accelerator.save_state(str(out))
    return net, loader


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/accelerate"))
    out = parser.parse_args().out
    net, loader = train(out)
    print(loader)
    resumed, _ = train(out, resume=True)
    same = all(torch.equal(*pair) for pair in zip(net.parameters(), resumed.parameters(), strict=True))
    print(f"resumed in the middle of epoch 2 of {EPOCHS}: {'the same' if same else 'other'} weights")


if __name__ == "__main__":
    main()
