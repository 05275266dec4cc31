from itertools import chain

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

import smdl
from smdl.strategies.evolved_sampling import EvolvedSampling
from tests.toys import Net, Tuples, sgd, train


def prepared(samples: int, epochs: int | None = 1000, **options: float) -> EvolvedSampling:
    strategy = EvolvedSampling(**options)
    strategy.prepare(samples, epochs)
    return strategy


def draw(strategy: EvolvedSampling, size: int, seed: int = 0) -> np.ndarray:
    return strategy.select(None, np.arange(len(strategy._running)), size, np.random.default_rng(seed)).indices


def test_a_weight_is_the_running_loss_and_a_part_of_its_difference_to_the_latest_loss():
    """By hand, β1 = 0.2, β2 = 0.9, two samples: s = 1/2. Loss 2: w = 0.1 + 1.6 = 1.7, s = 0.45 + 0.2 = 0.65.
    Then loss 1: w = 0.13 + 0.8 = 0.93, s = 0.585 + 0.1 = 0.685; and indeed 0.685 + 0.7 (1 − 0.65) = 0.93."""
    strategy = prepared(2)
    for loss, weight, running in ((2.0, 1.7, 0.65), (1.0, 0.93, 0.685)):
        strategy.observe(np.array([0]), np.array([loss]))
        assert strategy._weights.tolist() == pytest.approx([weight, 0.5])
        assert strategy._running.tolist() == pytest.approx([running, 0.5])


def test_draws_follow_the_weights_within_the_meta_batch():
    strategy = prepared(4, anneal=0.0)
    strategy.skip_warm_up()
    strategy.observe(np.arange(4), np.array([4.0, 3.0, 2.0, 1.0]))
    counts = np.bincount([draw(strategy, 1, seed)[0] for seed in range(4000)], minlength=4)
    assert chisquare(counts, 4000 * strategy._weights / strategy._weights.sum()).pvalue > 1e-3
    assert strategy._weights / strategy._weights.sum() == pytest.approx((0.05 + 0.8 * np.array([4, 3, 2, 1])) / 8.2)


def test_the_meta_batch_is_random_and_no_sample_comes_twice_in_a_batch():
    strategy = prepared(100, factor=2.0, anneal=0.0)
    strategy.skip_warm_up()
    strategy.observe(np.arange(100), np.where(np.arange(100) < 10, 1e9, 0.0))
    for seed in range(20):
        batch = draw(strategy, 10, seed)
        assert len(set(batch)) == 10
    often = np.concatenate([draw(strategy, 10, seed) for seed in range(200)])
    assert np.mean(often < 10) == pytest.approx(0.2, abs=0.03), "the heavy 10 are in a fifth of the meta-batches each"


def test_the_first_epoch_is_one_plain_pass_and_the_last_part_is_random():
    strategy = prepared(20, epochs=4, factor=20.0, anneal=0.25)
    seen = []
    for seed in range(4):
        batch = draw(strategy, 5, seed)
        strategy.observe(batch, np.where(batch == 3, 1e9, 1e-9))
        seen += batch.tolist()
    assert sorted(seen) == list(range(20))
    hard = [3 in draw(strategy, 1, seed) for seed in range(40)]
    assert all(hard), "it has almost all of the weight"
    late = [3 in draw(strategy, 1, seed) for seed in range(40)]
    assert sum(late) < 10, "from 60 of 80 draws on, all are equally likely"


def test_an_epoch_of_the_loader_is_n_draws():
    data, model = Tuples(30), Net()
    loader = smdl.DataLoader(data, model, 4, method="evolved_sampling", epochs=3)
    seen = train(loader, model, sgd(model), 3 * 8)
    assert [len([*chain(*seen[k : k + 8])]) for k in (0, 8, 16)] == [30] * 3
    assert sorted(chain(*seen[:8])) == list(range(30))
    assert loader.forwards == 0
    assert isinstance(loader.strategy, EvolvedSampling)
    assert (loader.strategy._weights != 1 / 30).all(), "the training forward told every loss"


def test_the_length_of_the_run_must_be_known_for_its_last_part():
    with pytest.raises(ValueError, match=r"evolved_sampling needs epochs=, .* Without it pass anneal=0"):
        EvolvedSampling().prepare(30, None)
    prepared(30, None, anneal=0.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": torch.tensor([0, 0, 1])}, "order must hold each of 0..2 once"),
        ({"running": torch.zeros(2)}, "running must be 3 finite numbers"),
        ({"weights": torch.full((3,), torch.nan)}, "weights must be 3 finite numbers"),
        ({"drawn": -1}, "drawn must be a whole number ≥ 0"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        prepared(3).load_state_dict({**prepared(3).state_dict(), **change})


@pytest.mark.parametrize("name", ["beta1", "beta2", "anneal", "factor"])
def test_bad_options_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be"):
        EvolvedSampling(**{name: -1.0})
