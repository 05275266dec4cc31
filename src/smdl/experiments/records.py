"""Records of an experiment's results. results.json holds exactly these fields."""

from dataclasses import dataclass, field
from typing import Any

from smdl.experiments.oracle_gains import Gain
from smdl.experiments.runs import Epoch
from smdl.experiments.statistics import MARGIN, Estimate


@dataclass
class RunRecord:
    """A run of an experiment. A run with a problem has no epochs."""

    arm: str
    protocol: str
    seed: int
    folder: str  # relative to the experiment's folder
    steps: int | None
    epochs: list[Epoch]
    problem: str | None


def runs_of(runs: list[RunRecord], arm: str, protocol: str) -> list[RunRecord]:
    """Return the runs of an arm that have something to show."""
    return [run for run in runs if (run.arm, run.protocol) == (arm, protocol) and run.epochs and not run.problem]


@dataclass
class Overhead:
    """Extra time per step, as fractions of the baseline's step."""

    scoring: float
    selection: float
    total: float


@dataclass
class Row:
    """A line of the table: an arm under a protocol. Seconds come from the calibration, estimates from the seeds."""

    arm: str
    protocol: str
    seeds: int
    steps: int
    seconds: float | None
    seconds_per_step: float | None  # None in a comparison that was not timed, as all seconds
    seconds_per_epoch: float | None
    by_the_log: float | None  # ratio of the seconds that the runs logged to those of the baseline's runs
    overhead: Overhead | None
    forwards_per_step: float | None
    steps_to_baseline: int | None  # to the baseline's mean final accuracy
    seconds_to_baseline: float | None
    reached_baseline: str | None  # None in a comparison of a training function of the user, as the two before it
    reference_seconds: float | None  # of training the reference model, once per run; a part of `seconds`
    final_accuracy: Estimate
    mean_accuracy: Estimate
    final_loss: Estimate
    mean_loss: Estimate
    final_train_accuracy: Estimate
    mean_train_accuracy: Estimate
    final_train_loss: Estimate
    mean_train_loss: Estimate
    class_balance: Estimate
    metrics: dict[str, Estimate] = field(default_factory=dict)  # by groups, or what a function of the user returned
    refit_seconds: float | None = None  # of fitting the last layer again, once per run; a part of `seconds`


@dataclass
class Welch:
    """Welch's test of the same accuracies, as if the seeds of the two arms were independent. It decides nothing."""

    difference: float | None
    half: float | None
    p: float | None


@dataclass
class Comparison:
    """An arm's final accuracy, or the metric of the user, tested against that of its baseline: the paired test over the
    seeds that both have, Holm's correction over the comparisons of a protocol."""

    arm: str
    against: str
    protocol: str
    failed: dict[str, int]  # runs that are missing, of the arm and of its baseline
    empty: list[str]  # which of the two has no finished run
    difference: float | None
    half: float | None
    p: float | None
    p_holm: float | None
    half_90: float | None  # of the 90 % interval: inside the margin, the two are equivalent
    pairs: int  # seeds that both have finished
    verdict: str  # better, worse, equivalent, unclear, chance (both are at chance level), missing
    seeds_needed: int | None  # where the verdict is unclear; 101 means more than 100
    welch: Welch
    metric: str = ""  # that was tested; empty: final test accuracy, %
    margin: float = MARGIN  # a difference that is surely within it is called equivalent


@dataclass
class SecondaryTest:
    """An arm's accuracy by groups, or another metric of the user, against that of its baseline: the paired test, with
    Holm's correction over all of them of a protocol. It decides nothing."""

    arm: str
    against: str
    protocol: str
    measure: str
    difference: float | None
    half: float | None
    p: float | None
    p_holm: float | None


@dataclass
class DataFacts:
    """What the accuracies are measured on. None where an older calibration does not say."""

    train_samples: int | None
    test_samples: int | None
    classes: int | None
    points_per_sample: float | None  # what one test sample is worth
    chance: float | None  # accuracy without learning, %: of the largest class of the test set
    chance_limit: float | None  # an accuracy up to here is called chance level, %


@dataclass(kw_only=True)
class Results:
    """Everything that a report shows, of an experiment or of a single run. Its fields are the keys of results.json."""

    title: str
    caption: str = ""
    paper: dict[str, Any] | None = None  # the paper's numbers, and ours next to them
    baseline: str
    against: dict[str, str] = field(default_factory=dict)  # arm -> its own baseline, where they differ
    primary: str  # protocol of the primary endpoint
    protocols: list[str]
    equal: dict[str, str] = field(default_factory=dict)  # protocol -> what it makes equal; empty for a single run
    arms: list[str]
    seeds: int = 1
    earlier_seeds: list[int] = field(default_factory=list)  # numbers of seeds of earlier commands in the folder
    looks: list[int] = field(default_factory=list)  # numbers of seeds at which `--seeds auto` may stop
    minutes: float | None = None
    metric: str = ""  # the primary endpoint, where it is a metric of the user; else final test accuracy
    higher_is_better: bool = True
    learning_rates: dict[str, dict[str, Any]] = field(default_factory=dict)  # arm -> how its learning rate was tuned
    planned_steps: int | None = None  # the baseline's, where the minutes made the runs shorter
    methods: list[str] = field(default_factory=list)  # of a comparison
    regimes: list[str] = field(default_factory=list)  # in which it compares them, if there are several
    endpoints: dict[str, str] = field(default_factory=dict)  # arm -> what is tested, where it is not final accuracy
    gains: list[Gain] = field(default_factory=list)  # what perfect knowledge gains in each regime
    data: DataFacts | None = None
    answer: str = ""  # should I use it here?
    verdict: str = ""
    rows: list[Row] = field(default_factory=list)
    tests: list[Comparison] = field(default_factory=list)
    secondary: list[SecondaryTest] = field(default_factory=list)
    calibration: dict[str, dict[str, Any]]  # arm -> what calibration.json says
    runs: list[RunRecord]
    problems: list[str]
    warnings: list[str] = field(default_factory=list)
    config: dict[str, Any]
    overrides: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any]

    def finished(self, arm: str, protocol: str) -> list[RunRecord]:
        """Return the runs of an arm that have something to show."""
        return runs_of(self.runs, arm, protocol)

    @property
    def endpoint(self) -> str:
        """The name of the primary endpoint."""
        if self.metric or not self.endpoints:
            return self.metric or "final test accuracy"
        where = [regime for regime in self.regimes if any(arm.endswith(f", {regime}") for arm in self.endpoints)]
        return f"final test accuracy (in {', '.join(where)}: the mean over the classes of the accuracy of each)"

    def estimate(self, row: Row) -> Estimate:
        """Return the primary endpoint of a row: the metric of the user, or final test accuracy, %, in a tail with equal
        weights of the classes."""
        name = self.metric or self.endpoints.get(row.arm)
        return row.metrics[name] if name else row.final_accuracy

    @property
    def timed(self) -> bool:
        """Whether the seconds per step of every arm are known."""
        return all(self.calibration[arm].get("seconds_per_step") for arm in self.arms)

    @property
    def ordered_protocols(self) -> list[str]:
        """The primary protocol, then the others."""
        return sorted(self.protocols, key=lambda protocol: protocol != self.primary)
