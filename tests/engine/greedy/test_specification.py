"""The fast code picks the same samples as the plain loops of the specification."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine import geometry, plan
from smdl.engine.greedy import kernels
from smdl.engine.objective import Objective
from smdl.engine.pool import Pool
from smdl.engine.terms import TERMS
from tests import specification
from tests.conftest import SET_TERMS, examples, objectives, pools

DIMINISHING = tuple(name for name in SET_TERMS if TERMS[name].diminishing)
OPTIMIZERS = st.sampled_from(["naive", "lazy", "stochastic"])
FEW_OBJECTIVES = [
    smdl.Objective(uncertainty=1.0, mean_closeness=0.5),
    smdl.Objective.paper(),
    smdl.Objective.gradients(),
    smdl.Objective(facility_location=1.0, neighbours=2, uncertainty=0.25),
    smdl.Objective(feature_coverage=1.0, uncertainty=0.25),
    smdl.Objective(log_determinant=1.0, kernel="gaussian"),
    smdl.Objective(class_balance=0.5, facility_location=0.5, uncertainty=0.25),
    smdl.Objective(graph_cut=1.0, uncertainty=0.25),
    smdl.Objective(sum_redundancy=1.0, mean_closeness=0.5),
    smdl.Objective(saturated_coverage=1.0, uncertainty=0.25),
    smdl.Objective(set_cover=1.0, uncertainty=0.25),
    smdl.Objective(disparity_sum=1.0),
    smdl.Objective(disparity_min=1.0, uncertainty=0.25),
]


def fast(pool: Pool, objective: Objective, size: int | None, optimizer: str, **options: object) -> smdl.Selection:
    if optimizer == "lazy" and not objective.diminishing:
        optimizer = "naive"
    return smdl.select(pool, objective, size, optimizer=optimizer, **options)  # type: ignore[arg-type]


def in_torch(pool: Pool, objective: Objective, size: int | None, optimizer: str, **options: object) -> smdl.Selection:
    """Select without the compiled kernels."""
    with mock.patch.object(plan, "loops_of", return_value="torch"):
        return fast(pool, objective, size, optimizer, **options)


def check_against_the_equations(path, pool: Pool, objective: Objective, data: st.DataObject) -> None:
    optimizer, size = data.draw(OPTIMIZERS), data.draw(st.integers(1, len(pool)))
    options = {
        "partitions": data.draw(st.sampled_from([1, 2, 3])),
        "epsilon": data.draw(st.sampled_from([0.01, 0.3])),
        "seed": data.draw(st.integers(0, 2**40)),
    }
    selection = path(pool, objective, size, optimizer, **options)
    indices, values = specification.select(pool, objective, size, optimizer, **options)
    assert selection.indices.tolist() == indices
    np.testing.assert_allclose(selection.gains, values, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("normalize", ["pool", "candidates"])
@pytest.mark.parametrize("neighbours", [None, 2])
def test_a_pool_of_copies_has_nothing_to_gain_from(neighbours, normalize):
    pool = Pool(np.ones((3, 1), np.float32))
    objective = smdl.Objective(facility_location=0.1, normalize=normalize, neighbours=neighbours)
    for path in (fast, in_torch):
        selection = path(pool, objective, 2, "naive", seed=0)
        assert selection.indices.tolist() == specification.select(pool, objective, 2, "naive", 1, 0.01, 0)[0]
        assert selection.gains.tolist() == [0, 0]


@pytest.mark.parametrize("bias", [True, False])
def test_parallel_gradients_of_different_lengths_pick_what_the_equations_pick(bias):
    """All neighbours tie, unless a cosine of 1 is rounded differently for different lengths."""
    chances = np.array([[0.5, 0.5], [0.5, 0.5], [0.625, 0.375]], np.float32)
    pool = Pool(np.zeros((3, 1), np.float32), probabilities=chances, labels=np.zeros(3, np.int64), bias=bias)
    objective = smdl.Objective(facility_location=0.1, distance="cosine", space="gradients", neighbours=2)
    for path in (fast, in_torch):
        for optimizer in ("naive", "lazy"):
            chosen = path(pool, objective, 2, optimizer, seed=0)
            indices, gains = specification.select(pool, objective, 2, optimizer)
            assert chosen.indices.tolist() == indices
            np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("objective", [smdl.Objective.gradients(), smdl.Objective(redundancy=1, space="gradients")])
@examples(12)
@given(pool=pools(dtypes=(np.float32,)), data=st.data())
def test_errors_of_any_loss_pick_what_the_equations_pick_on_a_dyadic_grid(objective, pool, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    errors = rng.integers(-4, 5, (len(pool), data.draw(st.integers(1, 3)))) / np.float32(2)
    check_against_the_equations(fast, Pool(pool.features, errors=errors, bias=pool.bias), objective, data)


@pytest.mark.parametrize("objective", FEW_OBJECTIVES, ids=repr)
@examples(12)
@given(pool=pools(dtypes=(np.float32,)), data=st.data())
def test_a_few_objectives_pick_what_the_equations_pick_on_a_dyadic_grid(objective, pool, data):
    """The fast variant of the next test: few kernels to compile."""
    check_against_the_equations(fast, pool, objective, data)


@pytest.mark.slow  # it compiles every kernel for every distance and type
@pytest.mark.parametrize("name", SET_TERMS)
@given(data=st.data())
def test_one_set_term_picks_what_the_equations_pick_on_a_dyadic_grid(name, data):
    pool, objective = data.draw(pools()), data.draw(objectives(set_terms=(name,), fewest=1, normalize="pool"))
    check_against_the_equations(fast, pool, objective, data)


@pytest.mark.parametrize("path", [fast, in_torch])
@given(pool=pools(), objective=objectives(), data=st.data())
def test_mixtures_pick_what_the_equations_pick_on_a_dyadic_grid(path, pool, objective, data):
    check_against_the_equations(path, pool, objective, data)


@pytest.mark.parametrize("path", [fast, in_torch])
@given(
    pool=pools(grid=False),
    objective=objectives(normalize="pool", neighbours=(None,)),  # neighbours can depend on the last digit
    optimizer=st.sampled_from(["naive", "lazy"]),
    data=st.data(),
)
def test_every_pick_is_within_the_tolerance_of_the_best_on_arbitrary_floats(path, pool, objective, optimizer, data):
    size = data.draw(st.integers(1, len(pool)))
    selection = path(pool, objective, size, optimizer, seed=7)
    check = specification.Specification(pool, objective)
    scale = sum(objective.weights.values())
    for k, (index, gain) in enumerate(zip(selection.indices.tolist(), selection.gains, strict=True)):
        before = selection.indices[:k].tolist()
        remaining = [a for a in range(len(pool)) if a not in before]
        exact = dict(zip(remaining, check.gains(remaining, before), strict=True))
        assert exact[index] >= max(exact.values()) - 1e-6 * scale
        assert gain == pytest.approx(exact[index], abs=1e-6 * scale)


@given(
    pool=pools(grid=False, smallest=2, largest=40),
    objective=objectives(set_terms=DIMINISHING, normalize="pool"),
    data=st.data(),
)
def test_lazy_is_naive(pool, objective, data):
    size = data.draw(st.integers(1, len(pool)))
    for path in (fast, in_torch):
        lazy, naive = path(pool, objective, size, "lazy"), path(pool, objective, size, "naive")
        assert lazy.indices.tolist() == naive.indices.tolist()
        assert lazy.gains.tolist() == naive.gains.tolist()
        assert (np.diff(lazy.gains) <= 0).all(), "gains never rise"


@pytest.mark.parametrize("space", ["features", "gradients"])
@examples(12)
@given(pool=pools(dtypes=(np.float32,)), data=st.data())
def test_facility_location_without_a_matrix_picks_what_the_equations_pick(space, pool, data):
    with mock.patch.object(geometry, "holds_matrix", return_value=False):
        check_against_the_equations(fast, pool, smdl.Objective(facility_location=1.0, space=space), data)


@examples(15)
@given(pool=pools(smallest=kernels.BLOCK + 1, largest=4 * kernels.BLOCK), objective=objectives(normalize="pool"))
def test_ties_go_to_the_lowest_index_across_blocks(pool, objective):
    """Larger pools than the plain loops can handle, with few distinct points, so that nearly all samples tie."""
    plain = in_torch(pool, objective, 12, "naive")
    for optimizer in ("naive", "lazy"):  # `fast` takes naive where lazy is refused
        assert fast(pool, objective, 12, optimizer).indices.tolist() == plain.indices.tolist()
