"""Train a small network on several ranks, with selection and with checkpoints within the epoch.

    torchrun --standalone --nproc-per-node 2 examples/ddp.py --out runs/ddp.pt

If a rank is lost, torchrun starts all ranks again, and they resume from the last checkpoint. The number of ranks may
differ then. The data is the 1 797 digits of scikit-learn.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset

import smdl

EPOCHS, BATCH, SAVE_EVERY = 4, 25, 10


def main(out: Path) -> None:
    dist.init_process_group("gloo")  # "nccl" with one GPU per rank
    torch.manual_seed(0)
    pixels, labels = (torch.from_numpy(array) for array in load_digits(return_X_y=True))
    train = TensorDataset(pixels[:1500].float() / 16, labels[:1500])
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loader = smdl.DataLoader(train, model, BATCH, seed=0)  # every rank gets its own samples

    parts = {"loader": loader, "network": network, "optimizer": optimizer}
    if out.exists():
        for name, state in torch.load(out, weights_only=True).items():
            parts[name].load_state_dict(state)

    steps = 0
    while loader.epoch < EPOCHS:
        for inputs, targets in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            steps += 1
            if steps % SAVE_EVERY == 0:
                save(out, {name: part.state_dict() for name, part in parts.items()})  # on every rank

    if dist.get_rank() == 0:
        with torch.no_grad():
            right = network(pixels[1500:].float() / 16).argmax(dim=1) == labels[1500:]
        accuracy = right.float().mean()
        print(f"{dist.get_world_size()} ranks, {len(loader)} steps per epoch, test accuracy {accuracy:.1%}")
    dist.destroy_process_group()


def save(out: Path, states: dict) -> None:
    """Write a checkpoint, on one rank; a half-written file never has its name."""
    if dist.get_rank() == 0:
        out.parent.mkdir(parents=True, exist_ok=True)
        torch.save(states, out.with_suffix(".partial"))
        out.with_suffix(".partial").replace(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/ddp.pt"))
    main(parser.parse_args().out)
