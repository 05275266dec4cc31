"""Shares of groups: picks are divided as asked, within limits, and nothing is lost where a group is too small."""

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine.shares import quotas_of_shares
from tests.conftest import examples

X = np.random.default_rng(0).normal(size=(100, 3))
G = np.array(["a"] * 70 + ["b"] * 20 + ["c"] * 10)


def counted(**options):
    found = smdl.select(X, "facility_location", groups=G, **{"size": 20, **options}).indices
    return dict(zip(*(each.tolist() for each in np.unique(G[found], return_counts=True)), strict=True))


def test_shares_divide_the_picks():
    assert counted(shares="uniform", size=18) == {"a": 6, "b": 6, "c": 6}
    assert counted(shares="input") == {"a": 14, "b": 4, "c": 2}
    assert counted(shares={"a": 1, "c": 3}, size=12) == {"a": 3, "c": 9}
    selector = smdl.Selector("facility_location", 18, groups=G, shares="uniform").fit(X)
    assert np.unique(G[selector.indices_], return_counts=True)[1].tolist() == [6, 6, 6]
    assert counted(shares="input", at_least=3) == {"a": 13, "b": 4, "c": 3}
    assert counted(shares="input", per_group={"a": 8}) == {"a": 8, "b": 8, "c": 4}
    assert counted(shares="uniform", size=None, fraction=0.03) == {"a": 1, "b": 1, "c": 1}


def test_a_group_that_is_too_small_gives_all_it_has():
    with pytest.warns(UserWarning, match=r"1 group has fewer candidates than asked for: 'c' \(10 of 20\)"):
        assert counted(shares="uniform", size=60) == {"a": 30, "b": 20, "c": 10}
    with pytest.warns(UserWarning, match=r"1 group has fewer candidates than asked for: 'c' \(10 of 15\)"):
        assert counted(shares="input", at_least=15, size=60) == {"a": 35, "b": 15, "c": 10}


@examples(60)
@given(st.data())
def test_quotas_are_as_near_to_the_shares_as_whole_numbers_can_be(data):
    """Every other division within the limits is at least as far from the limited shares (largest remainders)."""
    groups = data.draw(st.integers(1, 3))
    counts = np.array(data.draw(st.lists(st.integers(0, 6), min_size=groups, max_size=groups)))
    shares = {g: data.draw(st.integers(1, 4)) for g in range(groups)}
    least = data.draw(st.integers(0, 2))
    low = np.minimum(least, counts)
    size = data.draw(st.integers(int(low.sum()), int(counts.sum())))
    if size == 0:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = quotas_of_shares(shares, list(range(groups)), counts, size, at_least=least)
    assert found.sum() == size
    assert (low <= found).all()
    assert (found <= counts).all()
    weights = np.array([shares[g] for g in range(groups)])
    for taken, given_to in itertools.permutations(range(groups), 2):  # moving a pick never helps both groups
        if found[taken] > low[taken] and found[given_to] < counts[given_to]:
            assert (found[taken] - 1) / weights[taken] <= (found[given_to] + 1) / weights[given_to] + 1e-9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shares": "unifrom"}, "shares must be uniform, input, or a share per group, got 'unifrom'"),
        ({"shares": {"d": 1}}, "shares names the group 'd', which no candidate has"),
        ({"shares": {"a": -1}}, "a number ≥ 0"),
        ({"shares": {"a": 0}}, "shares must give at least one group more than 0"),
        ({"shares": {"c": 1}}, "size must be at most 10: the groups with a share may give no more, got 20"),
        ({"shares": "input", "at_least": 8}, "size must be at least 24"),
        ({"shares": "input", "at_least": 3, "per_group": 2}, "at_least must not be above per_group"),
        ({"at_least": 3, "per_group": 9}, "at_least needs shares"),
        ({"shares": "input", "size": (5, 10), "size_penalty": 0.1}, "a number where shares are given"),
    ],
)
def test_bad_shares_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        counted(**options)


def test_shares_need_groups():
    with pytest.raises(ValueError, match="belong together"):
        smdl.select(X, size=5, shares="uniform")
