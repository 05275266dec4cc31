"""Models that return a tuple: the outputs are found, or an error says how to name them."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import smdl
from tests.toys import numbers_of

DATA = TensorDataset(torch.randn(60, 6, generator=torch.Generator().manual_seed(0)), torch.arange(60) % 3)


class Pair(nn.Module):
    """(features, logits), or the other way round."""

    def __init__(self, features_first: bool = True, linear: bool = False) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 32), nn.Linear(32, 3)
        self.features_first, self.linear = features_first, linear

    def forward(self, x):
        features = self.a(x) if self.linear else self.a(x).relu()
        return (features, self.b(features)) if self.features_first else (self.b(features), features)


class Transformer(nn.Module):
    """A model of transformers with return_dict=False: (loss, logits) in training, (logits,) without labels."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 32), nn.Linear(32, 3)

    def forward(self, x, labels=None):
        logits = self.b(self.a(x).relu())
        return (logits,) if labels is None else (F.cross_entropy(logits, labels), logits)


def second(model, batch):
    return model(batch[0])[1]


def load(model, method="fresh", epochs=None, **options):
    return smdl.DataLoader(DATA, model, 10, method=method, epochs=epochs, scoring=smdl.Scoring(**options))


@pytest.mark.parametrize("options", [{}, {"features": "a"}, {"features": "b"}])
@pytest.mark.parametrize("linear", [True, False])
def test_features_before_logits_are_not_taken_for_logits(options, linear):
    with pytest.raises(ValueError, match=r"a tuple with outputs of shapes .*32\) and .*3\).*forward=lambda"):
        next(iter(load(Pair(linear=linear), **options)))


def test_logits_before_features_are_found():
    loader = load(Pair(features_first=False))
    next(iter(loader))
    assert loader.scorer.network.tap is loader.model.b  # type: ignore[union-attr]


@pytest.mark.parametrize(("method", "options"), [("loss", {"epochs": 9}), ("infobatch", {"epochs": 9})])
def test_losses_are_those_of_the_logits_that_forward_takes(method, options, monkeypatch):
    model = Pair()
    loader = load(model, method, forward=second, **options)
    taken = {}
    monkeypatch.setattr(loader.strategy, "observe", lambda rows, losses: taken.update(zip(rows, losses, strict=True)))
    inputs, labels = next(batches := iter(loader))
    losses = F.cross_entropy(model(inputs)[1], labels, reduction="none")
    rows = numbers_of(loader)
    next(batches, None)
    assert [taken[row] for row in rows] == pytest.approx(losses.tolist(), rel=1e-5)


@pytest.mark.parametrize(("model", "options"), [(Pair(), {"forward": second}), (Transformer(), {})])
def test_a_training_forward_that_returns_a_tuple_is_observed(model, options):
    loader = load(model, "observed", **options)
    for inputs, labels in loader:
        model(inputs, labels) if isinstance(model, Transformer) else model(inputs)
    cache = loader.candidates.state_dict()["cache"]
    assert bool(cache["seen"].all())
    kept = loader.scorer.network.outputs_from(cache["features"].float())
    known = model.b(model.a(DATA.tensors[0]).relu())
    assert torch.allclose(kept, known, atol=1e-2)


class Wide(nn.Module):
    """Its outputs are features of another loss: a linear layer makes them, and their width says nothing of classes."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 8), nn.Linear(8, width)

    def forward(self, x):
        return self.b(self.a(x).relu())


def train(loader, epochs=2, after_epoch=lambda _: None):
    for epoch in range(epochs):
        for x, _ in loader:
            loader.model(x)
        after_epoch(epoch)


@pytest.mark.parametrize("method", ["observed", "fresh", "loss"])
def test_outputs_that_are_much_wider_than_the_labels_are_named_once(method):
    wanted = r"32 outputs per sample, and the labels of an epoch are 0..2. .*forward="
    with pytest.warns(UserWarning, match=wanted) as told:
        train(load(Wide(), method, epochs=2))
    assert sum("32 outputs" in str(one.message) for one in told) == 1


@pytest.mark.parametrize("method", ["observed", "fresh"])
def test_a_label_beyond_the_outputs_is_named_whenever_it_comes(method):
    """The first rows do not show it."""
    labels = torch.arange(60) % 3
    loader = smdl.DataLoader(TensorDataset(DATA.tensors[0], labels), Wide(3), 10, method=method)
    with pytest.raises(ValueError, match=r"targets must be in 0..2, the model's classes, got 7"):
        train(loader, after_epoch=lambda epoch: labels.index_fill_(0, torch.tensor([epoch]), 7))
