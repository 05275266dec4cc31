"""Arms: the configurations that an experiment compares, by name."""

from copy import deepcopy
from typing import Any

from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.loading.methods import as_method
from smdl.training.config import TrainConfig, from_dict, to_dict

Overrides = dict[str, Any]


def overrides_of(method: str) -> Overrides:
    """Return what the arm of a method changes in the base config."""
    as_method(method)  # unknown names are errors
    return {"method": method}


def with_overrides(base: TrainConfig, overrides: Overrides, **more: Any) -> TrainConfig:
    """Return the base config with some values changed."""
    return from_dict(TrainConfig, merged(merged(to_dict(base), overrides), more))


def merged(values: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Return nested dicts with the values of the second in place of those of the first."""
    result = deepcopy(values)
    for name, value in overrides.items():
        inner = result.get(name)
        result[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else deepcopy(value)
    return result


def arm_config(plan: ComparisonPlan, arm: str, **more: Any) -> TrainConfig:
    """Return the config of an arm: the plan's base, changed by the arm, by its tuned learning rate, then by `more`."""
    tuned = {"optimizer": {"lr": plan.learning_rates[arm]["rate"]}} if arm in plan.learning_rates else {}
    return with_overrides(from_dict(TrainConfig, plan.base), merged(plan.arms[arm], tuned), **more)
