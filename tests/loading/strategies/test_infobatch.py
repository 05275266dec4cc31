from itertools import chain

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import smdl
from smdl.loading.strategies.infobatch import InfoBatch
from tests.toys import Net, Tuples, numbers_of, sgd, train

EIGHT = np.array([0.0, 1, 2, 3, 5, 5, 5, 7])  # the mean is 3.5: four are below it


def prepared(samples: int, epochs: int | None = 1000, **options: float) -> InfoBatch:
    strategy = InfoBatch(**options)
    strategy.prepare(samples, epochs)
    return strategy


def draw(strategy: InfoBatch, size: int, seed: int = 0) -> smdl.Selection:
    return strategy.select(None, np.arange(len(strategy._losses)), size, np.random.default_rng(seed))


def after_the_first_pass(losses: np.ndarray, **options: float) -> InfoBatch:
    strategy = prepared(len(losses), **options)
    first = draw(strategy, len(losses))
    assert sorted(first.indices) == list(range(len(losses)))
    assert first.weights is None, "nothing is known yet, so nothing is left out"
    strategy.observe(np.arange(len(losses)), losses)
    return strategy


def test_half_of_the_losses_below_the_mean_are_left_out_and_the_others_of_them_count_twice():
    """By hand: 4 of 8 are below the mean 3.5; 2 of them stay, with weight 2, so the weights of the pass sum to 8."""
    strategy, kept = after_the_first_pass(EIGHT), np.zeros(8)
    for seed in range(400):
        batch = draw(strategy, 6, seed)
        assert batch.weights is not None
        assert set(batch.indices) > {4, 5, 6, 7}
        assert dict(zip(batch.indices, batch.weights, strict=True)) == {
            int(i): (2.0 if i < 4 else 1.0) for i in batch.indices
        }
        assert batch.weights.sum() == 8
        kept[batch.indices] += 1
    assert kept[4:].tolist() == [400] * 4
    assert np.abs(kept[:4] / 400 - 0.5).max() < 0.1


def test_the_defaults_are_those_of_the_authors_code():
    assert (InfoBatch().prune, InfoBatch().delta) == (0.5, 0.875)


def test_an_odd_number_below_the_mean_keeps_the_floor_of_its_half():
    """By hand, as `int(keep_ratio * len(...))` in the authors' `prune`: 3 are below the mean 2, 1 of them stays."""
    strategy = after_the_first_pass(np.array([0.0, 1, 1, 3, 5]))
    draw(strategy, 1)
    assert len(strategy._order) == 3
    assert sorted(strategy._weights) == [1.0, 1.0, 2.0]


def test_a_sample_at_the_mean_is_never_left_out():
    strategy = after_the_first_pass(np.ones(6))
    assert draw(strategy, 6).weights is None


@pytest.mark.parametrize(("prune", "kept", "weight"), [(0.0, 4, None), (0.25, 3, 4 / 3), (0.75, 1, 4.0)])
def test_the_weights_make_up_for_what_is_left_out(prune, kept, weight):
    strategy = after_the_first_pass(EIGHT, prune=prune)
    batch = draw(strategy, 4 + kept)
    assert (batch.indices < 4).sum() == kept
    if weight is None:
        assert batch.weights is None
    else:
        assert batch.weights is not None
        assert batch.weights[batch.indices < 4] == pytest.approx(weight)
        assert batch.weights.sum() == pytest.approx(8)


def test_all_samples_come_once_the_part_delta_of_the_run_is_over():
    strategy = prepared(8, epochs=4, delta=0.5)
    sizes, start = [], 0
    draw(strategy, 8)
    strategy.observe(np.arange(8), EIGHT)
    for _ in range(3):  # passes that begin after 8, 14 and 20 of 32 draws; delta is at 16
        start = strategy._drawn
        draw(strategy, 1)
        sizes.append((start, len(strategy._order)))
        draw(strategy, len(strategy._order) - 1)
    assert sizes == [(8, 6), (14, 6), (20, 8)]


def test_a_batch_across_two_passes_is_full():
    strategy = after_the_first_pass(EIGHT)
    first, second = draw(strategy, 4, 1), draw(strategy, 4, 2)
    assert len(second) == 4
    assert set(first.indices) | set(second.indices[:2]) > {4, 5, 6, 7}


def test_an_epoch_of_the_loader_keeps_its_length_so_that_schedules_stay_true():
    data, model = Tuples(30), Net()
    loader = smdl.DataLoader(data, model, 4, method="infobatch", epochs=4)
    seen = train(loader, model, sgd(model), 4 * 8)
    assert len(loader) == 8
    assert [len([*chain(*seen[k : k + 8])]) for k in (0, 8, 16, 24)] == [30] * 4
    assert sorted(chain(*seen[:8])) == list(range(30)), "the first epoch is a plain pass"
    assert max(np.bincount([*chain(*seen[8:24])])) > 2, "passes are shorter than epochs, so there are more of them"


def test_the_losses_are_those_of_the_training_forward_without_the_weights():
    data, model = Tuples(12), Net()
    loader = smdl.DataLoader(data, model, 4, method="infobatch", epochs=2)
    for x, y in loader:
        losses = F.cross_entropy(model(x), y, reduction="none")
        loader.state_dict()  # takes what was observed so far
        assert loader.strategy._losses[numbers_of(loader)].tolist() == losses.double().tolist()  # type: ignore[attr-defined]


def test_the_length_of_the_run_must_be_known_unless_samples_are_left_out_to_its_end():
    with pytest.raises(ValueError, match=r"InfoBatch needs epochs=, .* after 0.875 of it. Without it pass delta=1"):
        InfoBatch().prepare(30, None)
    prepared(30, None, delta=1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"prune": 0.95}, r"prune must be a number in \[0, 0.9\], got 0.95"), ({"delta": 2}, "delta must be a part of")],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        InfoBatch(**options)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"losses": torch.zeros(7)}, "losses must be 8 numbers"),
        ({"order": torch.tensor([0, 0])}, "order must be indices in 0..7, each at most once"),
        ({"order": torch.tensor([9])}, "order must be indices in 0..7, each at most once"),
        ({"weights": torch.zeros(6)}, "weights must be 6 numbers ≥ 1"),
        ({"place": 7}, "place must be in the pass of 6 samples, got 7"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change, message):
    strategy = after_the_first_pass(EIGHT)
    draw(strategy, 2)
    with pytest.raises(ValueError, match=message):
        prepared(8).load_state_dict({**strategy.state_dict(), **change})


def test_a_batch_in_which_a_pass_ends_has_no_sample_twice():
    for seed in range(50):
        strategy = prepared(10)
        draw(strategy, 6, seed)
        assert len(set(draw(strategy, 6, seed + 100).indices)) == 6, "4 of this pass, 2 of the next"
