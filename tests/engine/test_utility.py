"""Utility on every path: the picks are those of the plain loop, and the scale is that of the pool."""

import numpy as np
import pytest
from scipy import sparse

import smdl
from tests.specification import Specification

RNG = np.random.default_rng(0)
X = RNG.integers(-8, 8, size=(60, 4)) / 4.0
U = RNG.integers(0, 9, size=60).astype(float)


def by_hand(objective, size):
    loop, picked = Specification(smdl.Pool(X, utility=U), objective), []
    for _ in range(size):
        rest = [a for a in range(60) if a not in picked]
        gains = loop.gains(rest, picked)
        picked.append(rest[int(np.argmax(gains))])
    return picked


@pytest.mark.parametrize("options", [{}, {"neighbours": 5}, {"sample": 20}])
def test_every_engine_adds_the_scaled_utility(options):
    pool = smdl.Pool(X, utility=U)
    plain = smdl.Objective(facility_location=1.0, **options)
    mixed = smdl.Objective(facility_location=1.0, utility=0.05, **options)
    picks = smdl.select(pool, mixed, 8)
    assert picks.indices.tolist() != smdl.select(pool, plain, 8).indices.tolist()
    expected = smdl.evaluate(pool, plain, picks.indices).value + 0.05 * (U[picks.indices] / 8).sum()
    assert smdl.evaluate(pool, mixed, picks.indices).value == pytest.approx(expected)
    assert picks.value == pytest.approx(expected)


def test_picks_are_those_of_the_plain_loop():
    objective = smdl.Objective(facility_location=1.0, utility=0.05)
    assert smdl.select(smdl.Pool(X, utility=U), objective, 8).indices.tolist() == by_hand(objective, 8)


def test_shift_and_scale_of_the_numbers_do_not_matter():
    objective = smdl.Objective(facility_location=1.0, utility=0.05)
    first, second = (smdl.select(smdl.Pool(X, utility=u), objective, 8) for u in (U, 64 * U - 512))
    assert first.indices.tolist() == second.indices.tolist()


def test_similarities_alone_take_a_utility():
    similarities = sparse.csr_matrix(np.exp(-((X[:, None] - X) ** 2).sum(axis=2)))
    pool = smdl.Pool.from_similarities(similarities, utility=U)
    assert U[smdl.select(pool, smdl.Objective(facility_location=0.01, utility=1.0), 3).indices].min() == 8


def test_bad_utilities_are_named():
    for wrong, message in ((U[:5], "utility must have one row per sample"), (U * np.nan, "utility"), (X, "utility")):
        with pytest.raises(ValueError, match=message):
            smdl.Pool(X, utility=wrong)
    with pytest.raises(ValueError, match="utility needs utility"):
        smdl.select(smdl.Pool(X), "utility", 3)
