"""Blocks of similarities by matrix multiplication agree with distances computed from differences."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine import blocks as module
from smdl.engine.blocks import Blocks
from smdl.engine.distances import DISTANCES
from smdl.engine.similarity import Graph, similarity_matrix
from tests.conftest import examples, pools


def blocks_of(pool: smdl.Pool, **options: object) -> Blocks:
    return smdl.Objective(facility_location=1.0, **options).on(pool).geometry.blocks  # type: ignore[arg-type]


def exact(pool: smdl.Pool, **options: object) -> np.ndarray:
    return similarity_matrix(smdl.Objective(facility_location=1.0, **options).on(pool).geometry.points)  # type: ignore[arg-type]


def in_torch(blocks: Blocks) -> torch.Tensor:
    """Return the similarities of all pairs as another device than the CPU would compute them."""
    side = blocks.side(slice(None))
    return blocks._to_similarities(blocks._gaps(side, side))


@pytest.mark.parametrize("space", ["features", "gradients"])
@pytest.mark.parametrize("distance", DISTANCES)
@examples(25)
@given(pool=pools(smallest=2, dtypes=(np.float32,)))
def test_blocks_are_exact_on_a_dyadic_grid(distance, space, pool):
    blocks = blocks_of(pool, distance=distance, space=space)
    if blocks._metric.bound > 0:
        wanted = exact(pool, distance=distance, space=space)
        assert (blocks.matrix().numpy() == wanted).all()
        assert (in_torch(blocks).numpy() == wanted).all()


@pytest.mark.parametrize("space", ["features", "gradients"])
@pytest.mark.parametrize("distance", DISTANCES)
@examples(25)
@given(
    seed=st.integers(0, 99),
    offset=st.sampled_from([0.0, 100.0]),
    spread=st.sampled_from([1e-4, 1e-2, 1.0]),
    width=st.sampled_from([3, 40]),
)
def test_blocks_are_within_the_tolerance_on_arbitrary_floats(distance, space, seed, offset, spread, width):
    """Near pairs, pairs of copies, and points far from the origin."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(4, width))[rng.integers(0, 4, 60)]
    rows = (offset + centres + spread * rng.normal(size=(60, width))).astype(np.float32)
    rows[1] = rows[0]
    pool = smdl.Pool(rows, rng.dirichlet(np.ones(3), 60).astype(np.float32), rng.integers(0, 3, 60))
    blocks, wanted = blocks_of(pool, distance=distance, space=space), exact(pool, distance=distance, space=space)
    np.testing.assert_allclose(blocks.matrix().numpy(), wanted, atol=2e-6)
    np.testing.assert_allclose(in_torch(blocks).numpy(), wanted, atol=2e-6)


@pytest.mark.parametrize("space", ["features", "gradients"])
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("size", [1e-90, 1e77])
def test_blocks_hold_numbers_beyond_the_range_of_float32(distance, space, size):
    rng = np.random.default_rng(2)
    rows = size * rng.normal(size=(40, 5)) * 10.0 ** -rng.integers(0, 9, (40, 1))
    pool = smdl.Pool(rows, rng.dirichlet(np.ones(3), 40), rng.integers(0, 3, 40), bias=False)
    found = blocks_of(pool, distance=distance, space=space).matrix().numpy()
    np.testing.assert_allclose(found, exact(pool, distance=distance, space=space), atol=2e-6)


def test_without_the_correction_of_near_pairs_the_tolerance_would_not_hold():
    rows = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    rows[1] = rows[0] * (1 + 1e-5)
    with mock.patch.object(module, "NEAR", 0.0):
        careless = blocks_of(smdl.Pool(rows)).matrix().numpy()
    assert np.abs(careless - exact(smdl.Pool(rows))).max() > 1e-5


@pytest.mark.parametrize("n", [511, 513, 2049])
def test_a_matrix_of_several_blocks_is_whole_symmetric_and_the_same_for_any_number_of_threads(n):
    rng = np.random.default_rng(n)
    pool = smdl.Pool(rng.normal(size=(n, 24)).astype(np.float32))
    found = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        try:
            found.append(blocks_of(smdl.Pool(pool.features)).matrix())
        finally:
            torch.set_num_threads(1)
    assert (found[0] == found[0].T).all()
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
    np.testing.assert_allclose(found[0].numpy(), exact(pool), atol=1e-6)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("grid", [True, False])
def test_neighbours_in_torch_are_those_of_the_compiled_search(distance, grid):
    rng = np.random.default_rng(3)
    rows = rng.integers(0, 4, (300, 8)) if grid else rng.normal(size=(300, 8))
    blocks = blocks_of(smdl.Pool(rows.astype(np.float32)), distance=distance)
    compiled = blocks.nearest(7)
    with mock.patch.object(module, "COLUMNS", 64):
        small = blocks.nearest(7)
        part = Graph(np.empty((300, 7), np.int32), np.empty((300, 7), np.float32))
        blocks._search_in_torch(blocks.side(slice(None)), torch.arange(300), part, slice(0, 300))
    for other in (small, part):
        assert (other.neighbours == compiled.neighbours).all()
        assert (other.similarities == compiled.similarities).all()
    assert (compiled.neighbours[:, 0] == np.arange(300)).all()
