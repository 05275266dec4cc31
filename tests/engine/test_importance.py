"""Facility location whose samples count by their importance."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import smdl
from smdl.engine import geometry
from smdl.engine.greedy import subset
from smdl.engine.pool import host
from tests import specification
from tests.conftest import pools
from tests.engine.greedy.test_specification import fast, in_torch

LOCATION = smdl.Objective(facility_location=1.0)
few = settings(max_examples=15)
WAYS = [{}, {"neighbours": 2}, {"sample": 3}, {"without": "matrix"}, {"space": "gradients"}, {"query": True}]


@st.composite
def weights(draw, n: int) -> np.ndarray:
    """Return importances: on a grid or not, some of them zero."""
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    found = rng.integers(0, 5, n) / 4 if draw(st.booleans()) else rng.random(n) * (rng.random(n) < 0.8)
    return found.astype(np.float32)


@pytest.mark.parametrize("path", [fast, in_torch])
@pytest.mark.parametrize("options", WAYS, ids=str)
@pytest.mark.filterwarnings("ignore:importance is 0")
@few
@given(pool=pools(smallest=2, dtypes=(np.float32,)), data=st.data())
def test_importance_picks_what_the_equations_pick(path, options, pool, data):
    options, rng = dict(options), np.random.default_rng(0)
    holds = options.pop("without", None) is None
    query = rng.integers(0, 4, (2, pool.features.shape[1])).astype(np.float32) if options.pop("query", False) else None
    given_by = data.draw(st.sampled_from(["pool", "uncertainty"]))
    options = {**options, "importance": "uncertainty"} if given_by == "uncertainty" else options
    importance = data.draw(weights(len(pool))) if given_by == "pool" else None
    pool = smdl.Pool(pool.features, pool.probabilities, pool.labels, query=query, importance=importance, bias=pool.bias)
    initial = data.draw(st.lists(st.integers(0, len(pool) - 1), max_size=len(pool) - 1, unique=True))
    objective, size = LOCATION.changed(**options), data.draw(st.integers(1, len(pool) - len(initial)))
    optimizer = data.draw(st.sampled_from(["lazy", "naive", "stochastic"]))
    with mock.patch.object(geometry, "holds_matrix", return_value=holds):
        chosen = path(pool, objective, size, optimizer, seed=3, initial=initial)
    wanted, gains = specification.select(pool, objective, size, optimizer, seed=3, initial=initial)
    assert chosen.indices.tolist() == wanted
    np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


@few
@given(pool=pools(smallest=6, largest=20, dtypes=(np.float32,)), data=st.data())
def test_the_staged_search_picks_what_the_equations_pick_with_importance(pool, data):
    pool = smdl.Pool(pool.features, importance=data.draw(weights(len(pool))) + np.float32(0.25))
    initial = data.draw(st.sampled_from([[], [1, 4]]))
    check = specification.Specification(pool, LOCATION)
    with (
        mock.patch.object(subset, "ENTRIES", 20),
        mock.patch.object(geometry, "holds_matrix", return_value=False),
    ):
        chosen = smdl.select(pool, LOCATION, 4, optimizer="subset", initial=initial)
    before = list(initial)
    for index, gain in zip(chosen.indices.tolist(), chosen.gains, strict=True):
        assert gain == pytest.approx(check.gains([index], before)[0], abs=1e-12)
        before.append(index)


@pytest.mark.parametrize("importance", [1.0, 2.0**-1000, 2.0**1000])
@pytest.mark.parametrize("options", WAYS[:4], ids=str)
def test_equal_importance_changes_no_number(options, importance):
    rng, options = np.random.default_rng(1), dict(options)
    features = rng.normal(size=(50, 5))
    with mock.patch.object(geometry, "holds_matrix", return_value=options.pop("without", None) is None):
        plain = smdl.select(features, LOCATION.changed(**options), 10)
        weighted = smdl.select(smdl.Pool(features, importance=np.full(50, importance)), LOCATION.changed(**options), 10)
    assert weighted.indices.tolist() == plain.indices.tolist()
    assert weighted.gains.tolist() == plain.gains.tolist()


@few
@given(data=st.data())
def test_given_similarities_take_importance(data):
    n, rng = data.draw(st.integers(1, 12)), np.random.default_rng(data.draw(st.integers(0, 99)))
    table = rng.integers(0, 5, (n, n)) / 4.0 * (rng.random((n, n)) < 0.6)
    importance, size = data.draw(weights(n)) + np.float32(0.25), data.draw(st.integers(1, n))
    dense = smdl.Pool.from_similarities(torch.from_numpy(table), importance=importance)
    wanted, gains = specification.select(dense, LOCATION, size, "naive", seed=1)
    for pool in (dense, smdl.Pool.from_similarities(scipy.sparse.csr_matrix(table), importance=importance)):
        for path in (fast, in_torch):
            chosen = path(pool, LOCATION, size, "lazy", seed=1)
            assert chosen.indices.tolist() == wanted
            np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


def test_evaluate_and_held_out_weigh_the_same():
    rng = np.random.default_rng(2)
    pool = smdl.Pool(rng.normal(size=(60, 3)), importance=rng.random(60))
    chosen = smdl.select(pool, LOCATION, 5)
    assert float(smdl.evaluate(pool, LOCATION, chosen.indices)) == pytest.approx(chosen.value, abs=1e-12)
    sampled = smdl.select(pool, LOCATION.changed(sample=30), 5)
    rest = pool.importance.numpy().astype(np.float64)  # type: ignore[union-attr]
    order = np.arange(60, dtype=np.int64)
    others = np.setdiff1d(order, smdl.engine.selection.Objective.on(LOCATION.changed(sample=30), pool).geometry.covered)
    best = 1 - np.linalg.norm(pool.features[:, None] - pool.features[sampled.indices][None], axis=-1).min(1) / (
        2 * np.linalg.norm(pool.features - pool.features.mean(0), axis=1).max()
    )
    assert sampled.held_out == pytest.approx((best * rest)[others].sum() / rest[others].sum(), abs=1e-5)


def test_rows_of_no_importance_need_no_representative():
    features = np.concatenate([np.zeros((50, 1)), np.full((50, 1), 9.0)])
    features += np.random.default_rng(0).normal(size=features.shape)
    importance = np.r_[np.zeros(50), np.ones(50)]
    assert (smdl.select(smdl.Pool(features, importance=importance), LOCATION, 5).indices >= 50).all()
    sampled = smdl.select(smdl.Pool(features, importance=np.eye(100)[77]), LOCATION.changed(sample=5), 1)
    assert sampled.indices.tolist() == [77], "the sample is drawn from the rows that count"


def test_limits_and_class_balance_go_with_importance():
    rng = np.random.default_rng(3)
    features, labels, importance = rng.normal(size=(40, 3)), np.arange(40) % 4, rng.random(40)
    pool = smdl.Pool(features, labels=labels, importance=importance)
    balanced = smdl.Objective(facility_location=1.0, class_balance=0.5)
    wanted, _ = specification.select(pool, balanced, 6, "naive")
    assert smdl.select(pool, balanced, 6).indices.tolist() == wanted
    limited = smdl.select(pool, LOCATION, costs=np.ones(40) + labels, budget=9.0, groups=labels, per_group=2)
    found = specification.limited(
        specification.Specification(pool, LOCATION), [1.0 + y for y in labels], 9.0, labels.tolist(), [2] * 4
    )
    assert limited.indices.tolist() == found[0]


def test_labels_is_facility_location_and_with_probabilities_the_unsure_count_more():
    assert smdl.Objective.labels() == LOCATION
    assert smdl.Objective.labels(probabilities=True) == LOCATION.changed(importance="uncertainty")
    assert smdl.Objective.labels(distance="cosine").distance == "cosine"
    assert smdl.Objective.labels(probabilities=True).needs == {"probabilities"}
    pool = smdl.Pool([[0.0], [1.0], [8.0], [9.0]], [[0.9, 0.1], [0.9, 0.1], [0.5, 0.5], [0.6, 0.4]])
    assert smdl.select(pool, smdl.Objective.labels(probabilities=True), 1).indices.tolist() == [2]


def test_importance_that_cannot_be_meant_is_refused():
    features, sure = np.arange(4.0)[:, None], np.eye(2)[[0, 1, 0, 1]]
    with pytest.raises(ValueError, match="importance must be ≥ 0, got -1"):
        smdl.Pool(features, importance=[0, 1, -1, 2])
    with pytest.raises(ValueError, match="importance must be finite, got nan at"):
        smdl.Pool(features, importance=[0, 1, float("nan"), 2])
    with pytest.raises(ValueError, match="one row per sample: 4 features, 3 importance"):
        smdl.Pool(features, importance=[0, 1, 2])
    with pytest.raises(ValueError, match="both given: choose one"):
        smdl.select(smdl.Pool(features, sure, importance=np.ones(4)), smdl.Objective.labels(probabilities=True), 1)
    with pytest.raises(ValueError, match="needs probabilities"):
        smdl.select(features, smdl.Objective.labels(probabilities=True), 1)
    with pytest.raises(ValueError, match="give facility_location a weight"):
        smdl.Objective(redundancy=1.0, importance="uncertainty")
    with pytest.raises(ValueError, match="importance"):
        smdl.Objective(facility_location=1.0, importance="loss")


def test_no_importance_at_all_counts_as_one_and_says_so():
    features, sure = np.arange(4.0)[:, None], np.eye(2)[[0, 1, 0, 1]]
    plain = smdl.select(features, LOCATION, 2).indices.tolist()
    with pytest.warns(UserWarning, match="importance is 0 for every sample"):
        assert smdl.select(smdl.Pool(features, importance=np.zeros(4)), LOCATION, 2).indices.tolist() == plain
    with pytest.warns(UserWarning, match="importance is 0 for every sample"):
        chosen = smdl.select(smdl.Pool(features, sure), smdl.Objective.labels(probabilities=True), 2)
    assert chosen.indices.tolist() == plain


@pytest.mark.parametrize("options", [{}, {"neighbours": 4}], ids=str)
def test_a_changed_pool_computes_no_similarity_again(options):
    rng = np.random.default_rng(4)
    features, first, second = rng.normal(size=(50, 3)), rng.random(50), rng.random(50)
    pool, objective = smdl.Pool(features, importance=first), LOCATION.changed(**options)
    smdl.select(pool, objective, 5)
    with (
        mock.patch.object(geometry, "similarity_matrix", side_effect=AssertionError("computed again")),
        mock.patch.object(geometry.neighbours, "find", side_effect=AssertionError("computed again")),
    ):
        chosen = smdl.select(pool.changed(importance=second), objective, 5)
    fresh = smdl.select(smdl.Pool(features, importance=second), objective, 5)
    assert chosen.indices.tolist() == fresh.indices.tolist()
    assert chosen.gains.tolist() == fresh.gains.tolist()
    assert chosen.recall == fresh.recall


def test_a_changed_pool_keeps_the_other_columns():
    pool = smdl.Pool([[0.0], [1.0]], [[0.5, 0.5], [0.25, 0.75]], [0, 1], losses=[1.0, 2.0], bias=False)
    twin = pool.changed(labels=[1, 1])
    assert (host(twin.labels).tolist(), host(pool.labels).tolist()) == ([1, 1], [0, 1])
    assert host(twin.losses).tolist() == [1.0, 2.0]
    assert (twin.bias, twin.is_torch) == (False, False)
    with pytest.raises(ValueError, match="did you mean"):
        pool.changed(label=[1, 1])
