import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine.objective import as_objective
from tests.conftest import pools


def clustered(n: int = 60) -> smdl.Pool:
    rng = np.random.default_rng(3)
    return smdl.Pool(
        rng.random((n, 8)), rng.dirichlet(np.ones(4), n), rng.integers(0, 4, n), reference=rng.random((n, 5))
    )


@pytest.mark.parametrize("name", ["uncertainty", "redundancy", "mean_closeness", "feature_match"])
def test_changing_a_weight_changes_the_selection(name):
    pool, weights = clustered(), dict(smdl.Objective.paper().weights)
    before = smdl.select(pool, smdl.Objective(**weights), 10).indices
    after = smdl.select(pool, smdl.Objective(**{**weights, name: 5.0}), 10).indices
    assert before.tolist() != after.tolist()


@pytest.mark.parametrize("normalize", ["pool", "candidates"])
def test_only_the_ratio_of_the_weights_matters(normalize):
    pool = clustered()
    picks = [
        smdl.select(
            pool,
            smdl.Objective(uncertainty=0.2 * k, redundancy=0.1 * k, mean_closeness=0.5 * k, normalize=normalize),
            10,
        ).indices.tolist()
        for k in (1, 4)
    ]
    assert picks[0] == picks[1]


@pytest.mark.parametrize("distance", ["euclidean", "cosine", "correlation"])
@given(data=st.data(), power=st.integers(-5, 5), grid=st.booleans())
def test_scaling_the_features_by_a_power_of_four_changes_nothing(distance, data, power, grid):
    pool = data.draw(pools(grid=grid))
    bigger = smdl.Pool(
        pool.features * 4.0**power,
        pool.probabilities,
        pool.labels,
        reference=pool.reference * 4.0**power,  # type: ignore[operator]
    )
    for weights in (
        {"uncertainty": 0.2, "redundancy": 0.1, "mean_closeness": 0.5, "feature_match": 0.2},
        {"facility_location": 1.0},
        {"feature_coverage": 1.0},
    ):
        objective = smdl.Objective(**weights, distance=distance)
        one, other = smdl.select(pool, objective, len(pool)), smdl.select(bigger, objective, len(pool))
        assert one.indices.tolist() == other.indices.tolist()
        assert one.gains.tolist() == other.gains.tolist()


def test_presets():
    assert dict(as_objective("paper").weights) == {
        "uncertainty": 0.2,
        "mean_closeness": 0.5,
        "feature_match": 0.2,
        "redundancy": 0.1,
    }
    assert as_objective("paper_subset") == smdl.Objective.paper_subset()
    assert as_objective("gradients") == smdl.Objective(facility_location=1.0, space="gradients")
    with pytest.raises(ValueError, match="unknown objective 'papr'; did you mean 'paper'"):
        as_objective("papr")


def test_equal_objectives_share_their_scores():
    pool = clustered()
    assert smdl.Objective.paper().on(pool) is smdl.Objective.paper().on(pool)
    assert smdl.Objective.paper().on(pool) is not smdl.Objective.paper(distance="cosine").on(pool)
    assert repr(smdl.Objective(redundancy=0.5, distance="cosine")) == "Objective(redundancy=0.5, distance='cosine')"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"uncertanty": 1.0}, "unknown term 'uncertanty'; did you mean 'uncertainty'"),
        ({"redundancy": 1.0, "distance": "cosin"}, "unknown distance 'cosin'; did you mean 'cosine'"),
        ({"redundancy": 1.0, "space": "gradient"}, "unknown space 'gradient'; did you mean 'gradients'"),
        ({"redundancy": 1.0, "normalize": "all"}, "unknown normalize 'all'. Choose one of candidates, pool"),
        ({"redundancy": 1.0, "concave": "root"}, "unknown concave 'root'.* log, ratio, sqrt"),
        ({"redundancy": 1.0, "kernel": "rbf"}, "unknown kernel 'rbf'"),
        ({"redundancy": 1.0, "noise": 0.0}, "noise must be a positive number, got 0.0"),
        ({"redundancy": 1.0, "neighbours": 0}, "neighbours must be a whole number ≥ 1, got 0"),
        ({"redundancy": -0.1}, "the weight of redundancy must be a finite number ≥ 0, got -0.1"),
        ({"redundancy": float("nan")}, "the weight of redundancy must be a finite number ≥ 0, got nan"),
        ({"redundancy": 0.0, "uncertainty": 0}, "at least one weight above 0"),
        ({}, "at least one weight above 0; the terms are uncertainty, "),
    ],
)
def test_bad_options_are_refused_with_the_nearest_name(options, message):
    with pytest.raises(ValueError, match=message):
        smdl.Objective(**options)


@pytest.mark.parametrize(
    "options", [{"redundancy": "much"}, {"redundancy": True}, {"redundancy": 1.0, "neighbours": 2.5}]
)
def test_wrong_types_are_type_errors(options):
    with pytest.raises(TypeError, match="must be a"):
        smdl.Objective(**options)


def test_an_objective_is_changed_in_a_copy():
    paper = smdl.Objective.paper()
    assert paper.changed(distance="cosine") == smdl.Objective.paper(distance="cosine")
    assert paper.changed(redundancy=0.3, sigma=2.0) == smdl.Objective(redundancy=0.3, sigma=2.0)
    assert smdl.Objective.gradients().changed(uncertainty=1.0) == smdl.Objective(uncertainty=1.0)
    assert paper == smdl.Objective.paper()


@pytest.mark.parametrize(
    ("name", "need"),
    [("uncertainty", "probabilities"), ("feature_match", "reference"), ("class_balance", "labels")],
)
def test_a_term_says_what_evidence_it_lacks(name, need):
    with pytest.raises(ValueError, match=rf"{name} needs {need}: pass them as Pool\({need}=...\)"):
        smdl.select(smdl.Pool(np.ones((3, 2))), smdl.Objective(**{name: 1.0}), 1)
