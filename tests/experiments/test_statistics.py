"""Intervals and tests, against the textbook's formulas."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from smdl.experiments import experiment
from smdl.experiments.statistics import (
    MARGIN,
    MOST_SEEDS_ASKED,
    Difference,
    difference,
    estimate,
    half_widths,
    holm,
    paired_difference,
    seeds_needed,
)
from smdl.experiments.verdicts import at_chance, data_facts, judge

SAMPLES = st.lists(st.floats(50, 100, allow_nan=False), min_size=3, max_size=12)


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


@given(st.lists(st.tuples(st.floats(50, 100), st.floats(50, 100)), min_size=3, max_size=12))
def test_paired_differences_are_those_of_each_pair(pairs):
    values, baseline = zip(*pairs, strict=True)
    found, gaps = paired_difference(values, baseline), [a - b for a, b in pairs]
    mean, error = by_hand(gaps)
    if error < 1e-6:
        return  # rounding
    assert found.mean == pytest.approx(mean, abs=1e-9)
    assert found.half == pytest.approx(stats.t.ppf(0.975, len(gaps) - 1) * error, rel=1e-6)
    assert found.half_90 == pytest.approx(stats.t.ppf(0.95, len(gaps) - 1) * error, rel=1e-6)
    assert found.p == pytest.approx(stats.ttest_rel(values, baseline).pvalue, abs=1e-6)


def test_pairs_show_a_difference_that_the_spread_over_seeds_hides():
    """Each seed gains 0.3 points; seeds differ by 4."""
    baseline = [90.0, 92.0, 94.0]
    values = [90.2, 92.3, 94.4]
    assert difference(values, baseline).p > 0.8
    assert paired_difference(values, baseline).p < 0.05
    with pytest.raises(ValueError, match="got 2 and 3"):
        paired_difference(values[:2], baseline)
    assert paired_difference([1.0], [2.0]) == Difference(-1.0, None, None)


@given(st.lists(st.floats(50, 100), max_size=2), st.lists(st.floats(50, 100), max_size=12))
def test_below_three_values_there_is_no_interval_and_no_test(few, others):
    assert estimate(few).half is None
    found = [difference(few, others), difference(others, few), paired_difference(few, few)]
    assert {(gap.half, gap.half_90, gap.p) for gap in found} == {(None, None, None)}


def test_one_number_has_no_interval_and_none_no_mean():
    assert estimate([]).mean is None
    assert estimate([math.nan, 1.0]).mean is None
    assert difference([3.0], [1.0, 2.0]).p is None


def test_without_spread_or_a_third_seed_there_is_no_p_value():
    """Two seeds that happen to agree are not p = 0."""
    for test in (difference, paired_difference):
        assert test([5.0, 5.0], [4.0, 4.0]) == Difference(1.0, None, None)
        assert test([5.0] * 9, [5.0] * 9) == Difference(0.0, None, None)
        assert test([5.0, 7.0], [4.0, 5.0]) == Difference(1.5, None, None)
    assert paired_difference([2.1, 3.2, 4.3], [1.1, 2.2, 3.3]).p is None, "0.9999999999999998 is no spread"
    assert estimate([5.0, 5.0, 5.0]).half == 0


def test_one_side_without_spread_is_tested_without_a_warning():
    found = difference([5.0, 5.0, 5.0], [4.0, 4.1, 4.2])
    assert found.half == pytest.approx(4.3027 * 0.1 / math.sqrt(3), abs=1e-4)  # t for two degrees of freedom


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


def test_the_verdict_is_better_worse_equivalent_or_unclear():
    baseline = [90.0, 91.0, 92.0, 90.5, 91.5]

    def verdict(*gaps):
        found = paired_difference([b + gap for b, gap in zip(baseline, gaps, strict=False)], baseline[: len(gaps)])
        return judge(found, len(gaps), found.p)

    assert verdict(1.0, 1.2, 0.8, 1.1, 0.9) == "better"
    assert verdict(-1.0, -1.2, -0.8, -1.1, -0.9) == "worse"
    assert verdict(0.1, -0.1, 0.2, -0.2, 0.0) == "equivalent"
    assert verdict(-40.0, 0.0, -3.0) == "unclear", "−14.3 ± 55 is ignorance, not equality"
    assert verdict(0.0, 0.0, 0.0) == "equivalent", "the same in every seed"
    assert verdict(5.0, 5.0) == verdict(0.0, 0.0) == verdict(5.0) == "unclear"
    assert verdict(5.0, 5.0, 5.0) == "unclear", "without spread there is no test"
    assert judge(Difference(None, None, None), 0, None) == "missing"
    assert judge(Difference(0.8, 0.7, 0.03, 0.6), 9, 0.09) == "unclear", "Holm’s p decides"


def test_equivalent_means_that_both_one_sided_tests_reject():
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        gaps = rng.normal(rng.uniform(-0.6, 0.6), 0.3, 6)
        found = paired_difference(gaps.tolist(), [0.0] * 6)
        above: Any = stats.ttest_1samp(gaps, -MARGIN, alternative="greater")
        below: Any = stats.ttest_1samp(gaps, MARGIN, alternative="less")
        both = max(above.pvalue, below.pvalue) <= 0.05
        assert (judge(found, 6, 1.0) == "equivalent") == both
        seen.add(both)
    assert seen == {True, False}


def test_the_seeds_that_are_asked_for_would_tell():
    """With that many seeds of the same mean and spread, eight experiments of ten come to a verdict."""
    rng = np.random.default_rng(1)
    for mean, spread in ((2.0, 3.0), (0.0, 0.6), (-0.9, 0.8)):
        few = mean + spread * np.array([-1, 1, 0]) / np.std([-1, 1, 0], ddof=1)
        count = seeds_needed(few.tolist(), [0.0] * 3)
        told = 0
        for _ in range(1000):
            found = paired_difference(rng.normal(mean, spread, count).tolist(), [0.0] * count)
            told += judge(found, count, found.p) != "unclear"
        assert 0.75 < told / 1000 < 0.95, (mean, count)
    assert seeds_needed([0.0, 50.0, -50.0], [0.0] * 3) == MOST_SEEDS_ASKED + 1
    assert seeds_needed([1.0, 1.0], [0.0, 0.0]) == 3
    assert seeds_needed([1.0], [0.0]) == 3
    assert seeds_needed([1.0] * 5, [0.0] * 5) == 6, "without spread, one more may show some"
    counts = [seeds_needed([1.0, 2.5, 3.0], [0.0] * 3, comparisons) for comparisons in (1, 9)]
    assert counts[0] < counts[1], "more comparisons need more seeds"


@pytest.mark.parametrize("spread", [0.2, 0.4, 0.6, 0.9, 1.5, 4.0])
@pytest.mark.parametrize("mean", [0.0, 0.3, 1.0])
def test_the_intervals_hold_although_the_results_decide_when_to_stop(mean, spread):
    """`--seeds auto` stops at the first look with a clear verdict. The interval of the last look covers the true
    difference in at least 95 % of the experiments, and equal arms are called better or worse in at most 5 %."""
    rng, looks, repeats = np.random.default_rng(2), experiment.LOOKS, 2000
    gaps = rng.normal(mean, spread, (repeats, looks[-1]))
    covered, alarms = np.zeros(repeats, bool), np.zeros(repeats, bool)
    running = np.arange(repeats)
    for count in looks:
        part = gaps[running, :count]
        means, errors = part.mean(axis=1), part.std(axis=1, ddof=1) / math.sqrt(count)
        level = 0.05 / len(looks)  # as paired_difference does it, which is checked here:
        half = stats.t.isf(level / 2, count - 1) * errors
        one = paired_difference(part[0].tolist(), [0.0] * count, len(looks))
        assert (one.mean, one.half) == (pytest.approx(means[0]), pytest.approx(half[0]))
        covered[running], alarms[running] = abs(means - mean) <= half, abs(means) > half
        clear = (abs(means) > half) | (abs(means) + stats.t.isf(level, count - 1) * errors <= MARGIN)
        running = running[~clear]
        if not len(running):
            break
    assert covered.mean() >= 0.945  # two standard errors of 2,000 repetitions are 0.01
    assert mean or alarms.mean() <= 0.06


def test_chance_is_the_largest_class_and_what_a_test_set_cannot_tell_from_it():
    facts = data_facts(1000, 900, 10, 0.101)
    assert (facts.chance, facts.points_per_sample) == (pytest.approx(10.1), pytest.approx(100 / 900))
    assert at_chance(9.89, facts)
    assert at_chance(12.0, facts), "within three standard errors, 3.01 points"
    assert not at_chance(13.2, facts)
    assert at_chance(89.0, data_facts(1000, 900, 2, 0.9)), "always the larger class"
    assert not at_chance(11.5, data_facts(None, None, 10, None))
    assert not at_chance(9.0, data_facts(None, None, None, None))
