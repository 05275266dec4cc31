"""Intervals and tests, against scipy on known samples."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smdl.experiments.statistics import difference, estimate, holm

SAMPLES = st.lists(st.floats(50, 100, allow_nan=False), min_size=2, max_size=12)


@given(SAMPLES)
def test_the_interval_of_a_mean_is_students(values):
    found = estimate(values)
    assert found.half is not None
    assert found.mean == pytest.approx(np.mean(values))
    error = stats.sem(values)
    low, _ = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error) if error > 0 else (found.mean, 0)
    assert found.mean - found.half == pytest.approx(low, abs=1e-9)


@given(SAMPLES, SAMPLES)
def test_differences_are_welchs(values, baseline):
    found = difference(values, baseline)
    if np.std(values) < 1e-9 or np.std(baseline) < 1e-9:
        return  # scipy warns of what it loses to rounding there
    theirs: Any = stats.ttest_ind(values, baseline, equal_var=False)
    assert found.p == pytest.approx(theirs.pvalue, abs=1e-9)
    assert found.half is not None
    wanted = theirs.confidence_interval(0.95)
    assert (found.mean - found.half, found.mean + found.half) == pytest.approx(tuple(wanted), abs=1e-7)


def test_a_known_pair_of_samples():
    found = difference([97.0, 97.2, 96.8], [97.4, 97.9, 97.6, 97.7])
    theirs: Any = stats.ttest_ind([97.0, 97.2, 96.8], [97.4, 97.9, 97.6, 97.7], equal_var=False)
    assert found.mean == pytest.approx(-0.65)
    assert found.p == pytest.approx(theirs.pvalue)


def test_one_number_has_no_interval_and_none_no_mean():
    assert estimate([3.0]).half is None
    assert math.isnan(estimate([]).mean)
    assert difference([3.0], [1.0, 2.0]).p is None


def test_no_spread_at_all():
    assert difference([5.0, 5.0], [5.0, 5.0]).p == 1
    assert difference([5.0, 5.0], [4.0, 4.0]).p == 0


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
