"""Compare: the arms of an experiment, over several seeds, at equal steps and at equal time."""

import math
import os
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

from smdl.errors import choice, unknown
from smdl.experiments.arms import Overrides, with_overrides
from smdl.experiments.calibration import calibrate, lengths
from smdl.experiments.logs import MEASURES, read_run
from smdl.experiments.runner import folder_of, run_all
from smdl.experiments.statistics import difference
from smdl.training.config import TrainConfig, from_dict
from smdl.training.environment import command
from smdl.training.files import locked, new_folder, read_json, replacing, write_json
from smdl.training.progress import Display, Silent

PROTOCOLS = ("steps", "time")
#: `--seeds auto`: until the difference is known to within this many points, or this many seeds are trained.
PRECISION, MOST_SEEDS = 0.5, 20
#: `--minutes`: fewer seeds than this say little, so steps are given up first.
FEWEST_SEEDS = 3
#: Seconds of a budget that go to starting processes and drawing the report.
STARTING = 25.0
#: What each further process adds, in processes: they share caches and memory.
BESIDE = 0.5


@dataclass
class Plan:
    """What is compared. The primary endpoint is fixed here, before any run: final test accuracy at equal time."""

    title: str
    base: dict[str, Any]  # a TrainConfig
    arms: dict[str, Overrides]
    baseline: str = "uniform"
    against: dict[str, str] = field(default_factory=dict)  # where arms have baselines of their own
    seeds: int = 5
    protocols: list[str] = field(default_factory=lambda: list(PROTOCOLS))
    timed: bool = True
    minutes: float | None = None  # as many seeds and steps as fit; decided once, after the calibration
    decided: bool = False
    caption: str = ""
    paper: dict[str, Any] | None = None  # the paper's own numbers: columns, rows, note
    command: str = ""  # that last worked on it

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

    @property
    def primary(self) -> str:
        """The protocol of the primary endpoint."""
        return "time" if "time" in self.protocols else self.protocols[0]

    @property
    def rivals(self) -> dict[str, str]:
        """What is tested against what: the comparisons, fixed before any run."""
        return self.against or {arm: self.baseline for arm in self.arms if arm != self.baseline}

    def config(self, arm: str, **more: Any) -> TrainConfig:
        """An arm's config as the base has it: so many epochs, or steps."""
        return with_overrides(from_dict(TrainConfig, self.base), self.arms[arm], **more)


class Experiment:
    """A plan in a folder: plan.yaml, calibration.json, the runs, and what comes of them. Going on with one that was
    interrupted is the same as starting it."""

    def __init__(self, folder: Path, plan: Plan, store: Path | None = None, display: Display | None = None) -> None:
        self.folder, self.plan = folder, plan
        self.store = store or folder / "runs"
        self.display = display or Silent()
        self.calibration: dict[str, Any] | None = None

    def write_plan(self) -> None:
        """So that a report needs nothing but files."""
        write_plan(self.folder, self.plan, self.store)

    def calibrate(self) -> dict[str, Any]:
        """Seconds a step of every arm: measured before anything else runs, and kept."""
        path = self.folder / "calibration.json"
        kept = read_json(path)
        if not self._fits(kept):
            measure = calibrate if self.plan.timed else lengths
            order = sorted(self.plan.arms, key=lambda arm: arm != self.plan.baseline)  # the baseline first
            kept = measure({arm: self.plan.config(arm, steps=None) for arm in order}, self.display)
            write_json(path, kept)
        self.calibration = kept
        return kept

    def _fits(self, kept: Any) -> bool:
        """Whether a calibration is whole, and of these arms."""
        needed = {"steps_per_epoch", *(("seconds_per_step", "parts", "forwards_per_step") if self.plan.timed else ())}
        if not isinstance(kept, dict) or set(kept) != set(self.plan.arms):
            return False
        return all(isinstance(found, dict) and needed <= set(found) for found in kept.values())

    def steps_of(self, arm: str, protocol: str) -> int:
        """How many steps an arm takes: its own epochs, or as many as the baseline's time buys."""
        assert self.calibration is not None
        steps = {name: self._steps_as_planned(name) for name in (arm, self.plan.baseline)}
        if protocol == "steps" or arm == self.plan.baseline:
            return steps[arm]
        seconds = {name: self.calibration[name]["seconds_per_step"] for name in steps}
        return max(1, math.floor(steps[self.plan.baseline] * seconds[self.plan.baseline] / seconds[arm]))

    def _steps_as_planned(self, arm: str) -> int:
        assert self.calibration is not None
        config = self.plan.config(arm)
        return config.steps or config.epochs * self.calibration[arm]["steps_per_epoch"]

    def configs(self, arm: str, protocol: str) -> list[TrainConfig]:
        """A run a seed. The baseline's are the same under both protocols, and are trained once."""
        steps = self.steps_of(arm, protocol)
        return [self.plan.config(arm, steps=steps, seed=seed) for seed in range(self.plan.seeds)]

    def fit_into(self, seconds: float, jobs: int) -> None:
        """As many seeds and steps as the time that is left bears."""
        cost = self._seconds_a_seed()
        budget = max(0.0, seconds) * (1 + BESIDE * (jobs - 1))
        self.plan.decided = True
        self.plan.seeds = min(MOST_SEEDS, int(budget / cost))
        if self.plan.seeds < FEWEST_SEEDS:
            share = min(1.0, budget / (FEWEST_SEEDS * cost))
            steps = max(1, math.floor(self._steps_as_planned(self.plan.baseline) * share))
            self.plan.base = {**self.plan.base, "steps": steps}
            self.plan.seeds = FEWEST_SEEDS

    def _seconds_a_seed(self) -> float:
        """Of computing, evaluation included, for one seed of every arm under every protocol."""
        assert self.calibration is not None
        setup = min(found["setup_seconds"] for found in self.calibration.values())  # the first arm's compiles, too
        total, counted = 0.0, set()
        for arm, found in self.calibration.items():
            for protocol in self.plan.protocols:
                steps = self.steps_of(arm, protocol)
                if (arm, steps) not in counted:
                    counted.add((arm, steps))
                    evaluations = math.ceil(steps / found["steps_per_epoch"])
                    total += setup + steps * found["seconds_per_step"] + (evaluations + 1) * found["evaluation_seconds"]
        return total

    def run(self, jobs: int = 1) -> None:
        """Train every run that is not finished."""
        pairs = [(arm, protocol) for arm in self.plan.arms for protocol in self.plan.protocols]
        configs = [config for arm, protocol in pairs for config in self.configs(arm, protocol)]
        configs.sort(key=lambda config: config.seed)  # so that what was interrupted has whole seeds
        run_all(configs, self.store, jobs, self.display)

    def run_until_precise(self, jobs: int = 1) -> None:
        """Add seeds until every difference to the baseline is known to within half a point, or there are twenty."""
        self.plan.seeds = min(MOST_SEEDS, max(FEWEST_SEEDS, jobs))
        while True:
            self.write_plan()
            self.run(jobs)
            if self.precise() or self.plan.seeds >= MOST_SEEDS:
                return
            self.plan.seeds = min(MOST_SEEDS, self.plan.seeds + max(2, jobs))

    def precise(self) -> bool:
        """Whether the interval of every difference at the primary endpoint is narrow enough. Arms that never finish do
        not hold up the others."""
        finals = {arm: self._final_accuracies(arm) for arm in self.plan.arms}
        pairs = [(finals[arm], finals[rival]) for arm, rival in self.plan.rivals.items() if finals[arm]]
        halves = [difference(*pair).half for pair in pairs]
        return all(half is not None and half <= PRECISION for half in halves)

    def _final_accuracies(self, arm: str) -> list[float]:
        configs = self.configs(arm, self.plan.primary)
        found = [read_run(folder_of(self.store, config), config.steps)[0] for config in configs]
        return [MEASURES["final_accuracy"](epochs) for epochs in found if epochs]


