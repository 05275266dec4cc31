from itertools import chain

import numpy as np
import pytest
import torch

import smdl
from smdl.experiments.typical_step import make_typical
from smdl.loading.strategies.selective_backprop import SelectiveBackprop, probabilities
from tests.toys import Net, Tuples, epoch_of


def prepared(epochs: int = 10, **options: float) -> SelectiveBackprop:
    strategy = SelectiveBackprop(**options)  # type: ignore[arg-type]
    strategy.prepare(100, epochs)
    return strategy


def test_ranks_are_drawn_by_a_power_of_their_place():
    """By hand: keeping 2 of 4, the places 1/8, 3/8, 5/8, 7/8 to the power of 4/2 − 1 = 1, divided by their sum 2."""
    assert probabilities(4, 2).tolist() == [1 / 16, 3 / 16, 5 / 16, 7 / 16]
    assert probabilities(4, 4).tolist() == [0.25] * 4
    assert probabilities(3, 1) == pytest.approx(np.array([1, 9, 25]) / 35)


def test_the_defaults_are_those_of_composer():
    strategy = SelectiveBackprop()
    assert (strategy.start, strategy.end, strategy.interrupt) == (0.5, 0.9, 2)
    assert smdl.loading.methods.METHODS["selective_backprop"].candidates == smdl.RandomPool(2), "keep is a half"


def test_high_losses_come_more_often():
    strategy, counts = prepared(), np.zeros(4)
    pool = smdl.Pool(torch.rand(4, 2), losses=torch.tensor([3.0, 1.0, 4.0, 2.0]))
    for seed in range(4000):
        batch = strategy.select(pool, np.arange(4), 2, np.random.default_rng(seed))
        assert len(set(batch.indices)) == 2, "without replacement"
        assert batch.weights is None
        counts[batch.indices] += 1
    # the first draw of rank r has p_r; the second, p_r / (1 − p of the first)
    p = probabilities(4, 2)
    expected = p + [sum(p[j] * p[i] / (1 - p[j]) for j in range(4) if j != i) for i in range(4)]
    assert counts[[1, 3, 0, 2]] / 4000 == pytest.approx(expected, abs=0.03)


def test_it_selects_from_half_of_the_run_to_nine_tenths_of_it_at_every_second_step():
    strategy = prepared(epochs=10)
    chosen = [(epoch, step) for epoch in range(10) for step in range(10) if strategy.selects_at(epoch, step, 10)]
    assert chosen == [(epoch, step) for epoch in range(5, 9) for step in (0, 2, 4, 6, 8)]
    assert sum(prepared(interrupt=0).selects_at(6, step, 10) for step in range(10)) == 10
    assert sum(prepared(interrupt=3).selects_at(6, step, 9) for step in range(9)) == 6


def test_other_batches_are_plain_and_forward_nothing():
    data = Tuples(30)
    loader = smdl.DataLoader(data, Net(), 5, method="selective_backprop", epochs=10)
    for epoch in range(10):
        data.reads.clear()
        seen = epoch_of(loader)
        assert len(seen) == len(loader) == 6
        if not 5 <= epoch < 9:
            assert sorted(chain(*seen)) == sorted(data.reads) == list(range(30)), "a plain pass, of the batches alone"
        else:
            assert len(data.reads) == 3 * 10 + 3 * 5
    assert loader.forwards == 4 * 3 * 10


def test_a_timing_sees_the_mean_cost_of_the_run():
    loader = smdl.DataLoader(Tuples(30), Net(), 5, method="selective_backprop", epochs=10)
    make_typical(loader)
    assert [step for step in range(10) if loader.strategy.selects_at(0, step, 36)] == [4, 9]


def test_the_length_of_the_run_must_be_known():
    with pytest.raises(ValueError, match="selective_backprop needs epochs=, the length of the run"):
        smdl.DataLoader(Tuples(30), Net(), 5, method="selective_backprop")
    with pytest.raises(ValueError, match="SelectiveBackprop needs the length of the run, which a stream does not have"):
        smdl.SelectiveLoader([], Net(), method="selective_backprop")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": -0.1}, "start must be a part of the run"),
        ({"start": 0.5, "end": 0.4}, r"end must be a part of the run, in \[start, 1\], got 0.4"),
        ({"interrupt": -1}, "interrupt must be a whole number ≥ 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SelectiveBackprop(**options)
