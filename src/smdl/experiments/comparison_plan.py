"""The plan of an experiment: what is compared, and which runs that needs. plan.yaml holds it."""

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import yaml

from smdl.common.messages import choice, unknown
from smdl.common.storage import write_bytes

PROTOCOLS = ("steps", "time")
#: The row of a comparison by regimes that is drawn by what each regime hides.
ORACLE = "oracle"
Record = TypeVar("Record")


class FolderError(ValueError):
    """The folder holds no experiment and no run, or its files are damaged."""


@dataclass(frozen=True)
class PlannedRun:
    """One training run of an experiment. Its folder is relative to the experiment's folder."""

    arm: str
    protocol: str
    seed: int
    steps: int
    folder: str


@dataclass
class ComparisonPlan:
    """What is compared. The primary endpoint is fixed before any run: final test accuracy at equal time, or the metric
    of a training function of the user."""

    title: str
    base: dict[str, Any]  # the values of a TrainConfig, or what describes a training function of the user
    arms: dict[str, dict[str, Any]]  # what each arm changes in the base
    baseline: str = "uniform"
    against: dict[str, str] = field(default_factory=dict)  # arm -> its own baseline, where they differ
    shares: dict[str, float] = field(default_factory=dict)  # arm -> its share of the baseline's time, where it is not 1
    methods: list[str] = field(default_factory=list)  # rows and columns of the matrix of methods and regimes
    regimes: list[str] = field(default_factory=list)
    endpoints: dict[str, str] = field(default_factory=dict)  # arm -> what is tested, where it is not final accuracy
    seeds: int = 5
    first_seed: int = 0  # above 0, the seeds of a pilot are left out
    protocols: list[str] = field(default_factory=lambda: list(PROTOCOLS))
    timed: bool = True
    minutes: float | None = None  # train as many seeds and steps as fit into this time
    keep_steps: bool = False  # the minutes decide only the number of seeds
    decided: bool = False  # seeds and steps were already derived from the minutes
    planned_steps: int | None = None  # the baseline's, where the minutes made the runs shorter
    metric: str = ""  # what a training function of the user returns and is compared; empty: final test accuracy
    higher_is_better: bool = True
    margin: float | None = None  # of equivalence; None: 0.5 points of accuracy, or 0.5 % of a metric of the user
    tune_learning_rate: bool = False  # of each arm, on a validation split, before the runs
    learning_rates: dict[str, dict[str, Any]] = field(default_factory=dict)  # arm -> what that found
    looks: list[int] = field(default_factory=list)  # numbers of seeds at which the results may end the experiment
    earlier_seeds: list[int] = field(default_factory=list)  # numbers of seeds of earlier commands, where they differ
    caption: str = ""
    paper: dict[str, Any] | None = None  # the paper's numbers: columns, rows, note
    command: str = ""  # the command that last trained it
    runs: list[PlannedRun] = field(default_factory=list)  # known once the calibration is

    def __post_init__(self) -> None:
        if len(self.arms) < 2:
            raise ValueError(f"a comparison needs two arms or more, got {', '.join(self.arms) or 'none'}")
        for name in (self.baseline, *self.against, *self.against.values()):
            if name not in self.arms:
                raise ValueError(unknown("baseline", name, self.arms))
        if not self.protocols:
            raise ValueError(f"a comparison needs a protocol: {' or '.join(PROTOCOLS)}")
        if self.minutes is not None and not self.minutes > 0:
            raise ValueError(choice("minutes", self.minutes, "a positive number"))
        for protocol in self.protocols:
            if protocol not in PROTOCOLS:
                raise ValueError(unknown("protocol", protocol, PROTOCOLS))
        if "time" in self.protocols and not self.timed:
            raise ValueError("a comparison at equal time has to be timed")
        if self.seeds < 1:
            raise ValueError(choice("seeds", self.seeds, "a whole number ≥ 1, or auto"))
        if self.first_seed < 0:
            raise ValueError(choice("first_seed", self.first_seed, "a whole number ≥ 0"))

    @property
    def primary(self) -> str:
        """The protocol of the primary endpoint."""
        return "time" if "time" in self.protocols else self.protocols[0]

    def endpoint_of(self, arm: str) -> str:
        """Return the quantity of an arm's runs that is tested."""
        return self.metric or self.endpoints.get(arm, "final_accuracy")

    @property
    def looks_allowed(self) -> int:
        """The number of looks that intervals and tests allow for."""
        return max(1, len(self.looks))

    def is_oracle(self, arm: str) -> bool:
        """Whether an arm draws by what its regime hides: it shows what there is to gain and is no candidate."""
        return self.arms.get(arm, {}).get("method") == ORACLE

    @property
    def rivals(self) -> dict[str, str]:
        """Arm -> the arm it is tested against."""
        return self.against or {arm: self.baseline for arm in self.arms if arm != self.baseline}

    def own_baseline(self, arm: str) -> str:
        """Return the arm that an arm is tested against; the arm itself if it is a baseline."""
        return self.rivals.get(arm, arm)

    def fits(self, calibration: Any) -> bool:
        """Whether a calibration has the arms of this plan."""
        return all(self.knows(calibration, arm) for arm in self.arms)

    def knows(self, calibration: Any, arm: str) -> bool:
        """Whether a calibration has an arm, complete."""
        needed = {"steps_per_epoch", *(("seconds_per_step", "parts", "forwards_per_step") if self.timed else ())}
        cost = calibration.get(arm) if isinstance(calibration, dict) else None
        return isinstance(cost, dict) and needed <= set(cost)


def write_plan(folder: Path, plan: ComparisonPlan) -> None:
    """Write plan.yaml."""
    write_bytes(folder / "plan.yaml", yaml.safe_dump(asdict(plan), sort_keys=False, allow_unicode=True).encode())


def read_plan(folder: Path) -> ComparisonPlan:
    """Read plan.yaml. Names that this version does not know are ignored."""
    path = folder / "plan.yaml"
    try:
        values = yaml.safe_load(path.read_text())
        runs = [_record(PlannedRun, run) for run in values.get("runs", ())]
        plan = _record(ComparisonPlan, {**values, "runs": runs})
    except FileNotFoundError:
        raise FolderError(f"{folder} holds no experiment: it has no plan.yaml") from None
    except (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise FolderError(f"{path} is damaged: {error}") from error
    return plan


def _record(kind: type[Record], values: dict[str, Any]) -> Record:
    known = {member.name for member in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in known})
