"""Intervals and tests for a handful of seeds."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

#: Level of every interval in a report.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-width of its 95 % interval (Student's t). Both may be missing: no values, no mean; one value,
    no interval."""

    mean: float | None
    half: float | None
    count: int


@dataclass(frozen=True)
class Difference:
    """The mean of one sample minus that of another."""

    mean: float | None
    half: float | None  # of the 95 % interval
    p: float | None  # two-sided; None where a sample has fewer than two values


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of a sample and its interval. Values that are not finite leave both missing."""
    mean, count = _mean(values), len(values)
    if mean is None or count < 2:
        return Estimate(mean, None, count)
    return Estimate(mean, float(half_widths(np.array(values))), count)


def half_widths(values: np.ndarray) -> np.ndarray:
    """Return the half-width of the interval of the mean over the first axis, (S, ...) -> (...)."""
    return stats.t.interval(CONFIDENCE, len(values) - 1)[1] * stats.sem(values, axis=0)


def difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Test values against the baseline's by Welch's test: independent samples, variances may differ."""
    gap = _gap(values, baseline)
    if gap is None or min(len(values), len(baseline)) < 2:
        return Difference(gap, None, None)
    spread = len(set(values)) > 1 or len(set(baseline)) > 1
    return _tested(gap, spread, lambda: stats.ttest_ind(values, baseline, equal_var=False))


def paired_difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Test values against the baseline's of the same seeds, in the same order, by the paired t-test."""
    if len(values) != len(baseline):
        raise ValueError(f"pairs need as many values as the baseline has, got {len(values)} and {len(baseline)}")
    gap = _gap(values, baseline)
    if gap is None or len(values) < 2:
        return Difference(gap, None, None)
    spread = len({a - b for a, b in zip(values, baseline, strict=True)}) > 1
    return _tested(gap, spread, lambda: stats.ttest_rel(values, baseline))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust p-values by Holm's step-down method: the chance of any false alarm stays below the level."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    worst = 0.0
    for rank, (p, index) in enumerate(tested):
        worst = max(worst, min(1.0, p * (len(tested) - rank)))
        adjusted[index] = worst
    return adjusted


def _mean(values: Sequence[float]) -> float | None:
    mean = math.fsum(values) / len(values) if values else math.nan
    return mean if math.isfinite(mean) else None


def _gap(values: Sequence[float], baseline: Sequence[float]) -> float | None:
    mean, other = _mean(values), _mean(baseline)
    return None if mean is None or other is None else mean - other


def _tested(gap: float, spread: bool, test: Any) -> Difference:
    if not spread:  # the means are equal, or they are not
        return Difference(gap, 0.0, float(gap == 0))
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # samples that are nearly constant
        found = test()
        low, high = found.confidence_interval(CONFIDENCE)
    return Difference(gap, float(high - low) / 2, float(found.pvalue))
