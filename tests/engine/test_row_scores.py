"""smdl.score: each number is what its definition says, computed by plain loops."""

import numpy as np
import pytest

import smdl

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 5))
X[70:] = X[:10] * RNG.uniform(0.5, 2, size=(10, 1)) + 0.01 * RNG.normal(size=(10, 5))
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
COSINES = UNIT @ UNIT.T - 2 * np.eye(80)


def test_density_distance_and_copies_are_those_of_all_pairs():
    found = smdl.score(X, neighbours=6, similarity=0.99)
    nearest = -np.sort(-COSINES, axis=1)[:, :6]
    np.testing.assert_allclose(found.density, nearest.mean(axis=1), atol=1e-6)
    np.testing.assert_allclose(found.distance, 1 - nearest[:, 0], atol=1e-6)
    assert found.copies.tolist() == (nearest >= 0.99).sum(axis=1).tolist()
    assert found.copies[70:].min() >= 1
    assert found.recall == 1


def test_rank_and_gain_are_those_of_select():
    found = smdl.score(X, neighbours=6)
    objective = smdl.Objective(facility_location=1.0, distance="cosine", neighbours=7)
    picks = smdl.select(X, objective, 40, optimizer="naive")
    assert np.argsort(found.rank)[:40].tolist() == picks.indices.tolist()
    np.testing.assert_allclose(found.gain[picks.indices], picks.gains, atol=1e-9)
    assert sorted(found.rank.tolist()) == list(range(1, 81))
    assert found.gain.min() >= 0


def test_few_rows_and_equal_rows():
    found = smdl.score(np.ones((4, 3)), neighbours=50)
    assert found.copies.tolist() == [3, 3, 3, 3]
    np.testing.assert_allclose(found.distance, 0, atol=1e-6)
    assert np.isfinite(found.gain).all()
    assert len(smdl.score(np.array([[1.0, 0.0], [0.0, 1.0]]))) == 2


@pytest.mark.parametrize(
    ("features", "options", "message"),
    [
        (X[:1], {}, "at least two rows"),
        (np.zeros((3, 2)), {}, "not all zeros"),
        (X * np.nan, {}, "finite"),
        (X, {"neighbours": 0}, "neighbours must be a whole number ≥ 1, got 0"),
        (X, {"similarity": 1.5}, "similarity"),
    ],
)
def test_bad_input_is_named(features, options, message):
    with pytest.raises(ValueError, match=message):
        smdl.score(features, **options)
