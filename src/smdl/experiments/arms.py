"""Arms: the configurations an experiment sets against each other, by name."""

import hashlib
import json
from copy import deepcopy
from typing import Any

from smdl.errors import unknown
from smdl.training.config import TrainConfig, from_dict, to_dict

Overrides = dict[str, Any]

#: What `--strategies` may name, and what each changes in the base config.
ARMS: dict[str, Overrides] = {
    "uniform": {"strategy": "uniform"},
    "loss": {"strategy": "loss"},
    "paper": {"strategy": "smdl", "objective": {"preset": "paper"}},
    "paper_subset": {"strategy": "smdl", "objective": {"preset": "paper_subset"}},
    "recommended": {"strategy": "smdl", "objective": {"preset": "recommended"}},
}


def overrides_of(name: str) -> Overrides:
    """What an arm of that name changes; package.module:Class is a strategy of one's own."""
    if ":" in name:
        return {"strategy": name}
    if name not in ARMS:
        raise ValueError(unknown("strategy to compare", name, ARMS) + ", or package.module:Class")
    return deepcopy(ARMS[name])


def with_overrides(base: TrainConfig, overrides: Overrides, **more: Any) -> TrainConfig:
    """The base config, changed."""
    return from_dict(TrainConfig, merged(merged(to_dict(base), overrides), more))


def merged(values: dict[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Nested dicts, the second over the first."""
    result = deepcopy(values)
    for name, value in overrides.items():
        inner = result.get(name)
        result[name] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else deepcopy(value)
    return result


def fingerprint(config: TrainConfig) -> str:
    """Ten letters for all that decides a run's result. Where a known data set lies does not, nor how many workers read
    it; whether any do does: in a worker, augmentation draws from a generator of its own."""
    values = to_dict(config)
    if config.data.name != "folder":
        values["data"].pop("root")
    if values.pop("num_workers"):
        values["workers"] = True
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:10]
