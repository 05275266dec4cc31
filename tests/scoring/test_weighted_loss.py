from itertools import chain

import numpy as np
import pytest
import torch

import smdl
from smdl.loading.candidates.base import planned_batch, saved_batch
from smdl.loading.strategies.strategy import drawn
from smdl.training.config import DataConfig, ModelConfig, TrainConfig
from smdl.training.loop import TrainingRun
from tests.toys import Net, Tuples


def selection(weights: list[float] | None, size: int = 3) -> smdl.Selection:
    given = None if weights is None else np.array(weights)
    return smdl.Selection(np.arange(size), np.zeros(size), 0.0, weights=given)


def test_the_mean_of_weight_times_loss():
    """By hand: (1·2 + 2·4 + 0.5·6) / 3 = 13/3."""
    losses = torch.tensor([2.0, 4.0, 6.0], requires_grad=True)
    loss = smdl.weighted_mean(losses, selection([1.0, 2.0, 0.5]))
    loss.backward()
    assert loss.item() == pytest.approx(13 / 3)
    assert losses.grad is not None
    assert losses.grad.tolist() == pytest.approx([1 / 3, 2 / 3, 1 / 6])


def test_without_weights_it_is_the_plain_mean():
    losses = torch.tensor([2.0, 4.0, 6.0])
    assert smdl.weighted_mean(losses, None).item() == smdl.weighted_mean(losses, selection(None)).item() == 4


@pytest.mark.parametrize(
    ("losses", "message"),
    [
        (torch.tensor(1.0), r'losses must be one per sample, \(B,\), got shape \(\): use reduction="none"'),
        (torch.zeros(2), "losses must be one per sample of the selection, 3, got 2"),
    ],
)
def test_losses_that_do_not_fit_are_refused(losses, message):
    with pytest.raises(ValueError, match=message):
        smdl.weighted_mean(losses, selection([1.0, 1.0, 1.0]))


def test_renumbered_picks_keep_their_weights():
    assert selection([1.0, 2.0, 3.0]).renumbered(np.array([7, 8, 9])).weights.tolist() == [1, 2, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "factor"), [({}, 1.0), ({"reduction": "sum"}, 3.0), ({"label_smoothing": 0.1}, 1.0)]
)
def test_smdl_train_weights_its_losses(options, factor):
    data, model = DataConfig(train_size=50, test_size=10), ModelConfig("mlp", width=0.1)
    run = TrainingRun(TrainConfig(data, model, "uniform", loss_options=options))
    logits, targets = torch.randn(3, 10, requires_grad=True), torch.tensor([1, 2, 3])
    each = torch.nn.CrossEntropyLoss(**{**options, "reduction": "none"})(logits, targets)
    for weights, expected in ((None, each.mean()), ([1.0, 2.0, 0.5], (each * torch.tensor([1.0, 2.0, 0.5])).mean())):
        run.loader._selection = selection(weights)
        assert run._batch_loss(logits, targets).item() == pytest.approx(factor * expected.item(), rel=1e-6)
    assert run.loss.reduction == options.get("reduction", "mean"), "the loss itself is not changed"


def test_a_saved_batch_keeps_its_weights():
    for weights in ([1.0, 2.0, 3.0], None):
        found = planned_batch(saved_batch(selection(weights)), 3).weights
        assert (found if found is None else found.tolist()) == weights
    for wrong in (torch.ones(2), torch.tensor([1.0, 2.0, torch.nan])):
        with pytest.raises(ValueError, match="a planned batch: weights must be 3 numbers, finite"):
            planned_batch({**saved_batch(selection(None)), "weights": wrong}, 3)


class Heavy(smdl.Strategy):
    """Weights without losses: the batches of a window are planned ahead, with their weights."""

    def __init__(self, scored: bool = False) -> None:
        self.needs_scores = scored

    def select(self, pool, remaining, batch_size, rng):  # noqa: ARG002
        return drawn(rng.choice(remaining, batch_size, replace=False), 2.0 + rng.random(batch_size))


@pytest.mark.parametrize("source", [smdl.Full(4), smdl.RandomPool(2), smdl.Observed(2, lag=2, start=0)], ids=repr)
def test_weights_stay_with_their_samples_after_a_resume(source):
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method=smdl.Method("heavy", Heavy, source))
    iterator = iter(loader)
    next(iterator)
    resumed = smdl.DataLoader(Tuples(30), Net(), 4, method=smdl.Method("heavy", Heavy, source))
    resumed.load_state_dict(loader.state_dict())
    for _ in resumed:
        next(iterator)
        one, other = loader.selection, resumed.selection
        assert one is not None
        assert other is not None
        assert one.indices.tolist() == other.indices.tolist()
        assert one.weights.tolist() == other.weights.tolist()  # type: ignore[union-attr]


def test_samples_that_observed_takes_first_have_the_weight_one():
    method = smdl.Method("heavy", Heavy, smdl.Observed(3, start=0), {"scored": True})
    loader, model, seen, mixed = smdl.DataLoader(Tuples(30), net := Net(), 4, method=method), net, set[int](), 0
    for x, _ in loader:
        model(x)
        assert loader.selection is not None
        weights = loader.selection.weights
        new = [int(k) not in seen for k in loader.selection.indices]
        if weights is not None:
            assert (weights[new] == 1).all()
            assert (weights[~np.array(new)] > 1).all()
            mixed += any(new)
        seen |= set(loader.selection.indices.tolist())
    assert mixed


class Doubled(smdl.Strategy):
    """Gives every sample the weight two."""

    def select(self, pool, remaining, batch_size, rng):  # noqa: ARG002
        return drawn(remaining[:batch_size], np.full(batch_size, 2.0))


def test_a_loop_that_ignores_the_weights_is_told_once():
    batches = [(Tuples(6).x, Tuples(6).y)] * 6
    for loader in (
        smdl.DataLoader(Tuples(12), Net(), 4, method=Doubled()),
        smdl.SelectiveLoader(batches, Net(), method=Doubled()),
    ):
        with pytest.warns(UserWarning, match="did not ask for the weights") as found:
            list(chain(loader, loader))
        assert len(found) == 1


def test_a_loop_that_uses_the_weights_is_told_nothing(recwarn):
    loader = smdl.DataLoader(Tuples(12), Net(), 4, method=Doubled())
    for x, _ in loader:
        smdl.weighted_mean(x.sum(dim=1), loader.selection)
    for _ in smdl.DataLoader(Tuples(12), Net(), 4, method="uniform"):
        pass
    assert not recwarn.list
