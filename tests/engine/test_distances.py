"""The scalar, vectorised and compiled forms of every distance agree, over features and over gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine.jit import compiled
from smdl.engine.similarity import distance, similarity_matrix
from tests.conftest import pools
from tests.engine.greedy.test_specification import fast, in_torch
from tests.specification import DISTANCES, Specification, select


@compiled
def all_pairs(points):
    n = len(points.rows)
    out = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            out[i, j] = distance(points, i, j)
    return out


@pytest.mark.parametrize("space", ["features", "gradients"])
@pytest.mark.parametrize("name", DISTANCES)
@given(data=st.data(), grid=st.booleans())
def test_scalar_vectorised_and_compiled_forms_agree(name, space, data, grid):
    pool = data.draw(pools(grid=grid))
    objective = smdl.Objective(redundancy=1.0, distance=name, space=space)
    problem, check = objective.on(pool), Specification(pool, objective)
    every = torch.arange(len(pool))
    vectorised = problem.geometry.metric.between(every[:, None], every[None, :]).numpy()
    scalar = np.array([[check.pair(u, v) for v in check.points] for u in check.points])
    tolerance = 1e-6 * (problem.geometry.metric.bound or 1.0)
    np.testing.assert_allclose(vectorised, scalar, rtol=1e-6, atol=tolerance)
    np.testing.assert_allclose(all_pairs(problem.geometry.points), scalar, rtol=1e-6, atol=tolerance)
    assert scalar.max() <= problem.geometry.metric.bound * (1 + 1e-6) + tolerance, "D is at least every distance"


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("n", [1, 2, 5, 15, 16, 17, 35, 64])
def test_all_similarities_over_gradients_are_those_of_the_pairs(n, classes):
    """The loops over all pairs take four at a time, and a multiple of LANES."""
    rng = np.random.default_rng(n)
    features, labels = rng.normal(size=(n, 7)).astype(np.float32), rng.integers(0, classes, n)
    pool = smdl.Pool(features, rng.dirichlet(np.ones(classes), n), labels)
    points = smdl.Objective.gradients().on(pool).geometry.points
    wanted = 1 - all_pairs(points) / points.bound
    np.testing.assert_allclose(similarity_matrix(points), wanted, atol=2e-7)
    assert (similarity_matrix(points) == similarity_matrix(points).T).all()


@pytest.mark.parametrize("name", DISTANCES)
def test_points_far_from_the_origin_keep_their_distances(name):
    """‖u‖² + ‖v‖² − 2⟨u, v⟩ in float32 would find no difference between these points."""
    rows = np.float32(4096) + np.eye(4, dtype=np.float32)
    problem = smdl.Objective(redundancy=1.0, distance=name, sigma=1.0).on(smdl.Pool(rows))
    i = torch.arange(4)
    gaps = problem.geometry.metric.between(i[:, None], i[None, :]).numpy()
    scalar = np.array([[DISTANCES[name](u, v) for v in rows] for u in rows])
    np.testing.assert_allclose(gaps, scalar, rtol=1e-6, atol=1e-7)
    if name in ("euclidean", "gaussian"):
        assert gaps[0, 1] > 0.1


def test_neighbours_are_the_nearest_with_ties_to_the_lower_index():
    pool = smdl.Pool(np.array([[0.0], [1.0], [2.0], [3.0], [1.0]]))
    problem = smdl.Objective(facility_location=1.0, neighbours=3).on(pool)
    graph = problem.geometry.graph
    assert graph is not None
    assert graph.neighbours.tolist() == [[0, 1, 4], [1, 4, 0], [2, 1, 3], [3, 2, 1], [4, 1, 0]]
    dense = similarity_matrix(problem.geometry.points)
    for i, row in enumerate(graph.neighbours):
        assert graph.similarities[i].tolist() == dense[i, row].tolist()


@pytest.mark.parametrize("distance", ["cosine", "correlation"])
@pytest.mark.parametrize("space", ["features", "gradients"])
def test_parallel_points_are_equally_far_whatever_their_length(space, distance):
    """Without a grid, the last digit of √2 · √18 decides which of them is nearer."""
    lengths = np.arange(1, 9, dtype=np.float32)
    features = lengths[:, None] * np.float32([1, 1, 3, 4]) if space == "features" else np.zeros((8, 1), np.float32)
    right = np.float32(1) - lengths / 16
    pool = smdl.Pool(features, np.stack([right, 1 - right], 1), np.zeros(8, np.int64))
    objective = smdl.Objective(facility_location=1.0, distance=distance, space=space, neighbours=3)
    geometry, every = objective.on(pool).geometry, torch.arange(8)
    assert not geometry.metric.between(every[:, None], every[None, :]).any()
    assert not all_pairs(geometry.points).any()
    assert geometry.graph is not None
    assert geometry.graph.neighbours[:, 1:].tolist() == [[1, 2], [0, 2], *[[0, 1]] * 6]


@pytest.mark.parametrize("path", [fast, in_torch])
def test_three_parallel_gradients_pick_what_the_equations_pick(path):
    probabilities = np.array([[0.5, 0.5], [0.5, 0.5], [0.625, 0.375]])
    pool = smdl.Pool(np.zeros((3, 1)), probabilities, [0, 0, 0])
    objective = smdl.Objective(facility_location=0.1, distance="cosine", space="gradients", neighbours=2)
    for seed in range(4):
        assert path(pool, objective, 2, "lazy", seed=seed).indices.tolist() == select(pool, objective, 2, seed=seed)[0]


def test_the_cosine_of_a_zero_vector_is_zero():
    for name in ("cosine", "correlation"):
        assert DISTANCES[name]([0.0, 0.0], [1.0, 2.0]) == 1.0


@pytest.mark.parametrize("sigma", [0, -1.0, float("nan"), float("inf")])
def test_a_bad_sigma_is_refused(sigma):
    with pytest.raises(ValueError, match="sigma must be a positive number"):
        smdl.Objective(redundancy=1.0, distance="gaussian", sigma=sigma)


def test_constant_rows_correlate_with_nothing():
    rows = np.full((2, 3), 0.1)
    problem = smdl.Objective(redundancy=1.0, distance="correlation").on(smdl.Pool(rows))
    assert DISTANCES["correlation"](rows[0], rows[1]) == 1.0
    assert all_pairs(problem.geometry.points).tolist() == [[1.0, 1.0], [1.0, 1.0]]
