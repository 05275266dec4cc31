"""Compare crops and flips of whole batches with a loop over images: `python benchmarks/augment.py`

The two sides take turns. A turn is ten batches, or one: in a loop all images but the first find warm caches, while a
single call on a whole batch finds none.
"""

import argparse
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from smdl.training.datasets.augment import Augmentation
from timing import Report, Side, race, verdict

PADDING = 4
TARGET = 20
CASES = {"batch of 128": 128, "pool of 3 × 50": 150}
WHOLE = Augmentation(PADDING, flip=True)


def one_by_one(images: Tensor) -> Tensor:
    """Crop and flip one image after the other, as the transform of a data set does."""
    _, _, height, width = images.shape
    done = []
    for image in images:
        padded = F.pad(image, [PADDING] * 4)
        top, left = torch.randint(2 * PADDING + 1, (2,)).tolist()
        crop = padded[:, top : top + height, left : left + width]
        done.append(crop.flip(2) if torch.rand(()) < 0.5 else crop)
    return torch.stack(done)


def main(repeat: int) -> None:
    torch.set_num_threads(1)
    report = Report()
    report.table(
        "Crops and flips of 32 × 32 colour images, uint8, one thread",
        ("images", "batches/turn", "side", "CPU ms/batch", "wall ms/batch", "ratio", "target", "result", "turns"),
    )
    for case, count in CASES.items():
        images = torch.randint(256, (count, 3, 32, 32)).to(torch.uint8)
        for batches, turns in ((10, repeat), (1, 4 * repeat)):
            sides = [_side("whole batch", WHOLE, images, batches), _side("one by one", one_by_one, images, batches)]
            ours, theirs = race(sides, turns, budget=60).values()
            ratio = theirs.cpu / ours.cpu
            report.row(case, batches, "whole batch", ours.cpu / batches, ours.wall / batches, "1", "", "", ours.runs)
            times, result = (theirs.cpu / batches, theirs.wall / batches), verdict(ratio >= TARGET, f"{ratio:.1f}×")
            report.row(case, batches, "one by one", *times, f"{ratio:.1f}×", f"≥ {TARGET}×", result, theirs.runs)


def _side(name: str, augment: Callable[[Tensor], Tensor], images: Tensor, batches: int) -> Side:
    def turn(_: None) -> None:
        for _turn in range(batches):
            augment(images)

    return Side(name, turn)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=60, help="turns of ten batches")
    main(parser.parse_args().repeat)
