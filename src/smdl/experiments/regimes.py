"""Comparisons: methods, in one or several regimes. A regime is what is done to the data, under a name."""

from collections.abc import Sequence
from typing import Any

from smdl.errors import unknown
from smdl.experiments.plan import Plan

_CLEAN = {"imbalance": 1.0, "hidden_imbalance": 1.0, "duplicates": 0.0, "label_noise": 0.0}
#: Options of the data by the name of the regime.
REGIMES: dict[str, dict[str, Any]] = {
    "clean": _CLEAN,
    "long-tail": {**_CLEAN, "imbalance": 20.0},
    "hidden-tail": {**_CLEAN, "hidden_imbalance": 25.0},
    "duplicates": {**_CLEAN, "duplicates": 0.9},
    "noisy": {**_CLEAN, "label_noise": 0.2},
    "tiny": {**_CLEAN, "train_size": 500},
}


def comparison(title: str, base: dict[str, Any], methods: Sequence[str], regimes: Sequence[str], **more: Any) -> Plan:
    """Return the plan of a comparison. In several regimes, an arm is a method in a regime, and is tested against the
    baseline of its regime. `more` are other fields of the plan."""
    for regime in regimes:
        if regime not in REGIMES:
            raise ValueError(unknown("regime", regime, REGIMES))
    arms, against, shares, baseline = {}, {}, {}, baseline_of(methods)
    if len(set(methods)) < 2:
        raise ValueError(f"a comparison needs two methods or more, got {', '.join(methods)}")
    if method_and_share(baseline)[1] != 1:
        raise ValueError(f"the baseline {baseline} has all of its own time: leave out the part after @")
    for regime in regimes or [""]:
        for method in methods:
            arm, (name, share) = arm_name(method, regime), method_and_share(method)
            arms[arm] = {"method": name, **({"data": REGIMES[regime]} if regime else {})}
            if regime and method != baseline:
                against[arm] = arm_name(baseline, regime)
            if share != 1:
                shares[arm] = share
    return Plan(
        title,
        base,
        arms,
        baseline=next(iter(against.values()), baseline),
        against=against,
        shares=shares,
        methods=list(methods),
        regimes=list(regimes),
        **more,
    )


def arm_name(method: str, regime: str) -> str:
    """Return the name of the arm of a method in a regime."""
    return f"{method}, {regime}" if regime else method


def baseline_of(methods: Sequence[str]) -> str:
    """Return the method that the others are compared with."""
    return "uniform" if "uniform" in methods else methods[0]


def method_and_share(method: str) -> tuple[str, float]:
    """Split `recommended@0.7` into the name of the method and its share of the baseline's time."""
    name, at, share = method.partition("@")
    try:
        value = float(share) if at else 1.0
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise ValueError(f"the part after @ in {method!r} must be a share of the baseline's time in (0, 1]")
    return name, value
