"""Facility location about a query or away from other samples, and over similarities that the user has computed."""

from unittest import mock

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine import geometry
from tests import specification
from tests.conftest import examples, pools
from tests.engine.greedy.test_specification import fast, in_torch

LOCATION = smdl.Objective(facility_location=1.0)
few = examples(15)
#: Distances without rounding on a grid: with others, two samples that are equally good may take turns.
EXACT = ("euclidean", "gaussian")


@pytest.mark.parametrize("path", [fast, in_torch])
@pytest.mark.parametrize("options", [{}, {"neighbours": 2}, {"sample": 3}, {"without": "matrix"}], ids=str)
@few
@given(
    pool=pools(smallest=2, dtypes=(np.float32,)),
    distance=st.sampled_from(EXACT),
    names=st.sampled_from([("query",), ("away_from",), ("query", "away_from")]),
    data=st.data(),
)
def test_a_query_and_away_from_pick_what_the_equations_pick(path, options, pool, distance, names, data):
    width, rng = pool.features.shape[1], np.random.default_rng(data.draw(st.integers(0, 99)))
    pool = pool.changed(**{name: rng.integers(0, 4, (2, width)).astype(np.float32) for name in names})
    options = dict(options)
    holds = options.pop("without", None) is None
    objective, size = (
        smdl.Objective(facility_location=1.0, distance=distance, **options),
        data.draw(st.integers(1, len(pool))),
    )
    with mock.patch.object(geometry, "holds_matrix", return_value=holds):
        chosen = path(pool, objective, size, "lazy", seed=3)
    wanted = specification.select(pool, objective, size, "naive", seed=3)
    assert chosen.indices.tolist() == wanted[0]
    np.testing.assert_allclose(chosen.gains, wanted[1], rtol=1e-9, atol=1e-12)


CENTRES = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
CLUSTER = np.random.default_rng(0).integers(0, 3, 300)
FEATURES = (CENTRES[CLUSTER] + np.random.default_rng(1).normal(size=(300, 2))).astype(np.float32)


def test_picks_are_about_the_query():
    about = smdl.select(FEATURES, LOCATION, 3, query=CENTRES[1:2])
    assert CLUSTER[about.indices[0]] == 1
    assert set(CLUSTER[smdl.select(FEATURES, LOCATION, 3).indices]) == {0, 1, 2}


@pytest.mark.parametrize("options", [{}, {"neighbours": 20}, {"sample": 100}], ids=str)
def test_picks_are_away_from_what_is_there_already(options):
    objective = smdl.Objective(facility_location=1.0, **options)
    chosen = smdl.select(FEATURES, objective, 2, away_from=CENTRES[:2])
    assert CLUSTER[chosen.indices[0]] == 2
    about = smdl.select(FEATURES, objective, 1, query=CENTRES[:2], away_from=CENTRES[:1])
    assert CLUSTER[about.indices[0]] == 1, "with both: about the query, as far as it is not there already"


def test_away_from_rows_of_the_pool_is_to_start_with_them():
    before = [3, 50, 120]
    for optimizer in ("lazy", "stochastic", "subset"):
        started = smdl.select(FEATURES, LOCATION, 5, initial=before, optimizer=optimizer)
        kept_away = smdl.select(FEATURES, LOCATION, 5, away_from=FEATURES[before], exclude=before, optimizer=optimizer)
        assert kept_away.indices.tolist() == started.indices.tolist()
        np.testing.assert_allclose(kept_away.gains, started.gains, rtol=1e-6)


def test_one_pool_may_be_asked_about_several_queries():
    pool = smdl.Pool(FEATURES)
    for cluster in (2, 1, 0):
        assert CLUSTER[smdl.select(pool, LOCATION, 1, query=CENTRES[cluster : cluster + 1]).indices[0]] == cluster
        assert CLUSTER[smdl.select(pool, LOCATION, 1, away_from=np.delete(CENTRES, cluster, 0)).indices[0]] == cluster


def test_every_verb_takes_query_and_away_from():
    others = {"query": CENTRES[:2], "away_from": CENTRES[:1]}
    chosen = smdl.select(FEATURES, LOCATION, 4, **others)
    assert smdl.Selector(LOCATION, 4, **others).fit(FEATURES).indices_.tolist() == chosen.indices.tolist()
    assert smdl.evaluate(FEATURES, LOCATION, chosen.indices, **others).value == pytest.approx(chosen.value)
    assert smdl.evaluate(FEATURES, LOCATION, chosen.indices).value > 2 * chosen.value
    many = np.zeros((10_000, 2))
    assert smdl.explain(FEATURES, LOCATION, 4, away_from=many).seconds > smdl.explain(FEATURES, LOCATION, 4).seconds
    assert chosen.shares is not None
    assert chosen.shares.sum() < 300, "samples that are represented already belong to no pick"


