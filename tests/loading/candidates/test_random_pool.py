import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.loading.candidates.random_pool import deal


@given(n=st.integers(1, 20), seed=st.integers(0, 99), data=st.data())
def test_pools_hold_no_sample_twice_and_every_deck_deals_out_all(n, seed, data):
    sizes = data.draw(st.lists(st.integers(1, n), max_size=30))
    counts = np.zeros(n, int)
    for size, pool in zip(sizes, deal(n, sizes, np.random.default_rng(seed)), strict=True):
        assert len(np.unique(pool)) == len(pool) == size
        counts[pool] += 1
        assert counts.max() - counts.min() <= 1, "no sample comes again before every sample has come"


def test_pools_are_shuffled_and_decks_differ():
    first, second = deal(50, [50, 50], np.random.default_rng(1))
    assert first.tolist() != sorted(first)
    assert first.tolist() != second.tolist()
    again = next(deal(50, [50], np.random.default_rng(1)))
    assert first.tolist() == again.tolist()


@pytest.mark.parametrize("factor", [0.99, 0, -3, float("inf"), float("nan")])
def test_a_random_pool_holds_at_least_one_batch(factor):
    with pytest.raises(ValueError, match="factor must be a number ≥ 1, got"):
        smdl.RandomPool(factor)


@pytest.mark.parametrize("factor", ["3", None, True])
def test_a_factor_is_a_number(factor):
    with pytest.raises(TypeError, match="factor must be a number ≥ 1, got"):
        smdl.RandomPool(factor)


def test_a_factor_is_the_same_written_either_way():
    assert repr(smdl.RandomPool(3)) == repr(smdl.RandomPool(3.0)) == repr(smdl.RandomPool())
