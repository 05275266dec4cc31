"""Against the brute-forced optimum, truly submodular terms keep what theory promises."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smdl

GREEDY = 1 - 1 / math.e
OBJECTIVES = [
    smdl.Objective(facility_location=1.0),
    smdl.Objective(facility_location=1.0, space="gradients", neighbours=4),
    smdl.Objective(feature_coverage=1.0),
    smdl.Objective(log_determinant=1.0),
    smdl.Objective(class_balance=0.5, facility_location=0.5, uncertainty=0.2),
]


def random_pool(seed: int, n: int) -> smdl.Pool:
    rng = np.random.default_rng(seed)
    features = rng.random((n, 3)) ** 3
    return smdl.Pool(features, rng.dirichlet(np.full(3, 0.5), n), rng.integers(0, 3, n))


def optimum(pool: smdl.Pool, objective: smdl.Objective, size: int) -> float:
    return max(float(smdl.evaluate(pool, objective, subset)) for subset in combinations(range(len(pool)), size))


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
@settings(max_examples=8)
@given(seed=st.integers(0, 10**6), n=st.integers(4, 9), size=st.integers(1, 4))
def test_greedy_and_partitioned_greedy_keep_their_bounds(objective, seed, n, size):
    pool = random_pool(seed, n)
    best = optimum(pool, objective, size)
    assert smdl.select(pool, objective, size, optimizer="naive").value >= GREEDY * best - 1e-9
    parts, epsilon = 3, 0.3
    bound = GREEDY**2 / min(parts, size) * (GREEDY - epsilon)
    values = [
        smdl.select(pool, objective, size, optimizer="stochastic", partitions=parts, epsilon=epsilon, seed=s).value
        for s in range(10)
    ]
    assert min(values) >= bound * best - 1e-9


@pytest.mark.parametrize("objective", OBJECTIVES, ids=repr)
def test_stochastic_greedy_keeps_its_bound_in_the_mean(objective):
    pool, size, epsilon = random_pool(1, 12), 3, 0.3
    best = optimum(pool, objective, size)
    values = [
        smdl.select(pool, objective, size, optimizer="stochastic", epsilon=epsilon, seed=seed).value
        for seed in range(200)
    ]
    assert len(set(np.round(values, 9))) > 3, "it really samples"
    assert np.mean(values) >= (GREEDY - epsilon) * best
