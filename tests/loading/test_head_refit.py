"""refit_head: the minimum of its objective, on kept features or on one pass, and errors that leave the model alone."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, TensorDataset

import smdl
from smdl.scoring.scorer import NotFiniteError

N, WIDTH, CLASSES = 120, 6, 3


def tail(n: int = N, seed: int = 0) -> TensorDataset:
    """Three classes of 90, 20 and 10 samples, as far apart as they are wide."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate((n - 30, 20, 10))])
    centres = 1.5 * torch.eye(CLASSES, WIDTH)
    return TensorDataset(torch.randn(n, WIDTH, generator=generator) + centres[labels], labels)


def network(outputs: int = CLASSES, seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, outputs))


def objective(model: Any, old: Any, data: TensorDataset, weights: torch.Tensor, l2: float) -> torch.Tensor:
    """The objective of the docstring, as it is printed."""
    inputs, labels = data.tensors
    losses = F.cross_entropy(model(inputs), labels, reduction="none")
    moved = sum(
        ((new - before) ** 2).sum() for new, before in zip(model[2].parameters(), old[2].parameters(), strict=True)
    )
    return (weights * losses).sum() / weights.sum() + l2 * moved


def class_weights(labels: torch.Tensor) -> torch.Tensor:
    return 1 / labels.bincount()[labels]


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(model: nn.Module, before: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value.nan_to_num(), before[name].nan_to_num()) for name, value in model.state_dict().items())


@pytest.mark.parametrize("l2", [1e-3, 0.1])
@pytest.mark.parametrize("balance", ["classes", "errors", "none", "weights"])
def test_the_new_head_minimises_the_objective_and_the_rest_stays(balance, l2):
    data, model = tail(), network()
    inputs, labels = data.tensors
    old, weights = copy.deepcopy(model), torch.ones(N)
    if balance in ("classes", "errors"):
        weights = class_weights(labels)
    if balance == "errors":
        weights = weights * torch.exp(-4 * old(inputs).softmax(1).gather(1, labels[:, None])[:, 0]).detach()
    if balance == "weights":
        weights = torch.rand(N, generator=torch.Generator().manual_seed(1))
    assert smdl.refit_head(model, data, weights if balance == "weights" else balance, l2=l2) is model
    assert torch.equal(model[0].weight, old[0].weight)
    model = model.double()
    gradients = torch.autograd.grad(
        objective(model, old.double(), TensorDataset(inputs.double(), labels), weights.double(), l2),
        list(model[2].parameters()),
    )
    assert max(float(gradient.abs().max()) for gradient in gradients) < 1e-5
    assert not torch.allclose(model[2].weight, old[2].weight)


def test_rare_classes_gain():
    data, test = tail(), tail(seed=1)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(model(data.tensors[0]), data.tensors[1]).backward()
        optimizer.step()

    def rare_recall(model: nn.Module) -> float:
        right = model(test.tensors[0]).argmax(1) == test.tensors[1]
        return float(right[-30:].float().mean())

    assert rare_recall(smdl.refit_head(model, data, copy=True)) > rare_recall(model) + 0.1


def test_kept_features_are_used_without_a_forward():
    data, model = tail(), network()
    loader = smdl.DataLoader(data, model, batch_size=20, method="observed", seed=0)
    for inputs, targets in loader:
        F.cross_entropy(model(inputs), targets)  # the weights stay, so kept features are those of one pass
    expected: Any = smdl.refit_head(model, data, copy=True)
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    found: Any = smdl.refit_head(model, loader, copy=True)
    handle.remove()
    assert not calls
    assert torch.allclose(found[2].weight, expected[2].weight, atol=0.02)  # kept as float16
    assert not torch.allclose(found[2].weight, model[2].weight, atol=0.1)


def refitted(model: nn.Module, data: Any) -> torch.Tensor:
    found: Any = smdl.refit_head(model, data, copy=True)
    return found[2].weight


def test_every_kind_of_data_gives_the_same_head():
    data, model = tail(), network()
    expected = refitted(model, data)
    uniform = smdl.DataLoader(data, model, batch_size=20, method="uniform")
    for one in (uniform, TorchLoader(data, 7), iter([(data.tensors[0], data.tensors[1])])):
        assert torch.allclose(refitted(model, one), expected, atol=1e-5)
    assert not torch.allclose(model[2].weight, expected, atol=1e-2)


