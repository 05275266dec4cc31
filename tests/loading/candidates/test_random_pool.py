import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import smdl
from smdl.loading.candidates.random_pool import deal
from tests.toys import CLASSES, WIDTH, Net, Tuples


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


class _Reordering(nn.Module):
    """Sorts its rows inside, from the first forward on or after some."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.body, self.head, self.after = nn.Linear(WIDTH, 6), nn.Linear(6, CLASSES), after

    def forward(self, x):
        self.after -= 1
        order = torch.arange(len(x)) if self.after >= 0 else x[:, 0].argsort()
        return self.head(self.body(x[order]).relu())[order.argsort()]


@pytest.mark.parametrize("features", [None, "head", "body"])
@pytest.mark.parametrize("after", [0, 3])
@pytest.mark.parametrize("method", ["fresh", "paper"])
def test_a_model_that_sorts_its_rows_is_refused(features, after, method):
    """Every sample would get the features of another."""
    candidates = smdl.RandomPool(3)
    loader = smdl.DataLoader(
        Tuples(60), _Reordering(after), 4, method=method, candidates=candidates, reference=torch.ones(60, 2),
        scoring=smdl.Scoring(features=features),
    )  # fmt: skip
    chosen = []
    with pytest.raises(ValueError, match=r"rows inside _Reordering are in another order .* Give features=, a callable"):
        chosen.extend(loader)
    assert len(chosen) == after


def test_a_head_that_changes_is_no_other_order():
    class Warmed(Net):
        temperature = 1.0

        def forward(self, x):
            self.temperature += 0.1
            return super().forward(x) * self.temperature

    model = Warmed()
    model.temperature = 0.9  # so the first outputs are those of the head
    loader = smdl.DataLoader(Tuples(60), model, 4, candidates=smdl.RandomPool(3))
    assert len(list(loader)) == 15
    assert not loader.scorer.network.knows_head
