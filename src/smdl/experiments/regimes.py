"""Comparisons: methods, in one or several regimes. A regime is what is done to the data, under a name."""

import json
import re
from collections.abc import Sequence
from typing import Any

from smdl.common.messages import unknown
from smdl.experiments.comparison_plan import ORACLE, ComparisonPlan
from smdl.training.config import DataConfig

_HIDING = (
    "imbalance", "hidden_imbalance", "duplicates", "zipf_duplicates", "dominoes", "human_labels", "label_noise"
)  # fmt: skip
_CLEAN: dict[str, Any] = {name: getattr(DataConfig, name) for name in _HIDING}
#: The option of the data that makes a regime, and its usual strength, by the name of the regime.
REGIMES: dict[str, tuple[str, Any]] = {
    "clean": ("imbalance", 1.0),
    "long-tail": ("imbalance", 20.0),
    "hidden-tail": ("hidden_imbalance", 25.0),
    "duplicates": ("duplicates", 0.9),
    "noisy": ("label_noise", 0.2),
    "tiny": ("train_size", 500),
    "zipf": ("zipf_duplicates", 0.9),
    "dominoes": ("dominoes", 0.95),
    "human": ("human_labels", "random_label1"),
}


#: Options of the data that make a tail: then all classes count alike in the primary endpoint.
TAILS = ("imbalance", "hidden_imbalance")


def data_options(regime: str) -> dict[str, Any]:
    """Return the options of the data of a regime. `long-tail=50` is a long tail of another strength, and
    `long-tail+noisy` is both."""
    found = dict(_CLEAN)
    for part in regime.split("+"):
        option, strength = _option(part)
        if found.get(option, _CLEAN.get(option)) != _CLEAN.get(option):
            raise ValueError(f"regime {regime!r} sets data.{option} twice")
        found[option] = strength
    return found


def _option(regime: str) -> tuple[str, Any]:
    """Return the option of the data that makes a single regime, and its value."""
    name, equals, given = regime.partition("=")
    if name not in REGIMES:
        raise ValueError(unknown("regime", name, REGIMES))
    option, strength = REGIMES[name]
    if equals:
        try:
            strength = type(strength)(given)
        except ValueError:
            kind = "whole number" if isinstance(strength, int) else "number"
            raise ValueError(f"the part after = in {regime!r} must be a {kind}: the data.{option}") from None
        if name == "clean":
            raise ValueError(f"clean has no strength: leave out the part after = in {regime!r}")
        if strength == _CLEAN.get(option):
            raise ValueError(f"the regime {regime!r} hides nothing: use clean, or another strength, such as {name}")
    return option, strength


def comparison(
    title: str,
    base: dict[str, Any],
    methods: Sequence[str],
    regimes: Sequence[str],
    oracle: bool = False,
    **more: Any,
) -> ComparisonPlan:
    """Return the plan of a comparison. In several regimes, an arm is a method in a regime, and is tested against the
    baseline of its regime. With `oracle`, regimes that hide something get an arm that is drawn by that. `more` are
    other fields of the plan."""
    options = {regime: data_options(regime) for regime in regimes}
    arms, against, shares, endpoints, baseline = {}, {}, {}, {}, baseline_of(methods)
    methods = [*methods, *([ORACLE] if oracle and ORACLE not in methods else [])]
    if len(set(methods)) < 2:
        raise ValueError(f"a comparison needs two methods or more, got {', '.join(methods)}")
    if method_and_share(baseline)[1] != 1:
        raise ValueError(f"the baseline {baseline} has all of its own time: leave out the part after @")
    for regime in regimes or [""]:
        for method in methods:
            if method == ORACLE and regime and not any(_differs(options[regime], option) for option in _CLEAN):
                continue
            arm, (name, share) = arm_name(method, regime), method_and_share(method)
            arms[arm] = {**method_options(name), **({"data": options[regime]} if regime else {})}
            if regime and method != baseline:
                against[arm] = arm_name(baseline, regime)
            if share != 1:
                shares[arm] = share
            if regime and any(_differs(options[regime], option) for option in TAILS):
                endpoints[arm] = "balanced_accuracy"
    return ComparisonPlan(
        title,
        base,
        arms,
        baseline=next(iter(against.values()), baseline),
        against=against,
        shares=shares,
        methods=list(methods),
        regimes=list(regimes),
        endpoints=endpoints,
        **more,
    )


def _differs(options: dict[str, Any], option: str) -> bool:
    return options.get(option, _CLEAN[option]) != _CLEAN[option]


def arm_name(method: str, regime: str) -> str:
    """Return the name of the arm of a method in a regime."""
    return f"{method}, {regime}" if regime else method


def baseline_of(methods: Sequence[str]) -> str:
    """Return the method that the others are compared with."""
    return "uniform" if "uniform" in methods else methods[0]


def method_options(name: str) -> dict[str, Any]:
    """Return what a method changes in a config. `loss[pressure=4]` is `loss` with an option changed. `uniform+refit` is
    `uniform` with the last layer fitted again, with equal weights of the classes, after training."""
    found = re.fullmatch(r"([^][+]+)(?:\[(.+)\])?(?:\+([^]]*))?", name)
    if found is None:
        raise ValueError(f"a method with options must be NAME[option=value;option=value], got {name!r}")
    method, options, more = found.groups()
    if more not in (None, "refit"):
        raise ValueError(f"the part after + in {name!r} must be refit")
    given = {"options": dict(_given(name, part) for part in options.split(";"))} if options else {}
    return {"method": method, **given, **({"refit": "classes"} if more else {})}


def _given(name: str, text: str) -> tuple[str, Any]:
    """Return the name and the value of an option in a method's brackets. A value is JSON, or else a text."""
    option, equals, value = (part.strip() for part in text.partition("="))
    if not (option and equals):
        raise ValueError(f"the options of {name!r} must be option=value, separated by ;, got {text!r}")
    try:
        return option, json.loads(value)
    except ValueError:
        return option, value


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
