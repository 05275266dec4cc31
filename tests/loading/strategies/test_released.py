from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.loading.strategies.released import Released
from tests import specification
from tests.conftest import examples
from tests.toys import Net, Tuples, epoch_of


def random_pool(n: int, seed: int, width: int = 3) -> smdl.Pool:
    rng = np.random.default_rng(seed)
    return smdl.Pool(rng.normal(size=(n, width)), rng.dirichlet(np.ones(4), n))


@examples(25)
@given(
    n=st.integers(1, 40),
    partitions=st.integers(1, 4),
    log_epsilon=st.integers(1, 9),
    seed=st.integers(0, 2**32),
    data=st.data(),
)
def test_it_picks_what_the_plain_loops_pick(n, partitions, log_epsilon, seed, data):
    pool, size = random_pool(n, seed), data.draw(st.integers(1, n))
    members = np.sort(np.random.default_rng(seed).permutation(n)[: data.draw(st.integers(size, n))])
    rngs = np.random.default_rng(seed), np.random.default_rng(seed)
    found = Released(partitions, log_epsilon).select(pool, members, size, rngs[0]).indices.tolist()
    expected = specification.Released(pool, size, rngs[1], partitions, log_epsilon).batch(members)
    assert found == expected
    assert len(found) == size


def line(points: list[float]) -> smdl.Pool:
    return smdl.Pool(np.array(points)[:, None], np.full((len(points), 2), 0.5))


def test_the_sample_farthest_from_the_mean_wins():
    """By hand: after the first candidate, 0, the shares of 1, 2, 9, 10 differ in redundancy (1, 2, 9, 10 of 22) and in
    the distance to the mean 4.4 (3.4, 2.4, 4.6, 5.6 of 16). 10 has the most of both. Coverage is √2 for all."""
    pool = line([0.0, 1.0, 2.0, 9.0, 10.0])
    scores = specification.Released(pool, 2, np.random.default_rng(0))
    assert scores.best([0, 1, 2, 3, 4], []) == 0, "0 / 0 is NaN, and the first NaN is taken"
    assert scores.best([1, 2, 3, 4], [0]) == 3
    assert Released(5, 5).select(pool, np.arange(5), 2, np.random.default_rng(0)).indices.tolist() == [0, 4]


def test_the_merge_is_a_uniform_draw():
    """Ten partitions give 10 b samples, of which R takes 10 · 5 = b if b = 50: all of them."""
    pool = random_pool(1000, 0)
    batch = Released().select(pool, np.arange(1000), 50, np.random.default_rng(0))
    assert len(set(batch.indices)) == 50
    scores = specification.Released(pool, 50, np.random.default_rng(0))
    assert set(scores.maximise(list(range(500)), 50)) == set(np.random.default_rng(0).choice(500, 50, replace=False))


def test_it_needs_no_reference_model_and_scores_all_samples_every_five_steps():
    loader = smdl.DataLoader(Tuples(40), Net(), 4, method="paper_released")
    batches = epoch_of(loader)
    assert sorted(chain(*batches)) == list(range(40)), "without replacement within an epoch"
    assert loader.forwards == 2 * 40


def test_the_distance_of_equation_6_lets_the_farthest_win_and_the_cosine_of_the_text_the_nearest_direction():
    pool = smdl.Pool(torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, -4.0], [1.0, 2.0]]))  # the mean is (1, −1/4)
    assert smdl.select(pool, "mean_distance", 4).indices.tolist() == [2, 3, 1, 0]
    assert smdl.select(pool, "mean_closeness", 1).indices.tolist() == [0]


@pytest.mark.parametrize("name", ["partitions", "log_epsilon"])
def test_bad_options_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be a whole number ≥ 1, got 0"):
        Released(**{name: 0})
