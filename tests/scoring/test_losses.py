"""Losses: scores of other losses than classification; their errors are the gradients that autograd computes."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import smdl
from smdl.engine.gradients import GradientSpace
from smdl.scoring.losses import BinaryCrossEntropy, CrossEntropy, MeanSquaredError, OwnLoss, as_loss

N, WIDTH, OUTPUTS = 12, 6, 4
GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.rand(N, WIDTH, generator=GENERATOR)
CLASSES = torch.randint(0, OUTPUTS, (N,), generator=GENERATOR)
SOFT = torch.rand(N, OUTPUTS, generator=GENERATOR).softmax(1)
LABELS = torch.randint(0, 2, (N, OUTPUTS), generator=GENERATOR)
BINARY = LABELS[:, 0]
NUMBERS = torch.randn(N, OUTPUTS, generator=GENERATOR)


def huber(outputs, targets):
    return F.huber_loss(outputs, targets, reduction="none").mean(1)


#: loss=, number of outputs, targets, and the same loss of one sample in torch's words
CASES = {
    "cross_entropy": ("cross_entropy", OUTPUTS, CLASSES, F.cross_entropy),
    "soft": ("cross_entropy", OUTPUTS, SOFT, F.cross_entropy),
    "binary": ("binary_cross_entropy", 1, BINARY, lambda z, y: F.binary_cross_entropy_with_logits(z[:, 0], y.float())),
    "multi_label": (
        "binary_cross_entropy",
        OUTPUTS,
        LABELS,
        lambda z, y: F.binary_cross_entropy_with_logits(z, y.float()),
    ),
    "regression": ("mean_squared_error", OUTPUTS, NUMBERS, F.mse_loss),
    "one_number": ("mean_squared_error", 1, NUMBERS[:, 0], lambda z, y: F.mse_loss(z[:, 0], y)),
    "callable": (huber, OUTPUTS, NUMBERS, F.huber_loss),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_factored_gradients_are_those_of_autograd(case, bias):
    name, outputs, targets, same_loss = CASES[case]
    head, loss, rows, losses = nn.Linear(WIDTH, outputs, bias=bias), as_loss(name), [], []
    for x, y in zip(FEATURES, targets, strict=True):
        head.zero_grad()
        value = same_loss(head(x[None]), y[None])
        value.backward()
        rows.append(torch.cat([p.grad.flatten() for p in head.parameters() if p.grad is not None]))
        losses.append(value.detach())
    gradients = torch.stack(rows).double()
    with torch.no_grad():
        scores = loss.scores(FEATURES, head(FEATURES), loss.targets(targets))
        assert torch.allclose(loss(head(FEATURES), loss.targets(targets)), torch.stack(losses), atol=1e-6)
    assert torch.allclose(scores.losses, torch.stack(losses), atol=1e-6)
    pool = smdl.Pool(scores.features, scores.probabilities, scores.labels, errors=scores.errors, bias=bias)
    space, i = GradientSpace(pool), torch.arange(N)
    torch.testing.assert_close(space.inner(i[:, None], i[None, :]), gradients @ gradients.T, atol=1e-6, rtol=1e-4)
    torch.testing.assert_close(torch.from_numpy(space.lengths()), gradients.norm(dim=1), atol=1e-6, rtol=1e-4)


def test_a_callable_gives_the_errors_of_the_named_loss():
    outputs = torch.randn(N, OUTPUTS, generator=GENERATOR)
    named, own = as_loss("mean_squared_error"), as_loss(lambda z, y: (z - y).square().mean(1))
    for one, other in zip(
        named.scores(FEATURES, outputs, NUMBERS), own.scores(FEATURES, outputs, NUMBERS), strict=True
    ):
        assert (one is None and other is None) or torch.allclose(one, other, atol=1e-6)


def test_a_callable_without_gradient_gives_losses_only():
    wrong = as_loss(lambda z, y: (z.argmax(1) != y).float())
    scores = wrong.scores(FEATURES, torch.randn(N, OUTPUTS), CLASSES)
    assert scores.losses is not None
    assert scores.errors is None


def test_two_classes_with_one_output_are_classes():
    loss = as_loss("binary_cross_entropy")
    scores = loss.scores(FEATURES, torch.zeros(N, 1), loss.targets(BINARY))
    assert torch.equal(scores.probabilities, torch.full((N, 2), 0.5))
    assert torch.equal(scores.labels, BINARY)
    soft = loss.scores(FEATURES, torch.zeros(N), loss.targets(torch.full((N,), 0.3)))
    assert soft.labels is not None
    assert soft.labels.tolist() == [0] * N, "the likelier class"
    assert loss.labels(torch.full((N,), 0.3)) is None, "no class number that could be judged"


def test_some_soft_targets_of_binary_cross_entropy_among_hard_ones():
    x, y = torch.randn(40, WIDTH), torch.cat([torch.ones(20), torch.full((20,), 0.9)])
    data = torch.utils.data.TensorDataset(x, y)
    loader = smdl.DataLoader(
        data, nn.Linear(WIDTH, 1), 8, method="fresh", candidates=smdl.Full(3),
        scoring=smdl.Scoring(loss="binary_cross_entropy", targets=1),
        scoring_batch_size=20,
    )  # fmt: skip
    pool = loader.new_epoch().score_all()
    assert pool is not None
    assert pool.labels is not None
    assert pool.labels.tolist() == [1] * 40


@pytest.mark.parametrize(
    ("loss", "outputs", "targets", "message"),
    [
        ("cross_entropy", (N, 4), LABELS.float(), "must be ≥ 0 and sum to 1.*binary_cross_entropy"),
        ("cross_entropy", (N, 3), SOFT, r"soft targets must have the shape of the logits, \(12, 3\)"),
        ("cross_entropy", (N, 3), torch.full((N,), 3), r"targets must be in 0\.\.2"),
        (None, (N, 4), SOFT, "one class number per sample, got torch.float32.* or loss= if this is no classification"),
        ("binary_cross_entropy", (N, 4), 2 * LABELS, r"targets of binary_cross_entropy must be in \[0, 1\], got 2"),
        ("binary_cross_entropy", (N, 3), LABELS, r"the shape of the model's output, \(12, 3\), got shape \(12, 4\)"),
        ("binary_cross_entropy", (N, 5, 3), LABELS, r"outputs of binary_cross_entropy must be floats of shape"),
        ("mean_squared_error", (N, 4), NUMBERS[:, 0], r"the shape of the model's output, \(12, 4\), got shape \(12,\)"),
        ("mean_squared_error", (N, 4), NUMBERS[:, None], r"must have the shape \(batch,\) or \(batch, outputs\)"),
        (lambda z, y: F.mse_loss(z, y), (N, 4), NUMBERS, r"one loss per sample, \(12,\), got shape \(\)"),
        (lambda z, y: (z - y).square(), (N, 4), NUMBERS, r"one loss per sample, \(12,\), got shape \(12, 4\)"),
        (lambda *_: 1.0, (N, 4), NUMBERS, "one loss per sample.*got float"),
    ],
)
def test_what_does_not_fit_a_loss_is_refused_by_name(loss, outputs, targets, message):
    with pytest.raises(ValueError, match=message):
        scored(loss, torch.zeros(outputs), targets)


def scored(name, outputs, targets):
    loss = as_loss(name)
    outputs, targets = loss.outputs(outputs), loss.targets(targets)
    loss.check(outputs, targets)
    return loss.scores(FEATURES, outputs, targets)


def test_an_unknown_loss_lists_the_choices():
    with pytest.raises(ValueError, match=r"unknown loss 'msse'.* Choose one of .*mean_squared_error, or"):
        as_loss("msse")


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ("mse", MeanSquaredError),
        (nn.MSELoss(), MeanSquaredError),
        (nn.BCEWithLogitsLoss(), BinaryCrossEntropy),
        (nn.CrossEntropyLoss(), CrossEntropy),
        (nn.CrossEntropyLoss(label_smoothing=0.1), OwnLoss),
        (nn.BCEWithLogitsLoss(pos_weight=torch.ones(1)), OwnLoss),
        (nn.L1Loss(), OwnLoss),
    ],
)
def test_losses_of_torch_give_one_loss_per_sample(given, kind):
    loss, outputs = as_loss(given), torch.randn(5, 2)
    assert type(loss) is kind
    targets = torch.arange(5) % 2 if isinstance(given, nn.CrossEntropyLoss) else torch.rand(5, 2)
    expected = given(outputs, targets) if isinstance(given, nn.Module) else F.mse_loss(outputs, targets)
    found = loss(outputs, targets)
    assert found.shape == (5,)
    assert float(found.mean()) == pytest.approx(float(expected), rel=1e-5)


def test_correlation_needs_errors_that_sum_to_zero():
    pool = smdl.Pool(FEATURES, errors=NUMBERS)
    with pytest.raises(ValueError, match=r'distance="correlation" in space="gradients".*use distance="cosine"'):
        smdl.select(pool, smdl.Objective(redundancy=1.0, space="gradients", distance="correlation"), 3)
    assert len(smdl.select(pool, smdl.Objective.gradients(), 3).indices) == 3
