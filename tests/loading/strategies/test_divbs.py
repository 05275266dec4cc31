import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import smdl
from smdl.loading.strategies.divbs import DivBS, gram, orthogonal_picks
from tests.conftest import pools
from tests.specification import gradient
from tests.toys import Net, Tuples, epoch_of


def written_out(gradients: np.ndarray, size: int) -> tuple[list[int], list[float]]:
    """DivBS by Gram–Schmidt on whole gradients."""
    residual, directions, picks, gains = gradients.sum(0), list[np.ndarray](), list[int](), list[float]()
    for _ in range(size):
        left = [g - sum((g @ e) * e for e in directions) for g in gradients]
        scores = [
            abs(g @ residual) if k not in picks and rest @ rest > 1e-10 * (g @ g) else 0.0
            for k, (g, rest) in enumerate(zip(gradients, left, strict=True))
        ]
        best = int(np.argmax(scores))
        if scores[best] <= 1e-9 * np.abs(gradients @ gradients.sum(0)).max():
            break
        direction = left[best] / np.linalg.norm(left[best])
        gains.append(float(direction @ residual) ** 2)
        residual = residual - (direction @ residual) * direction
        directions.append(direction)
        picks.append(best)
    return picks, gains


def errors_of_one(features: list[list[float]]) -> smdl.Pool:
    """Every sample has e = (1, −1), so that ⟨g_i, g_j⟩ = 2 ⟨f_i, f_j⟩."""
    n = len(features)
    probabilities = torch.tensor([[1.0, 0.0]]).expand(n, 2)
    return smdl.Pool(torch.tensor(features), probabilities, torch.ones(n, dtype=torch.int64), bias=False)


def chosen(pool: smdl.Pool, size: int, **options: bool) -> smdl.Selection:
    return DivBS(**options).select(pool, np.arange(len(pool)), size, np.random.default_rng(0))


def test_the_second_pick_is_what_the_first_leaves_over():
    """By hand: features (1, 0), (0.75, 0.25), (0, 1) sum to (1.75, 1.25). Twice the inner products with it are 3.5,
    3.25, 2.5: sample 0. It leaves (0, 1.25), with 0, 0.625, 2.5: sample 2, not the near-copy 1."""
    pool = errors_of_one([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]])
    assert gram(pool, np.arange(3)).sum(1).tolist() == [3.5, 3.25, 2.5]
    batch = chosen(pool, 2)
    assert batch.indices.tolist() == [0, 2]
    assert batch.gains == pytest.approx([2 * 1.75**2, 2 * 1.25**2])


def test_an_exhausted_residual_is_filled_up_at_random():
    pool = errors_of_one([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [0.0, 0.0]])
    batch = chosen(pool, 3)
    assert batch.indices[0] == 2
    assert len(set(batch.indices)) == 3
    assert batch.gains[1:].tolist() == [0, 0]
    assert len({tuple(DivBS().select(pool, np.arange(4), 3, np.random.default_rng(k)).indices) for k in range(20)}) > 1


@given(pool=pools(grid=False, smallest=3, largest=12), data=st.data())
def test_the_factored_form_is_gram_schmidt_on_whole_gradients(pool, data):
    size = data.draw(st.integers(1, len(pool)))
    gradients = np.array([gradient(pool, k) for k in range(len(pool))])
    inner = gram(pool, np.arange(len(pool)))
    np.testing.assert_allclose(inner, gradients @ gradients.T, rtol=1e-4, atol=1e-6 * np.abs(inner).max())
    picks, gains = orthogonal_picks(gradients @ gradients.T, size)
    expected, values = written_out(gradients, size)
    whole = float(np.square(gradients.sum(0)).sum())
    k = sum(value > 1e-6 * whole for value in values)  # later picks are decided by rounding
    assert picks[:k].tolist() == expected[:k]
    np.testing.assert_allclose(gains[:k], values[:k], rtol=1e-5)


def test_drawn_pairs_are_as_likely_as_in_the_authors_code():
    """The pool of the first test, whole gradients, and the mean as the first residual. By hand: the first pick has
    p ∝ 3.5, 3.25, 2.5; after sample 0 the second has p ∝ 0, 0.625, 2.5, so that sample 2 has 0.8."""
    pool = errors_of_one([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]])
    gradients, expected = np.array([gradient(pool, k) for k in range(3)]), np.zeros((3, 3))
    mean = gradients.mean(0)
    first = np.abs(gradients @ mean)
    for k, g in enumerate(gradients):
        direction = g / np.linalg.norm(g)
        second = np.abs(gradients @ (mean - (direction @ mean) * direction))
        second[k] = 0.0  # except for rounding
        expected[k] = first[k] / first.sum() * second / second.sum()
    assert expected[0, 2] == pytest.approx(3.5 / 9.25 * 0.8)
    strategy, counts = DivBS(sampled=True), np.zeros((3, 3))
    for seed in range(4000):
        counts[tuple(strategy.select(pool, np.arange(3), 2, np.random.default_rng(seed)).indices)] += 1
    apart = ~np.eye(3, dtype=bool)
    assert chisquare(counts[apart], 4000 * expected[apart]).pvalue > 1e-3


def test_drawn_picks_follow_the_inner_products():
    pool = errors_of_one([[3.0, 0.0], [0.0, 1.0]])  # |⟨g, r⟩| are 18 and 2
    strategy, rows = DivBS(sampled=True), np.arange(2)
    firsts = [strategy.select(pool, rows, 1, np.random.default_rng(k)).indices[0] for k in range(500)]
    assert np.mean(np.array(firsts) == 0) == pytest.approx(0.9, abs=0.05)


def test_the_loader_forwards_three_samples_per_sample_trained_on():
    loader = smdl.DataLoader(Tuples(30), Net(), 5, method="divbs")
    batches = epoch_of(loader)
    assert loader.forwards == 6 * 15
    assert all(len(set(batch)) == 5 for batch in batches)


def test_bad_options_are_refused():
    with pytest.raises(TypeError, match="sampled must be True or False, got 'no'"):
        DivBS(sampled="no")  # type: ignore[arg-type]
