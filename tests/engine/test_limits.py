"""Warm starts, budgets, quotas and fractions: the same picks as the plain loops of the specification."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from tests import specification
from tests.conftest import examples, pools
from tests.engine.greedy.test_specification import fast, in_torch
from tests.specification import Specification

OBJECTIVES = [
    smdl.Objective(redundancy=1.0, uncertainty=0.25),
    smdl.Objective(facility_location=1.0),
    smdl.Objective(facility_location=1.0, sample=3),
    smdl.Objective(log_determinant=1.0),
    smdl.Objective(class_balance=0.5, redundancy=0.5),
]
MODULAR = smdl.Objective(uncertainty=1.0)
few = examples(15)


def rows(n: int = 60) -> np.ndarray:
    return np.random.default_rng(4).random((n, 5), np.float32)


@pytest.mark.parametrize("path", [fast, in_torch])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@few
@given(pool=pools(smallest=4, dtypes=(np.float32,)), data=st.data())
def test_a_warm_start_picks_what_the_equations_pick(path, objective, pool, data):
    initial = data.draw(st.lists(st.integers(0, len(pool) - 1), min_size=1, max_size=len(pool) - 2, unique=True))
    size = data.draw(st.integers(1, len(pool) - len(initial)))
    optimizer = data.draw(st.sampled_from(["naive", "lazy", "stochastic"]))
    partitions = data.draw(st.integers(1, 2))
    chosen = path(pool, objective, size, optimizer, initial=initial, seed=5, partitions=partitions)
    wanted = specification.select(pool, objective, size, optimizer, partitions, seed=5, initial=initial)
    assert chosen.indices.tolist() == wanted[0]
    np.testing.assert_allclose(chosen.gains, wanted[1], rtol=1e-9, atol=1e-12)
    assert not set(chosen.indices) & set(initial)


@pytest.mark.parametrize("path", [fast, in_torch])
@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_a_warm_start_holds_in_parts_of_different_sizes(path, objective):
    rng = np.random.default_rng(1)
    for trial in range(20):
        features = rng.integers(0, 6, (13, 2)).astype(np.float32)
        pool = smdl.Pool(features, rng.multinomial(8, [0.5, 0.5], 13) / 8, rng.integers(0, 2, 13))
        chosen = path(pool, objective, 2, "naive", initial=[3, 0, 7, 9], seed=trial, partitions=2)
        assert (
            chosen.indices.tolist()
            == specification.select(pool, objective, 2, "naive", 2, seed=trial, initial=[3, 0, 7, 9])[0]
        )


@pytest.mark.parametrize("path", [fast, in_torch])
@pytest.mark.parametrize("objective", [*OBJECTIVES, MODULAR], ids=repr)
@few
@given(pool=pools(smallest=2, dtypes=(np.float32,)), data=st.data())
def test_costs_and_groups_pick_what_the_equations_pick(path, objective, pool, data):
    n = len(pool)
    costs = data.draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=n, max_size=n))
    groups = data.draw(st.lists(st.integers(0, 1), min_size=n, max_size=n))
    budget, quotas = data.draw(st.sampled_from([4.0, 6.5, 20.0])), {0: data.draw(st.integers(1, 4)), 1: 2}
    quotas = {group: quota for group, quota in quotas.items() if group in groups}
    optimizer = data.draw(st.sampled_from(["naive", "lazy", "auto"]))
    limits = {"costs": costs, "budget": budget, "groups": groups, "per_group": quotas}
    chosen = path(pool, objective, None, optimizer, **limits)
    wanted = specification.limited(Specification(pool, objective), costs, budget, groups, [quotas.get(0, 0), 2])
    assert chosen.indices.tolist() == wanted[0]
    np.testing.assert_allclose(chosen.gains, wanted[1], rtol=1e-9, atol=1e-12)


def test_a_selection_resumes_from_its_first_half():
    whole = smdl.select(rows(), "facility_location", 20)
    rest = smdl.select(rows(), "facility_location", 10, initial=whole.indices[:10])
    assert rest.indices.tolist() == whole.indices[10:].tolist()
    assert rest.terms == pytest.approx({"facility_location": rest.value})


def test_cheap_samples_are_preferred_and_the_budget_holds():
    costs = np.where(np.arange(60) < 30, 1.0, 10.0)
    chosen = smdl.select(rows(), "facility_location", costs=costs, budget=15.0)
    assert costs[chosen.indices].sum() <= 15.0
    assert (chosen.indices < 30).all()
    assert len(smdl.select(rows(), "facility_location", 4, costs=costs, budget=15.0)) == 4


def test_quotas_hold_for_named_groups():
    groups = np.array(["cat", "dog", "owl"])[np.arange(60) % 3]
    chosen = smdl.select(rows(), "redundancy", groups=groups, per_group={"cat": 2, "owl": 5})
    assert dict(zip(*np.unique(groups[chosen.indices], return_counts=True), strict=True)) == {"cat": 2, "owl": 5}
    assert len(smdl.select(rows(), "redundancy", groups=groups, per_group=4)) == 12


def test_a_missing_group_is_refused():
    with pytest.raises(TypeError, match="groups must be a name or a number per sample, got None for sample 1"):
        smdl.select(rows(), "redundancy", groups=["cat", None] * 30, per_group=4)


@pytest.mark.parametrize("optimizer", ["lazy", "naive"])
@pytest.mark.parametrize("objective", [smdl.Objective(redundancy=1.0), smdl.Objective(facility_location=1.0)], ids=repr)
def test_quotas_and_costs_hold_among_many_blocks(objective, optimizer):
    """More samples than the plain loops can handle. Most groups are full before the last pick."""
    rng = np.random.default_rng(3)
    features, groups = rng.integers(0, 5, (700, 4)).astype(np.float32), rng.integers(0, 12, 700)
    limits = {"groups": groups, "per_group": {g: g % 5 for g in range(12)}}
    for more in ({}, {"costs": rng.choice([0.5, 1.0, 3.0], 700), "budget": 18.5}, {"initial": [5, 600, 20]}):
        chosen = fast(features, objective, None, optimizer, **limits, **more)
        plain = in_torch(features, objective, None, "naive", **limits, **more)
        assert chosen.indices.tolist() == plain.indices.tolist()
        np.testing.assert_allclose(chosen.gains, plain.gains, rtol=1e-9)
        counts = np.bincount(groups[chosen.indices], minlength=12)
        assert (counts <= np.arange(12) % 5).all()
        assert "costs" in more or (counts == np.arange(12) % 5).all()


def test_the_size_penalty_stops_a_limited_selection_on_every_path():
    limits = {"groups": np.arange(60) % 3, "per_group": 10, "size_penalty": 0.3}
    chosen, plain = (
        path(rows(), smdl.Objective(redundancy=1.0), (2, 25), "lazy", **limits) for path in (fast, in_torch)
    )
    assert 2 < len(chosen) < 25
    assert chosen.indices.tolist() == plain.indices.tolist()


def test_a_fraction_is_a_share_of_the_candidates():
    assert len(smdl.select(rows(), "redundancy", fraction=0.1)) == 6
    assert len(smdl.select(rows(), "redundancy", fraction=0.1, among=range(11))) == 2
    assert len(smdl.select(rows(), "redundancy", fraction=1.0)) == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 3, "fraction": 0.5}, "size and fraction both"),
        ({"fraction": 0.0}, r"fraction must be a number in \(0, 1\], got 0.0"),
        ({"fraction": 1.5}, r"fraction must be a number in \(0, 1\], got 1.5"),
        ({"size": 3, "costs": np.ones(60)}, "costs and budget belong together"),
        ({"size": 3, "groups": np.ones(60)}, "groups and per_group .or shares. belong together"),
        ({"costs": np.zeros(60), "budget": 1.0}, "costs must be finite numbers above 0, got 0.0"),
        ({"costs": np.full(60, np.inf), "budget": 1.0}, "costs must be finite numbers above 0, got inf"),
        ({"costs": np.ones(5), "budget": 1.0}, "costs must have one value per sample: 60 samples"),
        ({"costs": np.ones(60), "budget": 0.5}, "leave no candidate"),
        ({"costs": np.ones(60), "budget": -1.0}, "budget must be a positive number, got -1.0"),
        ({"groups": ["a"] * 60, "per_group": {"b": 1}}, "per_group names the group 'b', which no sample has"),
        ({"groups": ["a"] * 60, "per_group": 2, "partitions": 2}, "partitions=1"),
        ({"size": 3, "initial": [60]}, "initial must be indices in 0..59, got 60"),
        ({"size": 58, "initial": [1, 2, 3]}, "size must be at most the 57 candidates, got 58"),
    ],
)
def test_bad_limits_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        smdl.select(rows(), "redundancy", **options)