@pytest.mark.parametrize("others", [{"away_from": CENTRES[:1]}, {"query": CENTRES[:2]}], ids=str)
def test_the_value_on_other_samples_knows_query_and_away_from(others):
    objective = smdl.Objective(facility_location=1.0, sample=100)
    chosen = smdl.select(FEATURES, objective, 4, **others)
    whole = smdl.evaluate(FEATURES, LOCATION, chosen.indices, **others).value
    assert chosen.held_out == pytest.approx(whole, rel=0.15)


@few
@given(data=st.data())
def test_given_similarities_pick_what_the_equations_pick(data):
    n, rng = data.draw(st.integers(1, 12)), np.random.default_rng(data.draw(st.integers(0, 99)))
    table = rng.integers(0, 5, (n, n)) / 4.0 * (rng.random((n, n)) < 0.6)
    size = data.draw(st.integers(1, n))
    dense = smdl.Pool.from_similarities(torch.from_numpy(table))
    wanted, gains = specification.select(dense, LOCATION, size, "naive", seed=1)
    for pool in (dense, smdl.Pool.from_similarities(scipy.sparse.csr_matrix(table))):
        for path in (fast, in_torch):
            chosen = path(pool, LOCATION, size, "lazy", seed=1)
            assert chosen.indices.tolist() == wanted
            np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("form", ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"])
def test_every_sparse_form_of_similarities_is_read_and_left_unchanged(form):
    table = np.array([[1.0, 0.5, 0.0], [0.5, 1.0, 0.25], [0.0, 0.25, 1.0]])
    given = scipy.sparse.csr_matrix(table).asformat(form)
    chosen = smdl.select(smdl.Pool.from_similarities(given), size=2)
    assert chosen.indices.tolist() == smdl.select(smdl.Pool.from_similarities(table), size=2).indices.tolist()
    np.testing.assert_array_equal(given.toarray(), table)


def test_entries_that_a_sparse_matrix_holds_twice_are_added():
    twice = scipy.sparse.coo_matrix(([0.5, 0.5, 0.5], ([0, 0, 1], [0, 0, 1])), shape=(2, 2)).tocsr()
    twice.data, twice.indices, twice.indptr = np.array([0.5, 0.5, 0.5]), np.array([0, 0, 1]), np.array([0, 2, 3])
    assert smdl.select(smdl.Pool.from_similarities(twice), size=1).indices.tolist() == [0]
    assert twice.nnz == 3, "the caller's matrix is left unchanged"


def test_bad_queries_and_similarities_are_refused():
    with pytest.raises(ValueError, match="query must have as many columns as features: 3, got 2"):
        smdl.Pool(np.ones((4, 3)), query=np.ones((1, 2)))
    for verb in (smdl.select, smdl.explain):
        with pytest.raises(ValueError, match="away_from must have as many columns as features: 2, got 3"):
            verb(FEATURES, LOCATION, 1, away_from=np.ones((1, 3)))
        with pytest.raises(ValueError, match="query must have at least one row"):
            verb(FEATURES, LOCATION, 1, query=np.ones((0, 2)))
        with pytest.raises(ValueError, match="query must be finite"):
            verb(FEATURES, LOCATION, 1, query=[[np.nan, 1.0]])
        with pytest.raises(
            ValueError, match=r"away_from is about facility_location or .*: the objective has redundancy"
        ):
            verb(FEATURES, "redundancy", 1, away_from=CENTRES)
        with pytest.raises(ValueError, match='query needs space="features"'):
            verb(smdl.Pool(FEATURES, errors=FEATURES), "gradients", 1, query=CENTRES)
        with pytest.raises(ValueError, match="query needs features, and this pool has similarities alone"):
            verb(smdl.Pool.from_similarities(np.eye(3)), LOCATION, 1, query=np.ones((1, 1)))
    with pytest.raises(ValueError, match=r"similarities must have shape \(N, N\), got \(2, 3\)"):
        smdl.Pool.from_similarities(np.ones((2, 3)))
    with pytest.raises(ValueError, match="similarities must be ≥ 0, got -1"):
        smdl.Pool.from_similarities(-np.eye(3))
    pool = smdl.Pool.from_similarities(np.eye(3))
    with pytest.raises(ValueError, match="redundancy needs features"):
        smdl.select(pool, "redundancy", 1)
    with pytest.raises(ValueError, match="neighbours, sample and space cannot be set"):
        smdl.select(pool, smdl.Objective(facility_location=1.0, neighbours=2), 1)
