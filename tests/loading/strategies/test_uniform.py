from itertools import chain

import numpy as np
from scipy.stats import chisquare

import smdl
from smdl.loading.strategies.uniform import Uniform
from tests.toys import Net, Tuples, epoch_of


def draw(remaining: np.ndarray, size: int, seed: int = 0) -> list[int]:
    return Uniform().select(None, remaining, size, np.random.default_rng(seed)).indices.tolist()


def test_a_batch_is_drawn_from_what_remains_without_repeats():
    remaining = np.array([3, 8, 9, 20])
    batch = draw(remaining, 3)
    assert len(set(batch)) == 3
    assert set(batch) < {3, 8, 9, 20}
    assert sorted(draw(remaining, 4)) == [3, 8, 9, 20]


def test_every_sample_is_equally_likely():
    counts = np.zeros(12)
    for seed in range(3000):
        counts[draw(np.arange(12), 3, seed)] += 1
    assert chisquare(counts).pvalue > 1e-3


def test_the_draw_is_that_of_the_generator():
    assert draw(np.arange(50), 5, 1) == draw(np.arange(50), 5, 1)
    assert draw(np.arange(50), 5, 1) != draw(np.arange(50), 5, 2)


def test_an_epoch_is_a_shuffle_and_costs_no_forward():
    for options in ({}, {"candidates": smdl.Full(3)}):
        loader = smdl.DataLoader(Tuples(30), Net(), 4, method="uniform", **options)
        seen = [*chain(*epoch_of(loader))]
        assert sorted(seen) == list(range(30))
        assert seen != sorted(seen)
        assert loader.forwards == 0
        assert loader.dataset.reads == seen, "nothing is read but what is trained on"  # type: ignore[attr-defined]
