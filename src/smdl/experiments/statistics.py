"""Intervals and tests: what a handful of seeds can say."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

#: Of every interval in a report.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-width of its 95 % interval (Student's t); no interval from one number."""

    mean: float
    half: float | None
    count: int


@dataclass(frozen=True)
class Difference:
    """Mean of one sample minus that of another, by Welch: variances may differ."""

    mean: float
    half: float | None
    p: float | None  # two-sided; None where a side has fewer than two numbers


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and interval of a sample."""
    mean, variance, n = _moments(values)
    if n < 2:
        return Estimate(mean, None, n)
    return Estimate(mean, _quantile(n - 1) * math.sqrt(variance / n), n)


def difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Welch's test of values against the baseline."""
    (mean, variance, n), (other, other_variance, m) = _moments(values), _moments(baseline)
    if n < 2 or m < 2:
        return Difference(mean - other, None, None)
    a, b = variance / n, other_variance / m
    error = math.sqrt(a + b)
    if error == 0:  # no spread at all: the means are equal, or they are not
        return Difference(mean - other, 0.0, 1.0 if mean == other else 0.0)
    freedom = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (m - 1))
    return Difference(mean - other, _quantile(freedom) * error, float(2 * stdtr(freedom, -abs(mean - other) / error)))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """Holm's step-down: each p-value, adjusted so that the chance of any false alarm stays below the level."""
    tested = sorted((p, index) for index, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    worst = 0.0
    for rank, (p, index) in enumerate(tested):
        worst = max(worst, min(1.0, p * (len(tested) - rank)))
        adjusted[index] = worst
    return adjusted


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    """(mean, variance with n − 1, n)."""
    n = len(values)
    if n == 0:
        return math.nan, math.nan, 0
    mean = math.fsum(values) / n
    return mean, math.fsum((value - mean) ** 2 for value in values) / max(1, n - 1), n


def _quantile(freedom: float) -> float:
    return float(stdtrit(freedom, (1 + CONFIDENCE) / 2))
