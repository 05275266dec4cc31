"""Double greedy picks what the equations pick, reaches its guarantee, and refuses what it is not for."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine.pool import Pool
from smdl.loading.strategies.submodular import Submodular
from tests import specification
from tests.conftest import examples, pools

OBJECTIVES = [
    smdl.Objective(graph_cut=1.0, overlap=1.0),
    smdl.Objective(graph_cut=1.0, overlap=2.0, uncertainty=0.25),
    smdl.Objective(graph_cut=1.0, sum_redundancy=0.25, overlap=0.5),
    smdl.Objective(sum_redundancy=0.125, uncertainty=1.0),
]


def both_ends(pool: object, objective: smdl.Objective | str = OBJECTIVES[0], **options: object) -> smdl.Selection:
    return smdl.select(pool, objective, optimizer="bidirectional", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@examples(15)
@given(pool=pools(smallest=2, dtypes=(np.float32,)), data=st.data())
def test_it_picks_what_the_equations_pick(objective, pool, data):
    rows = data.draw(st.permutations(range(len(pool))))
    initial, banned = rows[: data.draw(st.integers(0, 1))], rows[1 : data.draw(st.integers(1, len(pool) - 1))]
    members = [a for a in range(len(pool)) if a not in initial and a not in banned]
    chosen = both_ends(pool, objective, initial=initial, exclude=banned)
    indices, gains = specification.from_both_ends(specification.Specification(pool, objective), members, initial)
    assert chosen.indices.tolist() == indices
    np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


@examples(20)
@given(data=st.data())
def test_it_reaches_a_third_of_the_best_batch_of_any_size(data):
    rng, n = np.random.default_rng(data.draw(st.integers(0, 2**32))), data.draw(st.integers(1, 7))
    table = rng.random((n, n)).astype(np.float32) ** 4
    pool, overlap = Pool.from_similarities(table + table.T), data.draw(st.sampled_from([0.5, 0.75, 1.0]))
    objective = smdl.Objective(graph_cut=1.0, overlap=overlap)  # F(S) ≥ 0 for every S, as the guarantee needs it
    batches = [list(batch) for size in range(n + 1) for batch in combinations(range(n), size)]
    best = max(smdl.evaluate(pool, objective, batch).value for batch in batches if batch)
    chosen = both_ends(pool, objective)
    assert chosen.value >= best / 3 - 1e-9
    assert chosen.value == pytest.approx(smdl.evaluate(pool, objective, chosen.indices).value)


def test_a_batch_of_the_whole_pool_is_told():
    with pytest.warns(UserWarning, match=r"every sample was picked.*overlap"):
        both_ends(np.random.default_rng(0).random((20, 3)), "graph_cut")


def test_it_may_pick_no_sample():
    assert len(both_ends(np.ones((3, 1)) * [[0], [1], [5]], "sum_redundancy")) == 0


def test_it_says_that_the_size_is_open():
    plan = smdl.explain(np.zeros((30, 2)), OBJECTIVES[0], optimizer="bidirectional")
    assert "at most 30 of 30" in str(plan)
    assert plan.loops == "torch"


@pytest.mark.parametrize("given", [{"size": 2}, {"fraction": 0.5}, {"size_penalty": 0.0}, {"partitions": 2}], ids=str)
def test_it_refuses_a_size(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} cannot be set: optimizer="):
        both_ends(np.eye(4), **given)


@pytest.mark.parametrize("objective", ["facility_location", "uncertainty", "disparity_sum", "gradients"])
def test_it_refuses_objectives_that_do_not_fall(objective):
    with pytest.raises(ValueError, match="needs an objective that falls: it must be graph_cut or sum_redundancy"):
        both_ends(np.eye(4), objective)


def test_a_loader_refuses_it():
    with pytest.raises(ValueError, match="optimizer must be one for batches of a fixed size"):
        Submodular(OBJECTIVES[0], optimizer="bidirectional")
