"""Facility location about a query, and over similarities that the user has computed."""

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
@given(pool=pools(smallest=2, dtypes=(np.float32,)), distance=st.sampled_from(EXACT), data=st.data())
def test_a_query_picks_what_the_equations_pick(path, options, pool, distance, data):
    width, rng = pool.features.shape[1], np.random.default_rng(data.draw(st.integers(0, 99)))
    pool = smdl.Pool(pool.features, query=rng.integers(0, 4, (2, width)).astype(np.float32))
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


def test_picks_are_about_the_query():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    cluster = rng.integers(0, 3, 300)
    features = (centres[cluster] + rng.normal(size=(300, 2))).astype(np.float32)
    about = smdl.select(smdl.Pool(features, query=centres[1:2]), LOCATION, 3)
    assert cluster[about.indices[0]] == 1
    assert set(cluster[smdl.select(features, LOCATION, 3).indices]) == {0, 1, 2}


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
    with pytest.raises(ValueError, match=r"similarities must have shape \(N, N\), got \(2, 3\)"):
        smdl.Pool.from_similarities(np.ones((2, 3)))
    with pytest.raises(ValueError, match="similarities must be ≥ 0, got -1"):
        smdl.Pool.from_similarities(-np.eye(3))
    pool = smdl.Pool.from_similarities(np.eye(3))
    with pytest.raises(ValueError, match="redundancy needs features"):
        smdl.select(pool, "redundancy", 1)
    with pytest.raises(ValueError, match="neighbours, sample and space cannot be set"):
        smdl.select(pool, smdl.Objective(facility_location=1.0, neighbours=2), 1)
