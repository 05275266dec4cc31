from itertools import chain

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.nn import functional as F

import smdl
from smdl.loading.strategies.evolved_sampling import EvolvedSampling
from tests.toys import Net, Tuples, epoch_of, numbers_of


def prepared(samples: int, epochs: int | None = 1000, **options: float) -> EvolvedSampling:
    strategy = EvolvedSampling(**options)
    strategy.prepare(samples, epochs)
    return strategy


def pool_of(losses: list[float], rows: list[int] | None = None) -> smdl.Pool:
    pool = smdl.Pool(torch.rand(len(losses), 2), losses=torch.tensor(losses))
    pool.rows = np.array(range(len(losses)) if rows is None else rows)
    return pool


def draw(strategy: EvolvedSampling, pool: smdl.Pool, size: int, seed: int = 0) -> np.ndarray:
    return strategy.select(pool, np.arange(len(pool)), size, np.random.default_rng(seed)).indices


def test_the_running_loss_is_that_of_all_candidates_drawn_or_not():
    """By hand, β2 = 0.8, two samples: s = 1/2. Losses 2 and 1: s = 0.4 + 0.4 = 0.8 and 0.4 + 0.2 = 0.6. Then losses 1
    and 0.6: s = 0.64 + 0.2 = 0.84 and 0.6."""
    strategy = prepared(2)
    for losses, running in (([2.0, 1.0], [0.8, 0.6]), ([1.0, 0.6], [0.84, 0.6])):
        assert len(draw(strategy, pool_of(losses), 1)) == 1
        assert strategy._running.tolist() == pytest.approx(running)


def test_draws_follow_the_weights_of_equation_3_8():
    """By hand, β1 = 0.2, two samples: s = 1/2. Losses 2 and 0.5: w = 0.1 + 1.6 = 1.7 and 0.1 + 0.4 = 0.5, so sample 0
    has p = 1.7/2.2. Then s = 0.8 and 0.5; losses 1 and 0.5: w = 0.16 + 0.8 = 0.96 and 0.5, p = 0.96/1.46."""
    first, second = [], []
    for seed in range(4000):
        strategy = prepared(2)
        first.append(draw(strategy, pool_of([2.0, 0.5]), 1, seed)[0])
        second.append(draw(strategy, pool_of([1.0, 0.5]), 1, seed + 5000)[0])
    for drawn, p in ((first, 1.7 / 2.2), (second, 0.96 / 1.46)):
        assert chisquare(np.bincount(drawn, minlength=2), [4000 * p, 4000 * (1 - p)]).pvalue > 1e-3


def test_the_weight_is_the_running_loss_and_a_part_of_its_difference_to_the_loss():
    rng = np.random.default_rng(0)
    before, losses, beta1, beta2 = rng.random(20), rng.random(20), 0.2, 0.8
    after = beta2 * before + (1 - beta2) * losses
    assert beta1 * before + (1 - beta1) * losses == pytest.approx(after + (beta2 - beta1) * (losses - before))


def test_the_defaults_are_those_that_the_card_states():
    strategy = EvolvedSampling()
    assert (strategy.beta1, strategy.beta2, strategy.anneal) == (0.2, 0.8, 0.05)
    assert smdl.loading.methods.METHODS["evolved_sampling"].candidates == smdl.RandomPool(4)


def test_a_pool_changes_the_samples_that_it_holds():
    strategy = prepared(4)
    draw(strategy, pool_of([1.0, 2.0], rows=[3, 1]), 1)
    assert strategy._running.tolist() == pytest.approx([0.25, 0.2 + 0.4, 0.25, 0.2 + 0.2])


def test_no_sample_comes_twice_in_a_batch_and_a_loss_of_zero_can_be_drawn():
    strategy = prepared(6, beta1=0.0)
    for seed in range(20):
        assert sorted(draw(strategy, pool_of([1e9, 0.0, 0.0, 0.0, 0.0, 0.0]), 6, seed)) == list(range(6))


def test_the_first_and_the_last_part_of_the_run_are_plain():
    strategy = prepared(20, epochs=4, anneal=0.25)
    assert [[strategy.selects_at(epoch, step, 5) for step in (0, 4)] for epoch in range(4)] == [
        [False, False],
        [True, True],
        [True, True],
        [False, False],
    ]
    assert prepared(20, None, anneal=0.0).selects_at(0, 0, 5)


def test_the_loader_forwards_four_samples_per_sample_trained_on_and_knows_them():
    data, model = Tuples(40), Net()
    loader = smdl.DataLoader(data, model, 5, method="evolved_sampling", epochs=4, options={"anneal": 0.25})
    assert sorted(chain(*epoch_of(loader))) == list(range(40)), "the first epoch is a plain pass"
    assert loader.forwards == 0
    assert isinstance(loader.strategy, EvolvedSampling)
    assert (loader.strategy._running == 1 / 40).all()
    next(iter(loader))
    assert loader.forwards == 20
    with torch.no_grad():
        losses = F.cross_entropy(model.eval()(data.x), data.y, reduction="none").double().numpy()
    seen = np.flatnonzero(loader.strategy._running != 1 / 40)
    assert len(seen) == 20
    assert set(numbers_of(loader)) <= set(seen)
    assert loader.strategy._running[seen] == pytest.approx(0.8 / 40 + 0.2 * losses[seen], rel=1e-5)


def test_a_warm_up_leaves_the_running_losses_alone():
    loader = smdl.DataLoader(Tuples(40), Net(), 5, method="evolved_sampling", options={"anneal": 0.0})
    loader.warm_up()
    assert (loader.strategy._running == 1 / 40).all()  # type: ignore[attr-defined]


def test_candidates_without_rows_are_refused():
    pool = pool_of([1.0, 2.0])
    pool.rows = None
    with pytest.raises(ValueError, match=r"must know which samples it is shown: .* epoch.score_rows"):
        draw(prepared(2), pool, 1)


def test_the_length_of_the_run_must_be_known_for_its_plain_parts():
    with pytest.raises(ValueError, match=r"evolved_sampling needs epochs=, .* Without it pass anneal=0"):
        EvolvedSampling().prepare(30, None)
    prepared(30, None, anneal=0.0)


@pytest.mark.parametrize("running", [torch.zeros(2), torch.full((3,), torch.nan)])
def test_a_state_that_does_not_fit_is_refused(running):
    with pytest.raises(ValueError, match="running must be 3 numbers, finite"):
        prepared(3).load_state_dict({"running": running})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta1": 1.5}, r"beta1 must be a number in \[0, 1\], got 1.5"),
        ({"beta2": -0.5}, r"beta2 must be a number in \[0, 1\], got -0.5"),
        ({"anneal": 0.6}, r"anneal must be a part of the run, in \[0, 0.5\], got 0.6"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        EvolvedSampling(**options)
