"""Tune the learning rate of each arm on a validation split, with the same effort for each."""

import math
from pathlib import Path
from typing import Any

from smdl.experiments.arms import arm_config
from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.experiments.runner import run_name
from smdl.experiments.runs import read_run
from smdl.training.config import TrainConfig

#: Factors of the learning rate, the usual one first: it wins a tie.
RATE_FACTORS = (1.0, 0.5, 2.0)
#: Part of the training set that is held out, unless the config holds out another; a seed of no run of the experiment.
VALIDATION, TUNING_SEED = 0.1, 1_000_000


def rate_configs(plan: ComparisonPlan, arm: str, steps: int) -> list[TrainConfig]:
    """Return a config per learning rate of an arm."""
    usual = arm_config(plan, arm)
    split = {"validation": usual.data.validation or VALIDATION}
    return [
        arm_config(plan, arm, steps=steps, seed=TUNING_SEED, data=split, optimizer={"lr": factor * usual.optimizer.lr})
        for factor in RATE_FACTORS
    ]


def best_rate(store: Path, configs: list[TrainConfig]) -> dict[str, Any]:
    """Return the rate with the highest validation accuracy after the last step, and the accuracy (%) of every rate:
    None where the run diverged. If all did, the usual rate is kept."""
    found: dict[float, float | None] = {}
    for config in configs:
        files = read_run(store / run_name(config), config.steps)
        found[config.optimizer.lr] = None if files.problems else 100 * (1 - files.epochs[-1]["validation_error"])
    best = max(found, key=lambda rate: -math.inf if (known := found[rate]) is None else known)
    return {"rate": best, "validation_accuracy": [[rate, found[rate]] for rate in sorted(found)]}
