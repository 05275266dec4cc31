"""The configuration of a training run: dataclasses whose values are checked when they are made.

The command line and the YAML files set exactly these fields; nothing else configures a run.
"""

import math
import os
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, TypeVar, get_args

from smdl.common.messages import choice, number, one_of, positive, unknown, whole_number
from smdl.common.names import Balance

Config = TypeVar("Config")
#: More threads than this are a mistake, and can crash the process.
MOST_THREADS = 16 * (os.cpu_count() or 1)
OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("constant", "cosine", "linear", "step")
HUMAN_LABELS = ("aggre_label", "random_label1", "random_label2", "random_label3", "worse_label")
BALANCES = get_args(Balance)


@dataclass
class DataConfig:
    """The data set and what is done to it."""

    name: str = "digits"
    """digits, mnist, fashion-mnist, cifar10, cifar100, svhn, folder (images by class) or package.module:factory"""
    root: str | None = None
    """folder of the files; by default SMDL_DATA or that of smdl data get"""
    train_size: int | None = None
    """number of training samples, stratified by class; all by default"""
    test_size: int | None = None
    """number of test samples, stratified by class; all by default"""
    validation: float = 0.0
    """fraction of the training samples held out as a validation set"""
    resolution: int | None = None
    """resize images to this many pixels per side"""
    augment: bool | None = None
    """random crops and flips; by default the usual choice for the data set"""
    label_noise: float = 0.0
    """fraction of the training labels replaced by another class"""
    imbalance: float = 1.0
    """ratio of the size of the first class to that of the last, training set only"""
    hidden_imbalance: float = 1.0
    """above 1: merge classes 0 and 1, 2 and 3, … and make the second of each pair this many times rarer than the first,
    training set only; the merged classes have equal sizes"""
    duplicates: float = 0.0
    """fraction of the training samples replaced by near-copies of the others, in the same class"""
    zipf_duplicates: float = 0.0
    """fraction of the training samples replaced by near-copies of a few others, in the same class: the sample of rank r
    has a share of the copies proportional to 1 / r"""
    dominoes: float = 0.0
    """above 0: put a second image below each one. In this fraction of the training samples it is of the same class; in
    the others, and in the test set, it is of a random class. The label is that of the upper image"""
    human_labels: str | None = None
    """for cifar10: labels of the training set by people, from cifar-10n.npz (CIFAR-10N): aggre_label (0.09 wrong),
    random_label1, random_label2, random_label3 (0.17 to 0.18) or worse_label (0.40)"""
    seed: int = 0
    """seeds the subset, the split, the imbalance, the copies and the noise: every run seed gets the same data"""

    def __post_init__(self) -> None:
        for name in ("train_size", "test_size", "resolution"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(choice(f"data.{name}", value, "a whole number ≥ 1"))
        if not 0 <= self.label_noise <= 1:
            raise ValueError(choice("data.label_noise", self.label_noise, "in [0, 1]"))
        for name in ("imbalance", "hidden_imbalance"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 1):
                raise ValueError(choice(f"data.{name}", value, "a number ≥ 1"))
        if self.imbalance > 1 and self.hidden_imbalance > 1:
            raise ValueError(
                "data.imbalance and data.hidden_imbalance cannot be combined: the second makes classes of equal sizes,"
                f" got {self.imbalance:g} and {self.hidden_imbalance:g}"
            )
        for name in ("validation", "duplicates", "zipf_duplicates", "dominoes"):
            _check_part(f"data.{name}", getattr(self, name))
        if self.duplicates and self.zipf_duplicates:
            raise ValueError("data.duplicates and data.zipf_duplicates cannot be combined: set one of them to 0")
        if self.human_labels is not None:
            one_of("data.human_labels", self.human_labels, HUMAN_LABELS)
            if self.name != "cifar10" or self.hidden_imbalance > 1:
                raise ValueError("data.human_labels exist for data.name cifar10, and not with data.hidden_imbalance")
        whole_number("data.seed", self.seed, 0)


@dataclass
class ModelConfig:
    """The network."""

    name: str = "resnet8"
    """resnet8, resnet20, resnet32, resnet56, mlp or package.module:factory"""
    width: float = 1.0
    """factor of the number of channels (or of hidden units)"""
    batchnorm: bool = True
    """BatchNorm after every convolution; without it the residual branches start at zero"""

    def __post_init__(self) -> None:
        positive("model.width", self.width)


@dataclass
class OptimizerConfig:
    """The optimizer of the weights."""

    name: str = "sgd"
    """sgd, adam or adamw"""
    lr: float = 0.1
    momentum: float = 0.9
    """for sgd"""
    nesterov: bool = False
    """for sgd"""
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        one_of("optimizer.name", self.name, OPTIMIZERS)
        positive("optimizer.lr", self.lr)
        _check_part("optimizer.momentum", self.momentum)
        number("optimizer.weight_decay", self.weight_decay, "a number ≥ 0", low=0.0)


@dataclass
class ScheduleConfig:
    """The learning rate over the run's steps."""

    name: str = "constant"
    """constant, step, cosine or linear (both to zero at the last step)"""
    warmup: float = 0.0
    """fraction of the steps over which the rate rises from zero"""
    milestones: list[float] = field(default_factory=lambda: [0.5, 0.75])
    """for step: fractions of the run at which the rate is multiplied by gamma"""
    gamma: float = 0.1
    """for step"""

    def __post_init__(self) -> None:
        one_of("schedule.name", self.name, SCHEDULES)
        _check_part("schedule.warmup", self.warmup)
        if not all(0 < milestone < 1 for milestone in self.milestones):
            raise ValueError(choice("schedule.milestones", self.milestones, "fractions of the run in (0, 1)"))
        positive("schedule.gamma", self.gamma)


@dataclass
class TrainConfig:
    """One training run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    method: str | None = None
    """recommended (default), observed (with an objective), uniform (SGD), balanced, progressive, weighted, loss,
    infobatch, evolved_sampling, importance, divbs, rho_loss, selective_backprop, paper, paper_subset, paper_distance,
    paper_released, fresh, oracle, or package.module:name"""
    objective: str | dict[str, Any] = field(default_factory=dict)
    """a preset or a term; or weights of terms, which make a new objective, and options, such as distance, which alone
    change the method's own"""
    options: dict[str, Any] = field(default_factory=dict)
    """changes options of the method's strategy, such as pressure for loss or partitions for paper"""
    candidates: dict[str, Any] = field(default_factory=dict)
    """changes the method's candidates: `kind` (observed, random_pool, full or package.module:Class) and its
    options (factor, lag, start, rescore, …; factor; every, replacement)"""
    reference_fraction: float = 0.5
    """part of the training set on which the reference model of feature_match is trained"""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    loss: str = "CrossEntropyLoss"
    """any loss of torch.nn that takes (logits, class numbers)"""
    loss_options: dict[str, Any] = field(default_factory=dict)
    """its arguments, such as {label_smoothing: 0.1}"""
    refit: str | None = None
    """fit the last layer again after the last epoch, see smdl.refit_head: classes, errors or none say how samples are
    weighted; by default the last layer stays as it is"""
    batch_size: int = 50
    epochs: int = 10
    steps: int | None = None
    """stop after this many steps instead of epochs; the schedule decays within them"""
    seed: int = 0
    """seeds the initial weights, batches and augmentation"""
    drop_last: bool = False
    num_workers: int = 0
    device: str = "auto"
    """cpu, cuda or mps; auto takes the best one available"""
    threads: int | None = None
    """CPU threads; torch's choice by default. 1 is best for tiny networks and if several runs share a machine"""
    amp: bool = False
    """autocast to bfloat16"""
    train_evaluation: int = 2000
    """number of training samples whose loss and error are measured after every epoch, without augmentation"""
    recalibrate_batchnorm: bool = False
    """evaluate with BatchNorm statistics of uniform batches of the training set, instead of those of the batches that
    the method chose"""

    @property
    def method_name(self) -> str:
        """The method, by the rule of `smdl.DataLoader` if none is named."""
        if self.method is not None:
            return self.method
        return "observed" if self.objective or self.candidates else "recommended"

    def __post_init__(self) -> None:
        if isinstance(self.objective, dict):
            self.objective = {name: value for name, value in self.objective.items() if value is not None}
        for name, least in (("batch_size", 1), ("epochs", 1), ("seed", 0), ("num_workers", 0), ("train_evaluation", 0)):
            whole_number(name, getattr(self, name), least)
        for name in ("steps", "threads"):
            if getattr(self, name) is not None:
                whole_number(name, getattr(self, name))
        if (self.threads or 0) > MOST_THREADS:
            raise ValueError(choice("threads", self.threads, f"at most {MOST_THREADS}, 16 per core"))
        if self.refit is not None:
            one_of("refit", self.refit, BALANCES)
        if not 0 < self.reference_fraction <= 1:
            raise ValueError(choice("reference_fraction", self.reference_fraction, "in (0, 1]"))


def _check_part(name: str, value: float) -> None:
    if not 0 <= value < 1:
        raise ValueError(choice(name, value, "in [0, 1)"))


def to_dict(config: Any) -> dict[str, Any]:
    """Return plain values, as a YAML file holds them."""
    return asdict(config)


def from_dict(kind: type[Config], values: dict[str, Any], path: str = "") -> Config:
    """Return the config that `to_dict` turned into these values; an unknown name is an error with a suggestion."""
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
