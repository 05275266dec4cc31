"""Intervals and tests, against the textbook's formulas."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smdl.experiments.statistics import difference, estimate, half_widths, holm, paired_difference

SAMPLES = st.lists(st.floats(50, 100, allow_nan=False), min_size=2, max_size=12)


def by_hand(values):
    """Mean and standard error, by the textbook."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))


@given(SAMPLES)
def test_the_interval_of_a_mean_is_students(values):
    found = estimate(values)
    assert found.half is not None
    assert found.mean == pytest.approx(np.mean(values))
    assert found.half == pytest.approx(stats.t.ppf(0.975, len(values) - 1) * by_hand(values)[1], abs=1e-9)


def test_the_half_width_of_three_values_is_that_of_the_tables():
    """t = 4.3027 for two degrees of freedom; the standard error of 1, 2, 3 is 1/√3."""
    assert estimate([1.0, 2.0, 3.0]).half == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    assert half_widths(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])) == pytest.approx([2.4841, 0.0], abs=1e-4)


@given(SAMPLES, SAMPLES)
def test_differences_are_welchs(values, baseline):
    """Against the formula: error² = a + b, degrees of freedom (a + b)² / (a² / (n − 1) + b² / (m − 1))."""
    found = difference(values, baseline)
    if np.std(values) < 1e-6 or np.std(baseline) < 1e-6:
        return  # rounding
    (mean, a), (other, b) = by_hand(values), by_hand(baseline)
    freedom = (a**2 + b**2) ** 2 / (a**4 / (len(values) - 1) + b**4 / (len(baseline) - 1))
    error = math.hypot(a, b)
    assert found.mean == pytest.approx(mean - other)
    assert found.half == pytest.approx(stats.t.ppf(0.975, freedom) * error, rel=1e-6)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(mean - other) / error, freedom), abs=1e-6)


@given(st.lists(st.tuples(st.floats(50, 100), st.floats(50, 100)), min_size=2, max_size=12))
def test_paired_differences_are_those_of_each_pair(pairs):
    values, baseline = zip(*pairs, strict=True)
    found, gaps = paired_difference(values, baseline), [a - b for a, b in pairs]
    mean, error = by_hand(gaps)
    if error < 1e-6:
        return  # rounding
    assert found.mean == pytest.approx(mean, abs=1e-9)
    assert found.half == pytest.approx(stats.t.ppf(0.975, len(gaps) - 1) * error, rel=1e-6)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(mean) / error, len(gaps) - 1), abs=1e-6)


def test_pairs_show_a_difference_that_the_spread_over_seeds_hides():
    """Each seed gains 0.3 points; seeds differ by 4."""
    baseline = [90.0, 92.0, 94.0]
    values = [90.2, 92.3, 94.4]
    assert difference(values, baseline).p > 0.8
    assert paired_difference(values, baseline).p < 0.05
    with pytest.raises(ValueError, match="got 2 and 3"):
        paired_difference(values[:2], baseline)
    assert paired_difference([1.0], [2.0]).p is None
    assert paired_difference([2.0, 3.0], [1.0, 2.0]) == difference([1.0, 1.0], [0.0, 0.0])


def test_one_number_has_no_interval_and_none_no_mean():
    assert estimate([3.0]).half is None
    assert estimate([]).mean is None
    assert estimate([math.nan, 1.0]).mean is None
    assert difference([3.0], [1.0, 2.0]).p is None


def test_no_spread_at_all():
    assert difference([5.0, 5.0], [5.0, 5.0]).p == 1
    assert difference([5.0, 5.0], [4.0, 4.0]).p == 0
    assert difference([5.0, 5.0], [4.0, 4.0]).half == 0
    assert estimate([5.0, 5.0]).half == 0


def test_one_side_without_spread_is_tested_without_a_warning():
    found = difference([5.0, 5.0], [4.0, 4.2])
    assert found.half == pytest.approx(12.706 * 0.1, abs=1e-3)  # t for one degree of freedom, error 0.1


def test_holm_steps_down():
    """The textbook's example: 0.01, 0.04, 0.03 become 0.03, 0.06, 0.06."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, None, 0.9]) == [1.0, None, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_never_lowers(values):
    adjusted = holm(values)
    assert all(a >= p for a, p in zip(adjusted, values, strict=True))
    ranked = [adjusted[i] for i in np.argsort(values, kind="stable")]
    assert ranked == sorted(ranked)
