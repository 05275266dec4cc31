import numpy as np
import pytest
import torch
from torch.nn import functional as F

import smdl
from smdl.loading.strategies.importance import Importance, probabilities, variance_gain
from tests.toys import CLASSES, Net, Tuples, numbers_of, sgd, train


def pool_of(right: list[float]) -> smdl.Pool:
    """A pool of two classes, label 0 with these probabilities: ‖p − onehot(y)‖ = √2 (1 − p_0)."""
    p = torch.tensor(right)
    return smdl.Pool(torch.rand(len(p), 2), torch.stack([p, 1 - p], 1), torch.zeros(len(p), dtype=torch.int64))


def switched_on() -> Importance:
    strategy = Importance()
    strategy.tau = 3.0
    return strategy


def test_a_pool_is_not_used_while_tau_is_low_whatever_the_source_scores():
    strategy = Importance()
    batch = strategy.select(pool_of([0.25, 0.75, 0.5]), np.arange(3), 2, np.random.default_rng(0))
    assert batch.weights is None
    assert len(set(batch.indices)) == 2
    strategy.observe(batch.indices, np.array([3.0, 1.0]))
    assert not strategy.scores_now()
    assert strategy.tau == pytest.approx(0.1 * 1.25**0.5)


def test_norms_of_a_batch_that_was_drawn_by_importance_do_not_count():
    strategy = switched_on()
    batch = strategy.select(pool_of([0.25, 0.75, 0.5]), np.arange(3), 2, np.random.default_rng(0))
    tau = strategy.tau
    strategy.observe(batch.indices, np.array([3.0, 1.0]))
    assert strategy.scores_now()
    assert strategy.tau == tau


def test_probabilities_weights_and_tau_of_two_samples():
    """By hand: norms 3 : 1 give p = 3/4, 1/4, weights 1/(2p) = 2/3, 2, and τ = √(2 (9 + 1)/16) = √1.25."""
    norms = np.array([3.0, 1.0])
    assert probabilities(norms).tolist() == [0.75, 0.25]
    assert variance_gain(norms) == pytest.approx(1.25**0.5)
    strategy = switched_on()
    batch = strategy.select(pool_of([0.25, 0.75]), np.arange(2), 4000, np.random.default_rng(0))
    assert batch.weights is not None
    assert batch.weights[batch.indices == 0] == pytest.approx(2 / 3)
    assert batch.weights[batch.indices == 1] == pytest.approx(2)
    assert (batch.indices == 0).mean() == pytest.approx(0.75, abs=0.03)
    assert strategy.tau == pytest.approx(0.9 * 3 + 0.1 * 1.25**0.5)


def test_the_defaults_are_those_of_the_authors_code():
    """By hand: a pool of 3 batches, so that the threshold is (3b + 3b) / 3b = 2."""
    assert (Importance().threshold, Importance().momentum) == (2.0, 0.9)
    assert smdl.loading.methods.METHODS["importance"].candidates == smdl.RandomPool(3)


def test_tau_is_the_equation_of_the_paper():
    g = np.random.default_rng(0).random(50) ** 4
    p, u = g / g.sum(), 1 / 50
    assert variance_gain(g) == pytest.approx((1 - np.square(p - u).sum() / np.square(p).sum()) ** -0.5)
    assert variance_gain(np.ones(7)) == variance_gain(np.zeros(7)) == pytest.approx(1)


def test_the_weighted_mean_is_unbiased():
    right, losses = np.linspace(0.05, 0.9, 12), np.random.default_rng(1).random(12)
    p = probabilities(1 - right)
    assert (p * losses / (12 * p)).sum() == pytest.approx(losses.mean())
    batch = switched_on().select(pool_of(right.tolist()), np.arange(12), 60_000, np.random.default_rng(0))
    found = smdl.weighted_mean(torch.from_numpy(losses[batch.indices]), batch)
    assert float(found) == pytest.approx(losses.mean(), rel=0.02)


def test_it_forwards_no_pool_while_tau_is_low():
    data, model = Tuples(30), Net()
    loader = smdl.DataLoader(data, model, 4, method="importance", options={"threshold": 100.0})
    for x, _ in loader:
        model(x)
        assert loader.selection is not None
        assert loader.selection.weights is None
        assert len(set(numbers_of(loader))) == len(x)
    assert loader.forwards == 0
    assert 0.5 < loader.strategy.tau < 2  # type: ignore[attr-defined]  # smoothed from 0 towards 1 and above


def test_tau_follows_the_norms_of_random_batches_and_then_those_of_the_pools():
    data, model = Tuples(30), Net()
    loader = smdl.DataLoader(data, model, 5, method="importance", options={"threshold": 0.5, "momentum": 0.5})
    strategy, taus, tau = loader.strategy, [], 0.0
    assert isinstance(strategy, Importance)
    for step, (x, y) in enumerate(loader):
        taus.append(strategy.tau)
        logits = model(x)
        if step == 0:
            assert loader.forwards == 0, "τ starts at 0"
            errors = (logits.softmax(1) - F.one_hot(y, CLASSES)).norm(dim=1).detach().double().numpy()
            tau = 0.5 * variance_gain(errors)
        if step == 1:
            assert loader.forwards == 15, "a pool of three batches"
            assert tau > 0.5
    assert taus[0] == 0
    # select of step 1 smoothed τ by its pool already: 0.5 · τ of the batch + 0.5 · τ of the pool
    assert 0.5 * tau + 0.5 <= taus[1] <= 0.5 * tau + 0.5 * 15**0.5
    assert loader.forwards == 5 * 15


def test_a_threshold_of_zero_always_samples_after_the_first_batch():
    loader = smdl.DataLoader(Tuples(30), model := Net(), 5, method="importance", options={"threshold": 0.0})
    train(loader, model, sgd(model), 6)
    assert loader.forwards == 5 * 15


def test_norms_are_told_by_logits_and_not_by_losses():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method="importance")
    next(iter(loader))
    with pytest.raises(ValueError, match=r"method importance needs the logits of the batch: call observe\(logits="):
        loader.observe(np.zeros(4))
    loader.observe(logits=torch.zeros(4, CLASSES))
    assert loader.strategy._observed == pytest.approx((4 / 9 + 1 / 9 + 1 / 9) ** 0.5)  # type: ignore[attr-defined]


def test_a_batch_without_logits_is_told():
    iterator = iter(smdl.DataLoader(Tuples(30), Net(), 4, method="importance"))
    next(iterator)
    with pytest.warns(UserWarning, match=r"method importance needs .* Call loader.observe\(logits=...\)"):
        next(iterator)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau": -1.0}, "tau must be a number ≥ 0, got -1.0"),
        ({"sampled": 1}, "sampled must be True or False, got 1"),
        ({"observed": torch.tensor([-1.0])}, "observed must be numbers ≥ 0"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Importance().load_state_dict({**Importance().state_dict(), **change})


@pytest.mark.parametrize(
    ("options", "message"),
    [({"threshold": -1.0}, "threshold must be a number ≥ 0"), ({"momentum": 1.0}, r"momentum must be a number in \[0")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        Importance(**options)
