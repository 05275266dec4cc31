"""Intervals and tests for a handful of seeds."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

#: Level of every interval in a report, and of the tests.
CONFIDENCE, LEVEL = 0.95, 0.05
#: Points of accuracy. A difference that is surely within this margin is called equivalent. For a metric of the user it
#: is a part of the baseline's mean.
MARGIN, RELATIVE_MARGIN = 0.5, 0.005
#: Seeds below which there is no interval and no test, and the largest number of seeds that a report asks for.
FEWEST_SEEDS, MOST_SEEDS_ASKED = 3, 100
#: Chance that the number of seeds that a report asks for is enough, if the difference is as large as it seems.
POWER = 0.8
#: A standard deviation below this is rounding.
ROUNDING = 1e-9


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-width of its 95 % interval (Student's t). Both may be missing: no values, no mean; fewer than
    three values, no interval."""

    mean: float | None
    half: float | None
    count: int


@dataclass(frozen=True)
class Difference:
    """The mean of one sample minus that of another."""

    mean: float | None
    half: float | None  # of the 95 % interval; None with fewer than three values, or without spread
    p: float | None  # two-sided; None where there is no interval
    half_90: float | None = None  # of the 90 % interval, for the two one-sided tests of equivalence


def estimate(values: Sequence[float]) -> Estimate:
    """Return the mean of a sample and its interval. Values that are not finite leave both missing."""
    mean, count = _mean(values), len(values)
    if mean is None or count < FEWEST_SEEDS:
        return Estimate(mean, None, count)
    return Estimate(mean, float(half_widths(np.array(values))), count)


def half_widths(values: np.ndarray) -> np.ndarray:
    """Return the half-width of the interval of the mean over the first axis, (S, ...) -> (...)."""
    return stats.t.interval(CONFIDENCE, len(values) - 1)[1] * stats.sem(values, axis=0)


def difference(values: Sequence[float], baseline: Sequence[float]) -> Difference:
    """Test values against the baseline's by Welch's test: independent samples, variances may differ."""
    gap, count = _gap(values, baseline), min(len(values), len(baseline))
    if gap is None or count < FEWEST_SEEDS or max(np.std(values), np.std(baseline)) < ROUNDING:
        return Difference(gap, None, None)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # samples that are nearly constant
        found = stats.ttest_ind(values, baseline, equal_var=False)
        low, high = found.confidence_interval(CONFIDENCE)
    return Difference(gap, float(high - low) / 2, float(found.pvalue))  # type: ignore[arg-type]


def paired_difference(values: Sequence[float], baseline: Sequence[float], looks: int = 1) -> Difference:
    """Test values against the baseline's of the same seeds, in the same order, by the paired t-test.

    With several `looks` at growing numbers of seeds, each has its share of the level (Bonferroni): intervals are wider
    and p larger, so that both hold whichever look is the last.
    """
    if len(values) != len(baseline):
        raise ValueError(f"pairs need as many values as the baseline has, got {len(values)} and {len(baseline)}")
    gap, count = _gap(values, baseline), len(values)
    spread = float(np.std(np.subtract(values, baseline), ddof=1)) if count >= FEWEST_SEEDS else 0.0
    if gap is None or not spread >= ROUNDING:
        return Difference(gap, None, None)
    error, level = spread / math.sqrt(count), LEVEL / looks
    half, half_90 = (float(stats.t.isf(tail, count - 1)) * error for tail in (level / 2, level))
    p = min(1.0, 2 * float(stats.t.sf(abs(gap) / error, count - 1)) * looks)
    return Difference(gap, half, p, half_90)


def pairs_of(mine: Mapping[int, float], rival: Mapping[int, float]) -> tuple[list[float], list[float]]:
    """Return the values of the seeds that both have."""
    seeds = sorted(mine.keys() & rival.keys())
    return [mine[seed] for seed in seeds], [rival[seed] for seed in seeds]


def seeds_needed(
    values: Sequence[float], baseline: Sequence[float], comparisons: int = 1, margin: float = MARGIN
) -> int:
    """Return the number of pairs that would probably show a difference or equivalence, if the mean and the spread of
    the differences are as they seem. One more than MOST_SEEDS_ASKED means more than that. Pairs without spread ask for
    one more pair."""
    more, gaps = max(FEWEST_SEEDS, len(values) + 1), np.subtract(values, baseline)
    spread = float(gaps.std(ddof=1)) if len(values) > 1 else 0.0
    if spread < ROUNDING:
        return more
    gap = abs(float(gaps.mean()))
    counts = np.arange(more, MOST_SEEDS_ASKED + 1)
    errors, freedom = spread / np.sqrt(counts), counts - 1
    apart = (stats.t.isf(LEVEL / comparisons / 2, freedom) + stats.t.ppf(POWER, freedom)) * errors <= gap
    # Equivalence can be missed on either side, so each side has half of the risk.
    within = (stats.t.isf(LEVEL, freedom) + stats.t.isf((1 - POWER) / 2, freedom)) * errors <= margin - gap
    enough = counts[apart | within]
    return int(enough[0]) if len(enough) else MOST_SEEDS_ASKED + 1


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