def write_plan(folder: Path, plan: Plan, store: Path | None = None) -> None:
    """plan.yaml."""
    with replacing(folder / "plan.yaml") as file:
        values = {**asdict(plan), "store": os.path.relpath(store or folder / "runs", folder)}
        file.write(yaml.safe_dump(values, sort_keys=False).encode())


def open_folder(out: Path, plan: Plan) -> Path:
    """The folder of this plan: one that holds it already is gone on with, one that holds another is left alone."""
    number = 1
    while True:
        candidate = out if number == 1 else out.with_name(f"{out.name}-{number}")
        kept = candidate / "plan.yaml"
        if not candidate.exists():
            made = new_folder(candidate)
            write_plan(made, plan)
            return made
        if kept.exists() and _same(_read_plan(kept), plan):
            return candidate
        number += 1


def _read_plan(path: Path) -> Any:
    """None where it is damaged: then it is another plan."""
    try:
        return yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError):
        return None


def _same(kept: Any, plan: Plan) -> bool:
    """But for words, and for what is decided while it runs: seeds, and with minutes the steps."""
    try:
        plans = [asdict(Plan(**{name: value for name, value in kept.items() if name != "store"})), asdict(plan)]
        for values in plans:
            for name in ("seeds", "caption", "title", "paper", "decided", "command"):
                values.pop(name)
            if plan.minutes is not None:
                values["base"].pop("steps", None)
    except (AttributeError, TypeError, ValueError):  # damaged: another plan
        return False
    return plans[0] == plans[1]


def run_plan(
    plan: Plan,
    out: Path,
    *,
    store: Path | None = None,
    auto: bool = False,
    jobs: int = 1,
    display: Display | None = None,
) -> Experiment:
    """Calibrate and train a plan in its folder, or go on with it. The results are read from there.

    auto     seeds until the differences are precise, instead of the plan's number
    jobs     runs side by side, each on one thread
    """
    started = time.perf_counter()
    if jobs > 1 and plan.base["threads"] is None:
        plan.base = {**plan.base, "threads": 1}  # runs side by side must not fight for cores
    plan.command = command()
    experiment = Experiment(open_folder(out, plan), plan, store, display)
    with locked(experiment.folder):
        kept = yaml.safe_load((experiment.folder / "plan.yaml").read_text())
        experiment.calibrate()
        if plan.minutes is not None and kept["decided"]:
            plan.seeds, plan.base, plan.decided = kept["seeds"], kept["base"], True
        elif plan.minutes is not None:
            experiment.fit_into(60 * plan.minutes - STARTING - (time.perf_counter() - started), jobs)
        experiment.write_plan()
        if auto:
            experiment.run_until_precise(jobs)
        else:
            experiment.run(jobs)
    return experiment
