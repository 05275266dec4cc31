"""What a training run can be told: dataclasses, checked where the value enters.

The command line and the YAML files set these very fields; nothing else configures a run.
"""

import math
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from smdl.errors import choice, unknown

Config = TypeVar("Config")
OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "cosine", "linear", "step")


@dataclass
class DataConfig:
    """The data set and what is done to it."""

    name: str = "digits"
    """digits, fashion-mnist, cifar10, cifar100, svhn, folder (images by class) or package.module:factory"""
    root: str | None = None
    """folder of the files; else SMDL_DATA, else the cache of `smdl data get`"""
    train_size: int | None = None
    """this many training samples, stratified by class; all unless given"""
    test_size: int | None = None
    """this many test samples, stratified by class; all unless given"""
    validation: float = 0.0
    """fraction of the training samples held out as a validation set"""
    resolution: int | None = None
    """images resized to this many pixels a side"""
    augment: bool | None = None
    """random crops and flips; the data set's usual choice unless given"""
    label_noise: float = 0.0
    """fraction of the training labels replaced by another class"""
    imbalance: float = 1.0
    """how many times rarer the last class is than the first, training set only"""
    seed: int = 0
    """of the subset, the split, the noise and the imbalance: the same data for every run seed"""

    def __post_init__(self) -> None:
        for name in ("train_size", "test_size", "resolution"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(choice(f"data.{name}", value, "a whole number ≥ 1"))
        if not 0 <= self.validation < 1:
            raise ValueError(choice("data.validation", self.validation, "in [0, 1)"))
        if not 0 <= self.label_noise <= 1:
            raise ValueError(choice("data.label_noise", self.label_noise, "in [0, 1]"))
        if not (math.isfinite(self.imbalance) and self.imbalance >= 1):
            raise ValueError(choice("data.imbalance", self.imbalance, "a number ≥ 1"))
        _whole("data.seed", self.seed, 0)


@dataclass
class ModelConfig:
    """The network."""

    name: str = "resnet8"
    """resnet8, resnet20, resnet32, resnet56, mlp or package.module:factory"""
    width: float = 1.0
    """multiplies the number of channels (or of hidden units)"""
    batchnorm: bool = True
    """BatchNorm after every convolution; without it the residual branches start at zero"""

    def __post_init__(self) -> None:
        _positive("model.width", self.width)


@dataclass
class OptimizerConfig:
    """The optimizer of the weights."""

    name: str = "sgd"
    """sgd, adam or adamw"""
    lr: float = 0.1
    momentum: float = 0.9
    """of sgd"""
    nesterov: bool = False
    """of sgd"""
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        _known("optimizer.name", self.name, OPTIMIZERS)
        _positive("optimizer.lr", self.lr)
        if not 0 <= self.momentum < 1:
            raise ValueError(choice("optimizer.momentum", self.momentum, "in [0, 1)"))
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(choice("optimizer.weight_decay", self.weight_decay, "a number ≥ 0"))


@dataclass
class ScheduleConfig:
    """The learning rate over the run's steps."""

    name: str = "constant"
    """constant, step, cosine or linear (both to zero at the last step)"""
    warmup: float = 0.0
    """fraction of the steps over which the rate rises from zero"""
    milestones: list[float] = field(default_factory=lambda: [0.5, 0.75])
    """of step: fractions of the run at which the rate is multiplied by gamma"""
    gamma: float = 0.1
    """of step"""

    def __post_init__(self) -> None:
        _known("schedule.name", self.name, SCHEDULES)
        if not 0 <= self.warmup < 1:
            raise ValueError(choice("schedule.warmup", self.warmup, "in [0, 1)"))
        if not all(0 < milestone < 1 for milestone in self.milestones):
            raise ValueError(choice("schedule.milestones", self.milestones, "fractions of the run in (0, 1)"))
        _positive("schedule.gamma", self.gamma)


@dataclass
class ObjectiveConfig:
    """The score that strategy smdl maximises: a preset, or weights of its own."""

    preset: str | None = None
    """recommended, paper or paper_subset; recommended where no weight is given either"""
    uncertainty: float | None = None
    redundancy: float | None = None
    mean_closeness: float | None = None
    feature_match: float | None = None
    facility_location: float | None = None
    feature_coverage: float | None = None
    log_determinant: float | None = None
    class_balance: float | None = None
    distance: str | None = None
    """euclidean, cosine, correlation or gaussian"""
    sigma: float | None = None
    space: str | None = None
    """features or gradients"""
    normalize: str | None = None
    """pool or candidates"""
    concave: str | None = None
    """sqrt, log or ratio"""
    kernel: str | None = None
    """linear, cosine or gaussian"""
    noise: float | None = None
    neighbours: int | None = None

    def given(self) -> dict[str, Any]:
        """What was set, but for the preset."""
        return {name: value for name, value in asdict(self).items() if value is not None and name != "preset"}


@dataclass
class SelectionConfig:
    """Where candidates come from, and how the greedy looks for the best. What is not given follows the objective:
    `paper` is all of V every 5 steps by the partitioned stochastic greedy, anything else a random pool of 3 x."""

    pool_factor: float | None = None
    """select inside a fresh random pool of this many batches"""
    refresh_every: int | None = None
    """score all of V every so many steps and select among what the epoch has left"""
    replacement: bool = False
    """with refresh_every: a sample may come again within an epoch"""
    optimizer: str | None = None
    """auto, naive, lazy or stochastic"""
    partitions: int | None = None
    epsilon: float = 0.01
    size_penalty: float | None = None
    """with a batch size of [low, high]: stop, after low, once the best gain is below it"""
    reference_fraction: float = 0.5
    """of the training set, for the reference model of feature_match"""

    def __post_init__(self) -> None:
        if self.pool_factor is not None and self.refresh_every is not None:
            raise ValueError("give selection.pool_factor or selection.refresh_every, not both")
        for name in ("refresh_every", "partitions"):
            if getattr(self, name) is not None:
                _whole(f"selection.{name}", getattr(self, name), 1)
        if not 0 < self.reference_fraction <= 1:
            raise ValueError(choice("selection.reference_fraction", self.reference_fraction, "in (0, 1]"))


@dataclass
class LossRankConfig:
    """Strategy loss: how hard it is drawn to high losses."""

    pressure: float = 100.0
    """how many times likelier the highest loss is drawn than the lowest, in the first epoch"""
    pressure_end: float = 1.0
    """... at the end of the run; 1 is uniform"""
    sort_every: int = 100
    """samples drawn between two sortings"""
    recompute: bool = False
    """score all of V at every refresh (selection.refresh_every) instead of trusting old losses"""


@dataclass
class TrainConfig:
    """One training run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    strategy: str = "smdl"
    """uniform (SGD), loss (Loshchilov & Hutter), smdl, or package.module:Class"""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    loss_rank: LossRankConfig = field(default_factory=LossRankConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    loss: str = "CrossEntropyLoss"
    """any loss of torch.nn that takes (logits, class numbers)"""
    loss_options: dict[str, Any] = field(default_factory=dict)
    """its arguments, such as {label_smoothing: 0.1}"""
    batch_size: int | list[int] = 50
    """or [low, high] with selection.size_penalty"""
    epochs: int = 10
    steps: int | None = None
    """stop after so many steps instead of epochs; the schedule is decayed within them"""
    seed: int = 0
    """of the initial weights, the batches and the augmentation"""
    drop_last: bool = False
    num_workers: int = 0
    device: str = "auto"
    """cpu, cuda, mps; auto takes what is there"""
    threads: int | None = None
    """of the CPU; torch's choice unless given. 1 is best for tiny networks, and where several runs share a machine"""
    amp: bool = False
    """autocast to bfloat16"""
    train_evaluation: int = 2000
    """training samples whose loss and error are measured after every epoch, without augmentation"""

    def __post_init__(self) -> None:
        sizes = self.batch_size if isinstance(self.batch_size, list) else [self.batch_size]
        if len(sizes) > 2 or not all(isinstance(size, int) and size >= 1 for size in sizes) or sizes != sorted(sizes):
            raise ValueError(choice("batch_size", self.batch_size, "a whole number ≥ 1, or [low, high]"))
        if len(sizes) == 2 and self.steps is not None:
            raise ValueError("steps needs a batch_size that is one number: with [low, high] give epochs")
        for name, least in (("epochs", 1), ("seed", 0), ("num_workers", 0), ("train_evaluation", 0)):
            _whole(name, getattr(self, name), least)
        for name in ("steps", "threads"):
            if getattr(self, name) is not None:
                _whole(name, getattr(self, name), 1)


def _whole(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(choice(name, value, f"a whole number ≥ {least}"))


def _positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(choice(name, value, "a positive number"))


def _known(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(unknown(name, value, allowed))


def to_dict(config: Any) -> dict[str, Any]:
    """Plain values, as a YAML file holds them."""
    return asdict(config)


def from_dict(kind: type[Config], values: dict[str, Any], path: str = "") -> Config:
    """The config that `to_dict` gave these values; unknown names are errors that say which was meant."""
    if not isinstance(values, dict):
        raise ValueError(choice(path or "a config", values, "a mapping of names to values"))
    known = {member.name: member.type for member in fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ValueError(unknown("option", path + str(name), [path + other for other in known]))
    nested = {
        name: from_dict(inner, values[name], f"{path}{name}.")
        for name, inner in known.items()
        if isinstance(inner, type) and is_dataclass(inner) and name in values
    }
    return kind(**{**values, **nested})
