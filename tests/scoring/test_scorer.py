import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import smdl
from smdl.scoring.losses import check_logits
from smdl.scoring.scorer import Scorer
from smdl.scoring.scoring_options import Scoring
from tests.toys import CLASSES, WIDTH, Net, Tuples, same

DATA = Tuples(12)
BATCH = (DATA.x, DATA.y)


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3, bias=False)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x):
        return self.pool(self.conv(x.view(-1, 1, 1, WIDTH).expand(-1, 1, 4, WIDTH)))


class ConvHead(nn.Module):
    """No linear layer at all; the logits are made by a 1 × 1 convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.unused, self.backbone, self.classify = nn.Identity(), Backbone(), nn.Conv2d(5, CLASSES, 1)

    def forward(self, x):
        return self.classify(self.backbone(x)).flatten(1)


class TwoHeads(nn.Module):
    """An auxiliary head of the same shape comes first, and a projection of another shape last."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(CLASSES, 7)
        self.main = nn.Linear(5, CLASSES)
        self.auxiliary = nn.Linear(WIDTH, CLASSES)
        self.body = nn.Linear(WIDTH, 5)

    def forward(self, x):
        self.auxiliary(x)
        logits = self.main(self.body(x))
        self.projection(logits)
        return logits


def settings(model: nn.Module) -> list[bool]:
    return [module.training for module in model.modules()]


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_scores_are_the_eval_forward_row_by_row():
    model = Net(dropout=0.5).train()
    scores = Scorer(model)(BATCH)
    model.eval()
    with torch.no_grad():
        features, logits = model.body(DATA.x), model(DATA.x)
    assert torch.equal(scores.features, features)
    assert torch.allclose(scores.probabilities, logits.softmax(1), rtol=1e-6)
    assert torch.equal(scores.labels, DATA.y)
    assert torch.equal(scores.losses, F.cross_entropy(logits, DATA.y, reduction="none"))
    assert scores.errors is None, "they follow from probabilities and labels"
    assert not any(value.requires_grad for value in scores if value is not None)


def test_the_head_is_the_last_linear_layer_that_makes_the_logits():
    model = TwoHeads()
    assert torch.equal(Scorer(model)(BATCH).features, model.body(DATA.x))
    lone = nn.Linear(WIDTH, CLASSES)
    assert torch.equal(Scorer(lone)(BATCH).features, DATA.x)


def test_a_named_linear_layer_gives_its_input_and_any_other_module_its_output():
    model = TwoHeads()
    assert torch.equal(Scorer(model, Scoring(features="main"))(BATCH).features, model.body(DATA.x))
    assert torch.equal(Scorer(model, Scoring(features="projection"))(BATCH).features, model(DATA.x))
    conv = ConvHead()
    scores = Scorer(conv, Scoring(features="backbone.pool"))(BATCH)
    assert torch.equal(scores.features, conv.backbone(DATA.x).flatten(1))
    assert scores.features.shape == (12, 5)


def test_a_callable_gives_the_features_and_may_spare_the_second_forward():
    model, calls = Net(), []
    model.register_forward_hook(lambda *_: calls.append(1))
    alone = Scorer(model, Scoring(features=lambda _, batch: model.body(batch[0])))(BATCH)
    assert len(calls) == 1
    both = Scorer(model, Scoring(features=lambda _, batch: ((f := model.body(batch[0])), model.head(f))))(BATCH)
    assert len(calls) == 1, "the logits were given"
    found = Scorer(model)(BATCH)
    for scores in (alone, both):
        assert same([*scores[:4]], [*found[:4]])


