import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from smdl.engine import randomness

KEYS = st.integers(0, 2**64 - 1)


@given(KEYS, st.integers(0, 2**31), st.integers(1, 2**32 - 1))
def test_compiled_draws_are_the_specified_ones(key, counter, n):
    assert int(randomness.derive_compiled(np.uint64(key), counter)) == randomness.derive(key, counter)
    assert randomness.below_compiled(np.uint64(key), counter, n) == randomness.below(key, counter, n) < n


@given(KEYS, st.integers(0, 2**31), st.integers(0, 20), st.integers(1, 2**32 - 1))
def test_many_draws_are_the_single_ones(key, start, count, n):
    drawn = randomness.draws(key, start, count, n).tolist()
    assert drawn == [randomness.below(key, start + t, n) for t in range(count)]


@given(KEYS, st.integers(1, 30), st.data())
def test_compiled_sample_is_the_specified_one(key, n, data):
    remaining = data.draw(st.integers(1, n))
    count = data.draw(st.integers(0, remaining))
    slow, fast = np.arange(n, dtype=np.int32), np.arange(n, dtype=np.int32)
    randomness.sample(slow, remaining, count, key)
    randomness.sample_compiled(fast, remaining, count, np.uint64(key))
    assert slow.tolist() == fast.tolist()
    assert sorted(slow.tolist()) == list(range(n))


def test_samples_are_uniform():
    counts = np.zeros(10)
    for seed in range(4000):
        order = np.arange(10, dtype=np.int32)
        randomness.sample_compiled(order, 10, 3, np.uint64(randomness.stream(seed)))
        counts[order[:3]] += 1
    assert chisquare(counts).pvalue > 1e-3


def test_streams_of_different_paths_differ():
    paths = [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)]
    assert len({randomness.stream(path) for path in paths}) == len(paths)
    assert randomness.stream((3, 1), 2) == randomness.stream(3, 1, 2)


@pytest.mark.parametrize("seed", [-1, 0.5, (), (1, -2), "a"])
def test_a_bad_seed_is_refused(seed):
    with pytest.raises(ValueError, match="seed must be a whole number"):
        randomness.stream(seed)
