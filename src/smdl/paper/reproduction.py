"""The paper's tables and figures as experiments. Its own numbers are in published.py."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from smdl.common.messages import choice, unknown
from smdl.common.progress import Display
from smdl.common.storage import read_json, write_json
from smdl.experiments.arms import Overrides, overrides_of, with_overrides
from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.experiments.experiment import run_plan
from smdl.paper import published
from smdl.paper.ablation import ablate
from smdl.paper.sweeps import ITEMS_FILE, SCALES
from smdl.training.config import TrainConfig, to_dict
from smdl.training.datasets.catalogue import find, search
from smdl.training.datasets.problems import DataError

_PAPER: Overrides = {"schedule": {"name": "constant"}, "optimizer": {"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4}}
_SMALL: Overrides = {
    **_PAPER,
    "model": {"name": "resnet8"},
    "data": {"train_size": 5000, "test_size": 2000, "resolution": 16},
    "epochs": 12,
    "threads": 1,
}
_SUBSET: Overrides = {**_SMALL, "data": {"train_size": 2000, "test_size": 2000, "resolution": 16}, "epochs": 8}
_SMOKE: Overrides = {
    **_PAPER,
    "model": {"name": "resnet8", "width": 0.5},
    "data": {"name": "digits", "train_size": 600},
    "epochs": 2,
    "threads": 1,
}
_DIGITS = "Stand-in: 600 digits and a ResNet-8 of half width, 2 epochs"
_FULL: Overrides = {**_PAPER, "epochs": 100}


@dataclass(frozen=True)
class Setting:
    """A data set and a network of an item at a scale."""

    key: str  # the data set's name in published.py
    overrides: Overrides
    caption: str


def main_settings(scale: str) -> list[Setting]:
    """Return the data sets of table 1, or the stand-ins for them."""
    if scale == "smoke":
        return [Setting("cifar10", _SMOKE, f"{_DIGITS}, for CIFAR-10 and ResNet-20.")]
    if scale == "small":
        how = "5,000 images at 16 × 16, ResNet-8, 12 epochs; in the paper 50,000 at 32 × 32, ResNet-20, 100 epochs."
        return [
            Setting("cifar10", _with(_SMALL, "cifar10"), f"CIFAR-10, scaled down: {how}"),
            Setting("svhn", _with(_SMALL, "fashion-mnist"), f"Stand-in: Fashion-MNIST for SVHN. Scaled down: {how}"),
        ]
    resnets = {"svhn": "resnet20", "cifar10": "resnet20", "cifar100": "resnet32"}
    return [
        Setting(name, {**_with(_FULL, name), "model": {"name": net}}, f"{name}, {net}: the paper's setting.")
        for name, net in resnets.items()
    ]


def ablation_setting(scale: str, sweep: str = "", root: str | None = None) -> Setting:
    """Return the data set of an ablation: SVHN in the paper, a subset of it for the weights. At scale small it is a
    subset of SVHN if its files are found, else of CIFAR-10."""
    if scale == "smoke":
        return Setting("svhn", _SMOKE, f"{_DIGITS}, for SVHN and ResNet-20.")
    if scale == "small":
        how = "2,000 images at 16 × 16, ResNet-8, 8 epochs; in the paper ResNet-20"
        if search("svhn", root) is not None:
            return Setting("svhn", _with(_SUBSET, "svhn"), f"SVHN, scaled down: {how}.")
        return Setting("svhn", _with(_SUBSET, "cifar10"), f"Stand-in: CIFAR-10 for SVHN, {how}.")
    full = {**_with(_FULL, "svhn"), "model": {"name": "resnet20"}}
    if sweep == "weights":
        few = {**full, "data": {**full["data"], "train_size": 10_000}}
        return Setting("svhn", few, "10,000 samples of SVHN, ResNet-20; the paper says only: a small subset.")
    return Setting("svhn", full, "SVHN, ResNet-20, as in the paper.")


def _with(overrides: Overrides, name: str) -> Overrides:
    return {**overrides, "data": {**overrides.get("data", {}), "name": name}}


@dataclass(frozen=True)
class Context:
    """Where and how an item is trained."""

    folder: Path
    scale: str
    seeds: int
    jobs: int
    root: str | None
    display: Display | None

    def base(self, setting: Setting) -> TrainConfig:
        config = with_overrides(TrainConfig(batch_size=50), setting.overrides)
        if self.root is not None:
            config.data.root = self.root
        return config

    @property
    def store(self) -> Path:
        """The folder of the runs, shared by all items: the same configuration is trained once."""
        return self.folder / "runs"


def table_1(context: Context) -> list[Path]:
    """Train loss-based, SGD and SMDL batches as in table 1, and those of `observed`."""
    return [_main(context, setting) for setting in main_settings(context.scale)]


def _main(context: Context, setting: Setting) -> Path:
    """Train at equal steps, as in the paper, and at equal time."""
    arms = {name: overrides_of(name) for name in ("uniform", "loss", "paper", "observed")}
    base = context.base(setting)
    plan = ComparisonPlan(
        f"{base.data.name}, as in the paper's table 1",
        to_dict(base),
        arms,
        seeds=context.seeds,
        caption=setting.caption,
        paper=published.main(setting.key),
    )
    out = context.folder / f"main-{base.data.name}"
    return run_plan(plan, out, store=context.store, jobs=context.jobs, display=context.display).folder


def _sweeps(*names: str) -> Callable[[Context], list[Path]]:
    return lambda context: [_ablation(context, name) for name in names]


def _ablation(context: Context, sweep: str) -> Path:
    setting = ablation_setting(context.scale, sweep, context.root)
    return ablate(
        sweep,
        context.base(setting),
        context.folder / f"ablation-{sweep}",
        seeds=context.seeds,
        store=context.store,
        jobs=context.jobs,
        caption=setting.caption,
        paper=published.ablation(sweep),
        display=context.display,
    )


_FOUR = ("distance", "learning-rate", "batch-size", "refresh")

ITEMS: dict[str, Callable[[Context], list[Path]]] = {
    "table-1": table_1,
    "table-2": _sweeps("weights"),
    "figure-accuracy": table_1,
    "figure-ablation": _sweeps(*_FOUR),
    "table-time": table_1,
    "figure-terms": _sweeps("terms"),
    "figure-train": table_1,
    "figure-test-loss": _sweeps(*_FOUR),
}
_SEEDS = {"smoke": 2, "small": 3, "paper": 5}


def reproduce(
    item: str,
    scale: str,
    out: Path,
    *,
    seeds: int | None = None,
    jobs: int = 1,
    root: str | None = None,
    display: Display | None = None,
) -> list[Path]:
    """Run an item of the paper and note its experiments in items.json. Return their folders."""
    check([item], scale, root)
    if seeds is not None and seeds < 1:
        raise ValueError(choice("seeds", seeds, "a whole number ≥ 1"))
    out.mkdir(parents=True, exist_ok=True)
    folders = ITEMS[item](Context(out, scale, seeds or _SEEDS[scale], jobs, root, display))
    write_json(out / ITEMS_FILE, {**(read_json(out / ITEMS_FILE) or {}), item: [folder.name for folder in folders]})
    return folders


def check(items: list[str], scale: str, root: str | None = None) -> None:
    """Report everything that is wrong or missing at once, before anything is trained."""
    if scale not in SCALES:
        raise ValueError(unknown("scale", scale, SCALES))
    for item in items:
        if item not in ITEMS:
            raise ValueError(unknown("item", item, (*ITEMS, "all")))
    settings = main_settings(scale) if any(ITEMS[item] is table_1 for item in items) else []
    if any(ITEMS[item] is not table_1 for item in items):
        settings.append(ablation_setting(scale, root=root))
    wanted = {with_overrides(TrainConfig(), setting.overrides).data.name for setting in settings}
    missing = []
    for name in sorted(wanted - {"digits"}):
        try:
            find(name, root)
        except DataError:
            missing.append(name)
    if missing:
        gets = "; ".join(f"smdl data get {name}" for name in missing)
        raise DataError(f"scale {scale} needs {', '.join(missing)}: {gets}, or --data.root where the files are")