def test_a_model_without_a_linear_head_is_told_how_to_name_its_features():
    model = ConvHead()
    with pytest.raises(ValueError, match=r'ConvHead has no linear layer .* such as features="backbone.pool", or'):
        Scorer(model)(BATCH)
    assert hooks(model) == 0


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ("backbone.pol", "unknown module in features= 'backbone.pol'; did you mean 'backbone.pool'"),
        ("", "unknown module in features= ''"),
        ("unused", "features='unused' was not used in the model's forward"),
        (lambda *_: DATA.x[:5], "must have one row per sample, got 5, 12 and 12"),
        (lambda *_: DATA.x[:, 0], r"features must be a tensor of shape \(batch, width\), got shape \(12,\)"),
        (lambda *_: [DATA.x], r"features must be a tensor of shape \(batch, width\), got list"),
    ],
)
def test_features_that_are_none_are_refused(features, message):
    with pytest.raises(ValueError, match=message):
        Scorer(ConvHead(), Scoring(features=features))(BATCH)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_scores_are_float32_whatever_the_model_computes_in(dtype):
    model = Net().to(dtype)
    scores = Scorer(model)((DATA.x.to(dtype), DATA.y.to(torch.int32)))
    types = [None if value is None else value.dtype for value in scores]
    assert types == [torch.float32, torch.float32, torch.int64, torch.float32, None], "features to errors"
    Scorer(model).pool(scores)


def test_the_model_may_be_scored_under_autocast_and_then_train_under_it():
    model = Net().train()
    scorer = Scorer(model)
    with torch.autocast("cpu", torch.bfloat16):
        scores = scorer(BATCH)
        loss = F.cross_entropy(model(DATA.x), DATA.y)
    assert scores.features.dtype == torch.float32
    loss.backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_logits_are_found_in_what_other_libraries_return():
    logits = torch.randn(2, 3)
    assert check_logits({"loss": 1, "logits": logits}) is logits
    assert check_logits(SimpleNamespace(logits=logits)) is logits
    assert check_logits((logits, "hidden")) is logits


@pytest.mark.parametrize(
    ("output", "got"),
    [
        (torch.zeros(12), r"shape \(12,\)"),
        (torch.zeros(12, 1), r"shape \(12, 1\)"),
        (torch.zeros(12, 3, dtype=torch.int64), r"shape \(12, 3\)"),
        (("hidden", torch.zeros(12, 3)), "tuple"),
        ({"out": torch.zeros(12, 3)}, "dict"),
    ],
)
def test_an_output_that_is_not_logits_is_refused(output, got):
    with pytest.raises(ValueError, match=rf"must be logits of shape \(batch, classes\), got {got}; see forward="):
        Scorer(Net(), Scoring(forward=lambda *_: output))(BATCH)


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([0] * 11 + [3]), r"targets must be in 0..2, the model's classes, got 3"),
        (torch.tensor([0] * 11 + [-1]), r"targets must be in 0..2, the model's classes, got -1"),
        (DATA.y.float(), r"one class number per sample, got torch.float32 of shape \(12,\)"),
        (DATA.y > 0, r"got torch.bool of shape \(12,\)"),
        (F.one_hot(DATA.y), r"got torch.int64 of shape \(12, 3\)"),
        (DATA.y.tolist(), "one class number per sample, got list; pass targets= to say where they are"),
        (DATA.y[:7], "features, outputs and targets must have one row per sample, got 12, 12 and 7"),
    ],
)
def test_targets_that_are_no_class_numbers_are_refused(targets, message):
    with pytest.raises(ValueError, match=message):
        Scorer(Net(), Scoring(targets=lambda _: targets))(BATCH)


def test_batches_of_another_form_need_to_be_explained():
    batch = {"pixels": DATA.x, "kind": DATA.y}
    with pytest.raises(ValueError, match="a batch that is a dict of pixels, kind needs forward=, a callable"):
        Scorer(Net())(batch)
    forward = {"forward": lambda model, batch: model(batch["pixels"])}
    with pytest.raises(ValueError, match="a dict of pixels, kind needs targets=: the name or the place"):
        Scorer(Net(), Scoring(**forward))(batch)
    scores = Scorer(Net(), Scoring(**forward, targets=lambda batch: batch["kind"]))(batch)
    assert torch.equal(scores.features, Scorer(Net())(BATCH).features)
    with pytest.raises(TypeError, match=r"model must be a torch\.nn\.Module, got 'function'"):
        Scorer(lambda x: x)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_model_that_diverged_is_named_as_the_cause(value):
    model = Net()
    with torch.no_grad():
        model.head.weight[0, 0] = value
        model.body[0].weight.fill_(value)  # type: ignore[operator]
    scorer = Scorer(model)
    with pytest.raises(ValueError, match="has training diverged"):
        scorer.pool(scorer(BATCH))


