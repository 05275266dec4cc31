"""How much is there to gain? Perfect knowledge beside every method, on the settings of docs/results.md.

python benchmarks/oracle.py cifar10 --data ../shared/data --out runs/oracle-cifar10 --seeds 3
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

from smdl.common.progress import Display
from smdl.experiments.experiment import run_plan
from smdl.experiments.regimes import comparison
from smdl.experiments.results import collect, write
from smdl.report.text_tables import markdown
from smdl.training.config import DataConfig, ModelConfig, OptimizerConfig, ScheduleConfig, TrainConfig, to_dict
from smdl.training.datasets.in_memory import InMemory, mean_and_std

#: Data, network and length of the runs of each setting.
SETTINGS = {
    "cifar10": {"data": {"train_size": 8000, "test_size": 2000, "resolution": 16}, "steps": 800},
    "svhn": {"data": {"resolution": 16}, "steps": 800},
    "digits": {"data": {}, "steps": 300},
    "fashion-mnist": {"data": {"train_size": 8000, "test_size": 2000, "resolution": 16}, "steps": 500},
    "mnist": {"data": {"train_size": 8000, "test_size": 2000, "resolution": 16}, "steps": 300},
    "gtsrb": {"data": {"name": "oracle:gtsrb"}, "steps": 800},
}


def gtsrb(config: DataConfig) -> tuple[InMemory, InMemory]:
    """Read German traffic signs from gtsrb.npz in the folder `config.root`: 43 classes of very different sizes, in
    tracks of 30 frames that are nearly copies of each other."""
    if config.root is None:
        raise ValueError("gtsrb needs --data, the folder that holds gtsrb.npz")
    with np.load(Path(config.root) / "gtsrb.npz") as file:
        parts = [(file[f"{part}_images"], file[f"{part}_labels"]) for part in ("train", "test")]
    made = []
    for images, labels in parts:
        channels_first = torch.from_numpy(images).permute(0, 3, 1, 2).float()
        small = F.interpolate(channels_first, (16, 16), mode="bilinear", antialias=True).round().byte()
        made.append(InMemory(small, torch.from_numpy(labels)))
    mean, std = mean_and_std(made[0].images)
    for part in made:
        part.mean, part.std = mean, std
    return made[0], made[1]


class Lines(Display):
    """Shows notes and finished runs only."""

    def note(self, text: str) -> None:
        print(text, flush=True)


def main() -> None:
    """Train what is not trained yet, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setting", choices=SETTINGS)
    parser.add_argument("--data", help="folder of the data sets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first_seed", type=int, default=0, help="leaves out the seeds before it, those of a pilot")
    parser.add_argument("--steps", type=int, help="of each run, instead of the setting's own number")
    parser.add_argument("--protocols", default="steps", help="steps, time or both")
    parser.add_argument("--margin", type=float, help="of equivalence, in points of accuracy, instead of 0.5")
    parser.add_argument("--methods", default="uniform,balanced,recommended,uniform+refit")
    parser.add_argument("--regimes", default="long-tail,hidden-tail,noisy")
    options = parser.parse_args()
    chosen = SETTINGS[options.setting]
    base = TrainConfig(
        data=DataConfig(**{"name": options.setting, "root": options.data, **chosen["data"]}),
        model=ModelConfig("resnet8"),
        optimizer=OptimizerConfig(lr=0.1),
        schedule=ScheduleConfig("cosine"),
        steps=options.steps or chosen["steps"],
        threads=1,
        train_evaluation=0,
    )
    plan = comparison(
        f"{options.setting}: how much is there to gain?",
        to_dict(base),
        options.methods.split(","),
        options.regimes.split(","),
        oracle=True,
        seeds=options.seeds,
        first_seed=options.first_seed,
        protocols=options.protocols.split(","),
        timed="time" in options.protocols,
        margin=options.margin,
    )
    folder = run_plan(plan, options.out, display=Lines()).folder
    results = collect(folder)
    write(folder, results)
    print(markdown(results))


if __name__ == "__main__":
    main()
