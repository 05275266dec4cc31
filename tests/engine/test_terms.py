import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine.terms import TERMS
from smdl.engine.terms.term import ModularTerm
from tests.conftest import MODULAR_TERMS, OTHER_TERMS, SET_TERMS, UNIT_TERMS, objectives, pools

SUBMODULAR = tuple(name for name in SET_TERMS if TERMS[name].submodular)


def value(pool: smdl.Pool, objective: smdl.Objective, subset: list[int]) -> float:
    return smdl.evaluate(pool, objective, np.array(subset, int)).value


def test_every_term_is_in_the_property_tests():
    assert set(TERMS) == {*MODULAR_TERMS, *SET_TERMS, *UNIT_TERMS}
    assert set(SUBMODULAR) == set(SET_TERMS) - set(OTHER_TERMS)
    assert all(issubclass(TERMS[name], ModularTerm) for name in MODULAR_TERMS)


@given(pool=pools(grid=False, smallest=3), objective=objectives(set_terms=SUBMODULAR, normalize="pool"), data=st.data())
def test_submodular_terms_have_diminishing_returns_and_never_fall(pool, objective, data):
    order = data.draw(st.permutations(range(len(pool))))
    a, rest = order[0], list(order[1:])
    large = data.draw(st.integers(0, len(rest)))
    small = data.draw(st.integers(0, large))
    gain_of_small = value(pool, objective, [*rest[:small], a]) - value(pool, objective, rest[:small])
    gain_of_large = value(pool, objective, [*rest[:large], a]) - value(pool, objective, rest[:large])
    assert gain_of_small >= gain_of_large - 1e-8
    assert gain_of_large >= -1e-8


@given(pool=pools(grid=False), objective=objectives(set_terms=SUBMODULAR, normalize="pool"), data=st.data())
def test_the_value_of_a_submodular_set_does_not_depend_on_its_order(pool, objective, data):
    order = data.draw(st.permutations(range(len(pool))))[: data.draw(st.integers(0, len(pool)))]
    one, other = smdl.evaluate(pool, objective, order), smdl.evaluate(pool, objective, sorted(order))
    assert one.value == pytest.approx(other.value, abs=1e-6)
    assert one.as_printed == pytest.approx(one.value, abs=1e-6)


def printed(points: list[float], subset: list[int]) -> float:
    """Return Σ R over S as in Eq. 5, in the units of the points."""
    pool, objective = smdl.Pool(np.array(points)[:, None]), smdl.Objective(redundancy=1.0)
    return smdl.evaluate(pool, objective, subset).as_printed * objective.on(pool).geometry.metric.bound


def test_redundancy_as_printed_is_not_monotone():
    points = [0.0, 10.0, 5.0]
    assert printed(points, [0, 1]) == pytest.approx(20)
    assert printed(points, [0, 1, 2]) == pytest.approx(15)


def test_redundancy_as_printed_is_not_submodular():
    points = [0.0, 10.0, 4.0, 5.0]
    gain_of_small = printed(points, [0, 1, 3]) - printed(points, [0, 1])
    gain_of_large = printed(points, [0, 2, 1, 3]) - printed(points, [0, 2, 1])
    assert gain_of_small == pytest.approx(-5)
    assert gain_of_large == pytest.approx(-3)


def test_the_point_in_the_direction_of_the_mean_wins_mean_closeness():
    t = np.array([-4.0, -1.0, 0.5, 1.5, 6.0])
    points = np.stack([np.ones(5), t], axis=1)
    direction = np.abs(np.arctan(t) - np.arctan(points.mean(0)[1] / points.mean(0)[0]))
    assert smdl.select(smdl.Pool(points), smdl.Objective(mean_closeness=1.0), 1).indices[0] == direction.argmin()


def test_uncertainty_prefers_the_flattest_probabilities():
    pool = smdl.Pool(np.ones((3, 1)), [[0.9, 0.1], [0.5, 0.5], [1.0, 0.0]])
    selection = smdl.select(pool, smdl.Objective(uncertainty=1.0), 3)
    assert selection.indices.tolist() == [1, 0, 2]
    assert selection.gains[[0, 2]].tolist() == [1.0, 0.0]
    scores = smdl.Objective(uncertainty=1.0).on(pool).ranges["uncertainty"]
    assert scores == (0.0, pytest.approx(math.log(2)))


def test_feature_match_clamps_negative_features_and_says_so_once():
    pool = smdl.Pool(np.ones((3, 1)), reference=[[-4.0, 0.0], [1.0, 0.0], [-1.0, 4.0]])
    objective = smdl.Objective(feature_match=1.0)
    with pytest.warns(UserWarning, match="clamps negative reference features at 0: 33% of them are"):
        assert smdl.select(pool, objective, 3).indices.tolist() == [2, 1, 0]
    smdl.select(pool, objective, 3)  # warnings are errors here: a second one would raise


def test_feature_coverage_refuses_negative_features():
    with pytest.raises(ValueError, match="feature_coverage needs features ≥ 0, got -1"):
        smdl.select(smdl.Pool([[-1.0], [2.0]]), smdl.Objective(feature_coverage=1.0), 1)


def test_class_balance_takes_classes_in_turn():
    pool = smdl.Pool(np.ones((6, 1)), labels=[0, 0, 0, 0, 1, 2])
    selection = smdl.select(pool, smdl.Objective(class_balance=1.0, uncertainty=0.0), 3, seed=1)
    assert sorted(np.array([0, 0, 0, 0, 1, 2])[selection.indices]) == [0, 1, 2]


def test_log_determinant_is_the_log_determinant():
    rng = np.random.default_rng(0)
    x = rng.random((7, 3))
    objective = smdl.Objective(log_determinant=1.0, noise=0.25)
    batch = [4, 1, 6]
    volume = np.linalg.slogdet(np.eye(3) + x[batch] @ x[batch].T / 0.25)[1]
    largest = np.log1p((x**2).sum(1).max() / 0.25)
    assert smdl.evaluate(smdl.Pool(x), objective, batch).value == pytest.approx(volume / largest)


def test_facility_location_represents_every_cluster():
    """Two clusters, two picks: one pick per cluster, which represents all samples of its cluster."""
    points = np.array([[0.0], [0.1], [0.2], [9.0], [9.1]])
    selection = smdl.select(smdl.Pool(points), smdl.Objective(facility_location=1.0), 2)
    assert sorted(selection.indices // 3) == [0, 1]
    assert selection.shares is not None
    assert sorted(selection.shares) == [2, 3]
    assert smdl.select(smdl.Pool(points), smdl.Objective(redundancy=1.0), 2).shares is None


@pytest.mark.parametrize("name", TERMS)
def test_gains_are_finite_when_every_sample_is_the_same(name):
    pool = smdl.Pool(np.full((5, 4), 0.3), np.full((5, 2), 0.5), np.zeros(5, int), reference=np.full((5, 2), 0.7))
    pool = pool.changed(utility=np.full(5, 0.2))
    for distance in ("euclidean", "cosine", "correlation", "gaussian"):
        selection = smdl.select(pool, smdl.Objective(**{name: 1.0, "distance": distance}), 5)
        assert sorted(selection.indices) == [0, 1, 2, 3, 4]
        assert np.isfinite(selection.gains).all()