def test_a_copy_leaves_the_model_alone():
    data, model = tail(), network()
    before = state_of(model)
    assert smdl.refit_head(model, data, copy=True) is not model
    assert same(model, before)


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "mean_squared_error", "callable"])
def test_other_losses_move_towards_their_minimum(loss):
    inputs, labels = tail().tensors
    targets = (labels > 0).float()
    model = network(1)
    function = {
        "binary_cross_entropy": lambda out: F.binary_cross_entropy_with_logits(out, targets),
        "mean_squared_error": lambda out: F.mse_loss(out, targets),
        "callable": lambda out: (out - targets).abs().mean(),
    }[loss]
    before = float(function(model(inputs)[:, 0]).detach())
    given = (lambda out, wanted: (out[:, 0] - wanted).abs()) if loss == "callable" else loss
    smdl.refit_head(model, TensorDataset(inputs, targets), "none", l2=0.0, scoring=smdl.Scoring(loss=given))
    assert float(function(model(inputs)[:, 0]).detach()) < before - 0.01
    if loss == "mean_squared_error":  # least squares: the residuals are orthogonal to the features
        features = model[1](model[0](inputs))
        assert float((features.T @ (model(inputs)[:, 0] - targets)).detach().abs().max()) < 1e-3


def test_one_output_can_be_balanced():
    inputs, labels = tail().tensors
    model, targets = network(1), (labels == 2).float()
    scoring = smdl.Scoring(loss="binary_cross_entropy")
    plain, even = (
        smdl.refit_head(model, TensorDataset(inputs, targets), balance, scoring=scoring, copy=True)
        for balance in ("none", "classes")
    )
    assert float((even(inputs) - plain(inputs)).detach().mean()) > 0.5


def nan_inputs() -> TensorDataset:
    inputs, labels = tail().tensors
    inputs[3, 0] = torch.nan
    return TensorDataset(inputs, labels)


class Cosine(nn.Linear):
    def forward(self, input):  # noqa: A002
        return F.linear(F.normalize(input), F.normalize(self.weight))


class OneOf(nn.Module):
    """A model whose outputs no linear layer makes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs):
        return self.body(inputs).tanh()


class Tied(nn.Module):
    """A model of tokens whose head has the weight of its embedding."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(CLASSES, 4), nn.Linear(4, CLASSES, bias=False)
        weight = self.embedding.weight
        self.head.weight = nn.Parameter(weight.data) if own else weight  # another parameter, but the same memory

    def forward(self, tokens):
        return self.head(self.embedding(tokens).mean(1))


def tokens() -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randint(CLASSES, (N, 4), generator=generator), tail().tensors[1])


def spoilt(part: str) -> nn.Sequential:
    model = network()
    with torch.no_grad():
        model[2].get_parameter(part)[0] = torch.nan
    return model


def hooked() -> nn.Sequential:
    model = network()
    model[2].register_forward_hook(lambda *call: 3 * call[2])
    return model


MSE = smdl.Scoring(loss="mse")


class Endless(IterableDataset):
    def __iter__(self):
        return iter(tail())


def made_for_inference() -> nn.Module:
    with torch.inference_mode():
        return network()