@pytest.mark.parametrize("raises", [False, True], ids=["returns", "raises"])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("features", [None, "head", "body.3", lambda model, batch: model.body(batch[0])])
def test_scoring_leaves_no_trace(features, grad, raises):
    model = Net(dropout=0.5).train()
    model.body[1].eval()  # a BatchNorm frozen by the user
    model.head.weight.grad = torch.ones_like(model.head.weight)
    forward = (lambda model, batch: [model(batch[0]), 1 / 0]) if raises else None
    before = copy.deepcopy(model)
    modes, random, loud = settings(model), torch.get_rng_state(), hooks(model)
    scorer = Scorer(model, Scoring(features=features, forward=forward))
    with torch.set_grad_enabled(grad):
        if raises:
            with pytest.raises(ZeroDivisionError):
                scorer(BATCH)
        else:
            scorer(BATCH)
        assert torch.is_grad_enabled() == grad
    assert settings(model) == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert hooks(model) == loud
    assert same([*model.state_dict().values()], [*before.state_dict().values()])
    grads = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    assert list(grads) == ["head.weight"]
    assert torch.equal(grads["head.weight"], torch.ones_like(model.head.weight))


def test_a_layer_that_draws_even_in_eval_mode_does_not_move_the_random_numbers():
    model = Net()
    forward = lambda model, batch: model(batch[0]) + torch.rand(1)  # noqa: E731
    state = torch.get_rng_state()
    Scorer(model, Scoring(forward=forward))(BATCH)
    assert torch.equal(torch.get_rng_state(), state)


def test_many_batches_are_scored_as_one():
    model, scorer = Net(), Scorer(Net())
    chunks = [(DATA.x[k : k + 5], DATA.y[k : k + 5]) for k in (0, 5, 10)]
    scores = scorer.all(chunks, 12)
    whole = Scorer(model)(BATCH)
    assert torch.allclose(scores.features, whole.features, atol=1e-6)
    assert torch.allclose(scores.probabilities, whole.probabilities, atol=1e-6)
    assert torch.equal(scores.labels, whole.labels)
    assert torch.allclose(scores.losses, whole.losses, atol=1e-6)
    assert scorer.samples == 12
    for n in (10, 13):
        with pytest.raises(ValueError, match=rf"must make one row of each sample, got 12 rows of {n} samples"):
            scorer.all(chunks, n)


def test_the_pool_knows_whether_the_head_has_a_bias():
    for bias in (True, False):
        model = Net(bias=bias)
        scorer = Scorer(model)
        assert scorer.pool(scorer(BATCH)).bias == bias
        assert Scorer(model, Scoring(features="head")).network.bias == bias
    assert Scorer(ConvHead(), Scoring(features="backbone.conv")).network.bias, "its own bias says nothing of the head"


def test_the_pool_holds_all_that_an_objective_may_need():
    scorer = Scorer(Net())
    reference = torch.rand(12, 2)
    pool = scorer.pool(scorer(BATCH), reference)
    assert pool.losses is not None
    smdl.select(pool, smdl.Objective.paper(), 3)
    smdl.select(pool, smdl.Objective.gradients(), 3)


def test_another_model_of_the_same_form_is_scored_the_same_way():
    one, other = Net(seed=1), Net(seed=2)
    scorer = Scorer(one, Scoring(features="body.0"))
    scorer(BATCH)
    assert torch.equal(scorer.of(other)(BATCH).features, DATA.x)
    found = Scorer(one)
    found(BATCH)
    assert torch.equal(found.of(other)(BATCH).features, other.eval().body(DATA.x)), "its own head, not the first one's"