@pytest.mark.parametrize(
    ("model", "data", "options", "kind", "says"),
    [
        (network(), TensorDataset(tail().tensors[0], torch.zeros(N, dtype=torch.long)), {}, ValueError, "two classes"),
        (
            network(),
            TensorDataset(tail().tensors[0], torch.zeros(N, dtype=torch.long)),
            {"balance": "none"},
            ValueError,
            "two classes",
        ),
        (network(5), tail(), {}, ValueError, "2 have no sample"),
        (network(), nan_inputs(), {}, NotFiniteError, "finite"),
        (nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), Cosine(8, 3)), tail(), {}, ValueError, "plain nn.Linear"),
        (OneOf(), tail(), {}, ValueError, "no linear layer"),
        (network(), tail(), {"balance": np.ones(7)}, ValueError, "120, got 7"),
        (network(), tail(), {"balance": -np.ones(N)}, ValueError, "≥ 0"),
        (network(), TorchLoader(tail(), 50), {"balance": np.ones(N)}, ValueError, "batches do not have"),
        (network(), tail(), {"balance": "class"}, ValueError, "balance"),
        (network(), tail(), {"balance": None}, TypeError, "balance"),
        (network(), tail(), {"l2": -1}, ValueError, "l2"),
        (network(), iter([]), {}, ValueError, "have none"),
        (network(), 3, {}, TypeError, "data"),
        (network(), Endless(), {}, TypeError, r"got the IterableDataset Endless: pass torch.utils.data.DataLoader"),
        (network(), dict(enumerate(tail())), {}, TypeError, "data must be .*, got 'dict'"),
        (network(), list(TorchLoader(tail(), 50)), {}, ValueError, r"if it holds batches, pass iter\(data\)"),
        (network(), list(TorchLoader(tail(), 60)), {}, ValueError, r"if it holds batches, pass iter\(data\)"),
        (made_for_inference(), tail(), {}, ValueError, "weights that were made under torch.inference_mode"),
        (made_for_inference(), tail(), {"copy": True}, ValueError, "weights that were made under torch.inference_mode"),
        (
            network(1),
            TensorDataset(tail().tensors[0], torch.rand(N)),
            {"scoring": smdl.Scoring(loss="mse")},
            ValueError,
            "class numbers",
        ),
        (Tied(own=False), tokens(), {}, ValueError, r"embedding \(Embedding\) holds it.*detach\(\).clone\(\)"),
        (Tied(own=True), tokens(), {"copy": True}, ValueError, r"embedding \(Embedding\) holds it"),
        (network(), tail(), {"balance": (tail().tensors[1] == 1).double()}, ValueError, "above 0, got class 1 only"),
        (
            network(1),
            TensorDataset(tail().tensors[0], (tail().tensors[1] > 0).float()),
            {"balance": (tail().tensors[1] > 0).double(), "scoring": smdl.Scoring(loss="bce")},
            ValueError,
            "above 0, got class 1 only",
        ),
        (network(), tail(), {"balance": "errors", "gamma": 1e30}, ValueError, "above 0, got none"),
        (hooked(), tail(), {}, ValueError, "forward hook of the head"),
        (network(), tail().tensors, {}, TypeError, r"data must .*tuple of tensors of shapes .*TensorDataset\(inputs"),
        (network(), list(tail().tensors), {}, TypeError, "got a list of tensors"),
        (spoilt("weight"), tail(), {}, NotFiniteError, "head's weight must be finite"),
        (spoilt("bias"), tail(), {}, NotFiniteError, "head's bias must be finite"),
        (
            network(1),
            TensorDataset(tail().tensors[0], torch.arange(N).float().where(torch.arange(N) != 7, torch.nan)),
            {"balance": "none", "scoring": MSE},
            NotFiniteError,
            "targets must be finite to refit the head, got nan for sample 7",
        ),
    ],
)
def test_bad_input_is_an_error_and_the_model_stays(model, data, options, kind, says):
    before = state_of(model)
    with pytest.raises(kind, match=says):
        smdl.refit_head(model, data, **options)
    assert same(model, before)


def test_a_hook_that_came_after_the_training_is_refused():
    data, model = tail(), network()
    loader = smdl.DataLoader(data, model, batch_size=20, seed=0)
    for inputs, targets in loader:
        F.cross_entropy(model(inputs), targets)
    seen = []
    looks = model[2].register_forward_hook(lambda *call: seen.append(call))  # and changes nothing
    smdl.refit_head(model, loader, copy=True)
    looks.remove()
    model[2].register_forward_hook(lambda *call: 3 * call[2])
    with pytest.raises(ValueError, match="forward hook of the head"):
        smdl.refit_head(model, loader)


def test_a_loader_of_another_model_is_refused():
    data = tail()
    with pytest.raises(ValueError, match="another model"):
        smdl.refit_head(network(), smdl.DataLoader(data, network(seed=1), batch_size=20))
