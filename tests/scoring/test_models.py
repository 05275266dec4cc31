"""Models, batches and losses of every kind: each works, or an early error says what to do."""

import copy
import warnings
from collections import Counter
from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

import smdl
from smdl.experiments.preview import sibling
from smdl.loading.strategies.loss_rank import LossRank
from smdl.loading.strategies.submodular import Submodular
from smdl.scoring.padding import same_length
from smdl.scoring.scorer import Scorer
from smdl.scoring.scoring_options import Scoring
from tests.toys import CLASSES, WIDTH, Net, Recorder, Tuples, forwarded, grouped, numbers_of, sgd

N, BATCH = 24, 4
DATA = Tuples(N)
GENERATOR = torch.Generator().manual_seed(1)
OTHER = torch.randn(N, WIDTH, generator=GENERATOR)
NUMBERS = torch.randn(N, 2, generator=GENERATOR)
SEVERAL = torch.randint(0, 2, (N, CLASSES), generator=GENERATOR)
TOKENS = torch.randint(1, 20, (N, 7), generator=GENERATOR)
IN_FEATURES = smdl.Objective.gradients(space="features")
SOURCES = {"observed": {"candidates": smdl.Observed(start=1)}, "fresh": {"candidates": smdl.RandomPool()}}
SOURCES["full"] = {"candidates": smdl.Full(2)}


class Rows(Dataset):
    """Items of any form."""

    def __init__(self, item: Callable[[int], Any]) -> None:
        self.item = item

    def __len__(self) -> int:
        return N

    def __getitem__(self, row: int) -> Any:
        return self.item(row)


class Body(nn.Module):
    """A linear head over two inputs; what it returns is up to `answer`."""

    def __init__(self, outputs: int = CLASSES, answer: Callable[[Tensor], Any] = lambda z: z) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.body = nn.Sequential(nn.Linear(WIDTH, 6), nn.ReLU())
            self.head = nn.Linear(6, outputs)
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(self.head(self.body(x)))


class Sum(Body):
    def forward(self, x: Tensor, other: Tensor) -> Any:  # type: ignore[override]
        return super().forward(x + 0.5 * other)


class Language(nn.Module):
    """Logits of the next token, (B, T, 20)."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.embed, self.mix, self.head = nn.Embedding(20, 6), nn.Linear(6, 6), nn.Linear(6, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.mix(self.embed(tokens)).relu())


def next_token(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:], reduction="none").mean(1)


def trained(loader: Any, model: nn.Module, step: Callable[[Any], Tensor], epochs: int = 2) -> list[list[int]]:
    """Train without any warning; return the samples of each batch."""
    optimizer, seen = torch.optim.SGD(model.parameters(), lr=0.05), []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(epochs):
            for batch in loader:
                optimizer.zero_grad()
                step(batch).backward()
                optimizer.step()
                seen.append(loader.selection.indices.tolist())
    return seen


def trained_by_hand(data, model, features, step, source, objective=IN_FEATURES):
    """Train like `trained`, with features that the test computes: no module is tapped, nothing is pooled."""
    by_hand = source == "observed"
    candidates = smdl.Observed(start=1, observe="manual") if by_hand else SOURCES[source]["candidates"]
    callables = {} if by_hand else {"features": lambda _, batch: features(batch)}
    loader = smdl.DataLoader(
        data, model, BATCH, objective=objective, candidates=candidates, scoring=smdl.Scoring(**callables)
    )

    def observed(batch: Any) -> Tensor:
        if by_hand:
            loader.observe(features=features(batch))
        return step(batch)

    return trained(loader, model, observed, epochs=3)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["labels", "label"])
def test_dict_batches_need_no_explanation(source, name):
    """The other columns are keyword arguments, and the output is an object with logits: as in transformers."""

    def chosen(dataset, model, step, **options):
        return trained(smdl.DataLoader(dataset, model, BATCH, **SOURCES[source], **grouped(options)), model, step)

    plain, model = Body(), Sum(answer=lambda z: SimpleNamespace(logits=z, hidden=None))
    dicts = Rows(lambda row: {"x": DATA.x[row], name: DATA.y[row], "other": torch.zeros(WIDTH)})
    wanted = chosen(DATA, plain, lambda batch: F.cross_entropy(plain(batch[0]), batch[1]))
    found = chosen(dicts, model, lambda b: F.cross_entropy(model(x=b["x"], other=b["other"]).logits, b[name]))
    assert found == wanted


@pytest.mark.parametrize("source", SOURCES)
def test_several_inputs_are_passed_in_their_order(source):
    model = Sum(answer=lambda z: (z, "hidden"))
    loader = smdl.DataLoader(TensorDataset(DATA.x, OTHER, DATA.y), model, BATCH, **SOURCES[source])
    assert trained(loader, model, lambda batch: F.cross_entropy(model(*batch[:2])[0], batch[2]))
    scores = Scorer(model)((DATA.x, OTHER, DATA.y))
    assert torch.equal(scores.features, model.body(DATA.x + 0.5 * OTHER))
    assert torch.equal(scores.labels, DATA.y)


INDEX = torch.arange(N)


@pytest.mark.parametrize(
    ("batch", "model", "message"),
    [
        ((DATA.x, INDEX, DATA.y), Body(), "columns 1, 2 hold one whole number per sample"),
        ((DATA.x, DATA.y, INDEX), Body(), r"a batch of 3 columns needs targets=, .* \(such as targets=1\)"),
        ((DATA.x, DATA.y, OTHER), Sum(), "columns 1 hold one whole number per sample"),
        ((DATA.x, OTHER, DATA.y), Body(), "needs forward=, .*: 2 columns may be inputs, and Body needs 1"),
        ({"pixels": DATA.x, "label": DATA.y}, Body(), "Body takes x, and would get pixels"),
        ({"x": DATA.x, "text": ["a"] * N, "kind": DATA.y}, Body(), "needs forward=.* Body takes x, .* get x, kind"),
        ({"x": DATA.x}, Body(), "a dict of x needs targets=: the name or the place of the column"),
        (DATA.x, Body(), "a batch that is a Tensor needs targets="),
    ],
)
def test_columns_that_may_be_mistaken_are_asked_for(batch, model, message):
    with pytest.raises(ValueError, match=message):
        Scorer(model)(batch)


def test_targets_can_be_named_by_their_place_or_their_column():
    one = {"forward": lambda model, batch: model(batch[0])}
    for batch, options in (
        ((DATA.x, DATA.y, INDEX), {"targets": 1, **one}),
        ((DATA.x, INDEX, DATA.y), {"targets": -1, **one}),
        ({"x": DATA.x, "stars": DATA.y}, {"targets": "stars"}),
        ((DATA.y, DATA.x), {"targets": 0}),
        ((DATA.x, ["a"] * N, DATA.y), {}),
    ):
        assert torch.equal(Scorer(Body(), Scoring(**options))(batch).labels, DATA.y)
    with pytest.raises(ValueError, match="unknown column in targets= 'star'; did you mean 'stars'"):
        Scorer(Body(), Scoring(targets="star"))({"x": DATA.x, "stars": DATA.y})
    with pytest.raises(ValueError, match="targets=5 is no column of a batch that is a tuple of 2"):
        Scorer(Body(), Scoring(targets=5))((DATA.x, DATA.y))


#: outputs, targets, loss= of the loader, loss of the training loop, what the model returns
LOSSES = {
    "regression": (2, NUMBERS, "mean_squared_error", F.mse_loss, lambda z: z),
    "one number": (1, NUMBERS[:, 0], "mean_squared_error", F.mse_loss, lambda z: z[:, 0]),
    "binary": (1, DATA.y.clamp(max=1), "binary_cross_entropy", None, lambda z: z[:, 0]),
    "several labels": (CLASSES, SEVERAL, "binary_cross_entropy", None, lambda z: z),
    "soft labels": (CLASSES, SEVERAL.float().softmax(1), "cross_entropy", F.cross_entropy, lambda z: z),
    "callable": (1, NUMBERS[:, 0], lambda z, y: (z - y).abs().sqrt(), F.l1_loss, lambda z: z[:, 0]),
}


@pytest.mark.parametrize("source", [*SOURCES, "loss"])
@pytest.mark.parametrize("case", LOSSES)
def test_every_loss_works_with_every_source(case, source):
    outputs, targets, loss, train_loss, answer = LOSSES[case]
    train_loss = train_loss or (lambda z, y: F.binary_cross_entropy_with_logits(z, y.float()))
    data, model = TensorDataset(DATA.x, targets), Body(outputs, answer)
    options = {"method": "loss", "epochs": 3} if source == "loss" else SOURCES[source]
    loader = smdl.DataLoader(data, model, BATCH, scoring=smdl.Scoring(loss=loss), **options)
    trained(loader, model, lambda batch: train_loss(model(batch[0]), batch[1]), epochs=3)
    assert loader.forwards == {"observed": 0, "loss": 0}.get(source, loader.forwards)


@pytest.mark.parametrize("case", LOSSES)
def test_errors_from_kept_features_are_those_of_the_head_now(case):
    outputs, targets, loss, _, answer = LOSSES[case]
    model, strategy = Body(outputs, answer), Recorder(smdl.Objective.gradients())
    data, source = TensorDataset(DATA.x, targets), smdl.Observed(dtype="float32")
    loader = smdl.DataLoader(data, model, BATCH, method=strategy, candidates=source, scoring=smdl.Scoring(loss=loss))
    for _ in range(2):
        for batch in loader:
            forwarded(loader, batch)
            with torch.no_grad():
                model.head.weight.mul_(0.9)  # the features stay the same
    known = [int((model.body(DATA.x) - row).abs().sum(1).argmin()) for row in strategy.pool.features]
    with torch.no_grad():
        model.head.weight.div_(0.9)  # as it was when the last batch was chosen
    scorer = Scorer(model, Scoring(loss=loss))
    rows = np.array(known)
    fresh = scorer.pool(scorer((DATA.x[rows], targets[rows])))
    assert torch.allclose(strategy.pool.errors, fresh.errors, atol=1e-5)
    assert torch.allclose(strategy.pool.losses, fresh.losses, atol=1e-5)


@pytest.mark.parametrize("case", LOSSES)
def test_a_state_with_targets_of_any_kind_resumes(case):
    outputs, targets, loss, train_loss, answer = LOSSES[case]
    train_loss = train_loss or (lambda z, y: F.binary_cross_entropy_with_logits(z, y.float()))
    data = TensorDataset(DATA.x, targets)

    def parts():
        model = Body(outputs, answer)
        return smdl.DataLoader(data, model, BATCH, scoring=smdl.Scoring(loss=loss)), model

    loader, model = parts()
    trained(loader, model, lambda batch: train_loss(model(batch[0]), batch[1]), epochs=2)
    resumed, twin = parts()
    twin.load_state_dict(model.state_dict())
    resumed.load_state_dict(copy.deepcopy(loader.state_dict()))
    tails = [
        trained(one, net, lambda batch, net=net: train_loss(net(batch[0]), batch[1]), epochs=1)
        for one, net in ((loader, model), (resumed, twin))
    ]
    assert tails[0] == tails[1]


def test_a_loader_for_another_method_keeps_the_loss_and_the_pooling():
    method = smdl.Method("mine", Submodular, smdl.RandomPool(), {"objective": IN_FEATURES})
    loader = smdl.DataLoader(
        TensorDataset(TOKENS, TOKENS), Language(), BATCH, scoring=smdl.Scoring(loss=next_token, pooling="mean")
    )
    other = sibling(loader, method, Language())
    assert len(next(iter(other))[0]) == BATCH


def test_the_state_of_another_loss_is_refused():
    one, other = (
        smdl.DataLoader(DATA, Body(), BATCH, scoring=smdl.Scoring(loss=loss))
        for loss in ("cross_entropy", "mean_squared_error")
    )
    with pytest.raises(ValueError, match="a loader with loss cross_entropy, this one has mean_squared_error"):
        other.load_state_dict(one.state_dict())


@pytest.mark.parametrize("source", SOURCES)
def test_language_models_are_chosen_for_by_their_pooled_features(source):
    data, model, twin = TensorDataset(TOKENS, TOKENS), Language(), Language()
    loader = smdl.DataLoader(
        data,
        model,
        BATCH,
        scoring=smdl.Scoring(loss=next_token, pooling="mean"),
        objective=IN_FEATURES,
        **SOURCES[source],
    )
    found = trained(loader, model, lambda batch: next_token(model(batch[0]), batch[1]).mean(), epochs=3)
    assert found == trained_by_hand(
        data,
        twin,
        lambda batch: twin.mix(twin.embed(batch[0])).relu().mean(1),
        lambda batch: next_token(twin(batch[0]), batch[1]).mean(),
        source,
    )


def most_drawn_by_loss(data, model, loss) -> int:
    """Return the sample that the method `loss` draws most often, after a first epoch over all samples."""
    method = LossRank(1e30, 1e30, sort_every=1)
    loader = smdl.DataLoader(data, model, BATCH, method=method, scoring=smdl.Scoring(loss=loss))
    drawn = Counter()
    for _ in range(2):
        drawn.clear()
        for batch in loader:
            model(batch[0])
            drawn.update(numbers_of(loader).tolist())
    return drawn.most_common(1)[0][0]


def test_language_models_are_chosen_for_by_their_losses():
    model = Language()
    worst = int(next_token(model(TOKENS), TOKENS).argmax())
    assert most_drawn_by_loss(TensorDataset(TOKENS, TOKENS), model, next_token) == worst


def test_losses_of_tokens_are_kept_with_the_features():
    data, model, strategy = TensorDataset(TOKENS, TOKENS), Language(), Recorder(IN_FEATURES)
    source = smdl.Observed(dtype="float32")
    loader = smdl.DataLoader(
        data,
        model,
        BATCH,
        method=strategy,
        candidates=source,
        scoring=smdl.Scoring(loss=next_token, pooling="mean", features="head"),
    )
    for _ in range(2):
        for batch in loader:
            forwarded(loader, batch)
    with torch.no_grad():
        features = model.mix(model.embed(TOKENS)).relu().mean(1)
        losses = next_token(model(TOKENS), TOKENS)
    rows = [int((features - row).abs().sum(1).argmin()) for row in strategy.pool.features]
    assert torch.allclose(strategy.pool.features, features[rows], atol=1e-6)
    assert torch.allclose(strategy.pool.losses, losses[rows], atol=1e-5)


def test_the_head_of_tokens_is_not_applied_to_pooled_features():
    class Numbers(Language):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(6, 1)

        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens)[..., 0]  # one number per token

    data, model = TensorDataset(TOKENS, TOKENS / 20), Numbers()
    options = {"loss": "mean_squared_error", "pooling": "mean", "objective": IN_FEATURES}
    loader = smdl.DataLoader(data, model, BATCH, **grouped(options))
    trained(loader, model, lambda batch: F.mse_loss(model(batch[0]), batch[1]), epochs=3)
    assert loader.state_dict()["candidates"]["cache"]["outputs"].shape == (N, 7)


def test_gradients_of_tokens_are_refused_by_name():
    loader = smdl.DataLoader(
        TensorDataset(TOKENS, TOKENS),
        Language(),
        BATCH,
        method="observed",
        scoring=smdl.Scoring(loss=next_token, pooling="mean"),
    )
    with pytest.raises(ValueError, match=r'Such a model needs objective=.*gradients\(space="features"\)'):
        next(iter(loader))


class Pixels(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode, self.classify = nn.Conv2d(1, 5, 3, padding=1), nn.Conv2d(5, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.encode(x).relu())


IMAGES = TensorDataset(
    torch.randn(N, 1, 4, 4, generator=GENERATOR), torch.randint(0, CLASSES, (N, 4, 4), generator=GENERATOR)
)


def loss_of_masks(outputs: Tensor, masks: Tensor) -> Tensor:
    return F.cross_entropy(outputs, masks, reduction="none").mean((1, 2))


@pytest.mark.parametrize("source", SOURCES)
def test_segmentation_chooses_by_the_mean_of_named_features(source):
    model = Pixels()
    twin = copy.deepcopy(model)
    loader = smdl.DataLoader(
        IMAGES,
        model,
        BATCH,
        scoring=smdl.Scoring(loss=loss_of_masks, features="encode", pooling="mean"),
        objective=IN_FEATURES,
        **SOURCES[source],
    )
    found = trained(loader, model, lambda batch: loss_of_masks(model(batch[0]), batch[1]).mean(), epochs=3)
    assert found == trained_by_hand(
        IMAGES,
        twin,
        lambda batch: twin.encode(batch[0]).mean((2, 3)),
        lambda batch: loss_of_masks(twin(batch[0]), batch[1]).mean(),
        source,
    )


def test_segmentation_chooses_by_its_losses():
    model = Pixels()
    worst = int(loss_of_masks(model(IMAGES.tensors[0]), IMAGES.tensors[1]).argmax())
    assert most_drawn_by_loss(IMAGES, model, loss_of_masks) == worst


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("objective", [smdl.Objective(redundancy=1.0), IN_FEATURES], ids=["redundancy", "coverage"])
@pytest.mark.parametrize(
    "columns",
    [(DATA.x, NUMBERS), (DATA.x,), (DATA.x, SEVERAL), (DATA.x, DATA.y)],
    ids=["numbers", "none", "several", "y"],
)
def test_objectives_over_features_need_neither_targets_nor_a_loss(columns, objective, source):
    model, twin = (Body(2 if columns[-1] is NUMBERS else CLASSES) for _ in range(2))
    data = TensorDataset(*columns)
    loader = smdl.DataLoader(data, model, BATCH, objective=objective, **SOURCES[source])
    found = trained(loader, model, lambda batch: model(batch[0]).square().mean(), epochs=3)
    assert found == trained_by_hand(
        data,
        twin,
        lambda batch: twin.body(batch[0]),
        lambda batch: twin(batch[0]).square().mean(),
        source,
        objective,
    )


@pytest.mark.parametrize("logits", [True, False])
def test_features_by_hand_are_enough_for_an_objective_over_features(logits):
    model, twin = Body(2), Body(2)
    loader, hooked = (
        smdl.DataLoader(TensorDataset(DATA.x, NUMBERS), one, BATCH, objective=IN_FEATURES, candidates=candidates)
        for one, candidates in ((model, smdl.Observed(start=1, observe="manual")), (twin, smdl.Observed(start=1)))
    )

    def step(batch: Any) -> Tensor:
        outputs = model.head(features := model.body(batch[0]))
        loader.observe(features=features, logits=outputs if logits else None)
        return F.mse_loss(outputs, batch[1])

    found = trained(loader, model, step, epochs=3)
    assert found == trained(hooked, twin, lambda batch: F.mse_loss(twin(batch[0]), batch[1]), epochs=3)


def test_rows_that_are_too_few_are_noticed_without_a_loss():
    options = {"objective": IN_FEATURES, "candidates": smdl.RandomPool(), "features": lambda *_: torch.zeros(2, 5)}
    with pytest.raises(ValueError, match="features must have one row per sample, 12, got 2"):
        next(iter(smdl.DataLoader(TensorDataset(DATA.x), Body(), BATCH, **grouped(options))))


def test_what_needs_classes_says_so_where_there_are_none():
    loader = smdl.DataLoader(TensorDataset(DATA.x, NUMBERS), model := Body(2), BATCH)
    trained(loader, model, lambda batch: model(batch[0]).square().mean(), epochs=2)
    with pytest.raises(ValueError, match="with class numbers of at least 4 classes as targets, and there are none"):
        loader.suspects()
    uncertain = {"method": "fresh", "objective": smdl.Objective(uncertainty=1.0)}
    with pytest.raises(ValueError, match=r"needs probabilities, which the loss \(mean_squared_error\) does not"):
        smdl.DataLoader(
            TensorDataset(DATA.x, NUMBERS), Body(2), BATCH, scoring=smdl.Scoring(loss="mean_squared_error"), **uncertain
        )
    several = smdl.DataLoader(
        TensorDataset(DATA.x, SEVERAL), Body(), BATCH, scoring=smdl.Scoring(loss="binary_cross_entropy"), **uncertain
    )
    with pytest.raises(ValueError, match=r"needs probabilities, .* for outputs of shape \(12, 3\) and targets of"):
        next(iter(several))
    with pytest.raises(ValueError, match="targets must be one class number per sample"):
        smdl.DataLoader(
            TensorDataset(DATA.x, NUMBERS),
            Body(2),
            BATCH,
            method="balanced",
            scoring=smdl.Scoring(loss="mean_squared_error"),
        )


class Auxiliary(Body):
    """A head of the logits' shape runs after the one that makes them."""

    def __init__(self) -> None:
        super().__init__()
        self.auxiliary = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits = super().forward(x)
        self.auxiliary(x)
        return logits


def test_an_auxiliary_head_that_runs_last_is_not_tapped():
    model = Auxiliary()
    assert torch.equal(Scorer(model)((DATA.x, DATA.y)).features, model.body(DATA.x))


@pytest.mark.parametrize("method", ["observed", "fresh", "loss"])
def test_a_model_that_returns_probabilities_is_refused(method):
    model = Body(answer=lambda z: z.softmax(1))
    loader = smdl.DataLoader(DATA, model, BATCH, method=method, epochs=3, scoring=smdl.Scoring(features="head"))
    with pytest.raises(ValueError, match="these are probabilities, and cross-entropy takes logits"):
        trained(loader, model, lambda batch: F.nll_loss(model(batch[0]).log(), batch[1]))


def test_log_probabilities_are_logits():
    model = Body(answer=lambda z: z.log_softmax(1))
    scores, plain = Scorer(model)((DATA.x, DATA.y)), Scorer(Body())((DATA.x, DATA.y))
    assert torch.allclose(scores.probabilities, plain.probabilities, atol=1e-6)
    loader = smdl.DataLoader(DATA, model, BATCH)
    trained(loader, model, lambda batch: F.nll_loss(model(batch[0]), batch[1]))


@pytest.mark.parametrize("source", SOURCES)
def test_features_of_tokens_are_refused_unless_they_are_pooled(source):
    tokens = Rows(lambda row: (TOKENS[row], DATA.y[row]))

    class Classifier(Language):
        def forward(self, tokens: Tensor) -> Tensor:
            return super().forward(tokens).mean(1)[:, :CLASSES]

    model = Classifier()
    loader = smdl.DataLoader(tokens, model, BATCH, scoring=smdl.Scoring(features="mix"), **SOURCES[source])
    with pytest.raises(ValueError, match=r'got shape \(\d+, 7, 6\); pass pooling="mean", "first", "last", "flatten"'):
        next(iter(loader))
    scores = Scorer(model, Scoring(features="embed", pooling="first"))((TOKENS, DATA.y))
    assert torch.equal(scores.features, model.embed(TOKENS)[:, 0])
    loader = smdl.DataLoader(
        tokens, model, BATCH, scoring=smdl.Scoring(features="embed", pooling="mean"), **SOURCES[source]
    )
    trained(loader, model, lambda batch: F.cross_entropy(model(batch[0]), batch[1]))


@pytest.mark.parametrize(
    ("pooling", "wanted"),
    [
        ("mean", lambda f: f.mean(1)),
        ("first", lambda f: f[:, 0]),
        ("last", lambda f: f[:, -1]),
        ("flatten", lambda f: f.flatten(1)),
        (lambda f: f.amax(1), lambda f: f.amax(1)),
    ],
)
def test_pooling_makes_one_row_per_sample(pooling, wanted):
    model = Language()
    scores = Scorer(model, Scoring(features="embed", pooling=pooling, loss=next_token))((TOKENS, TOKENS))
    assert torch.equal(scores.features, wanted(model.embed(TOKENS)))


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_inputs_of_another_type_than_the_model(dtype, source):
    """The loop casts the inputs itself, as it must; scoring does so too."""
    model = Body().to(dtype)
    loader = smdl.DataLoader(DATA, model, BATCH, **SOURCES[source])
    trained(loader, model, lambda batch: F.cross_entropy(model(batch[0].to(dtype)).float(), batch[1]))
    wide = Scorer(Body())((DATA.x.double(), DATA.y))
    assert torch.allclose(wide.features, Scorer(Body())((DATA.x, DATA.y)).features)


@pytest.mark.parametrize("method", ["observed", "fresh", "loss"])
def test_a_copy_that_is_not_trained_is_noticed_once(method):
    model = Net()
    loader = smdl.DataLoader(DATA, copy.deepcopy(model), BATCH, method=method, epochs=5)
    optimizer = sgd(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            for x, y in loader:
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
    told = [str(one.message) for one in caught if "is this the model in training?" in str(one.message)]
    assert len(told) == 1
    assert "the parameters of the Net that smdl scores have not changed" in told[0]


@pytest.mark.parametrize("case", ["the model", "a part of it", "left half-way", "uniform", "nothing to train"])
def test_a_model_in_training_is_not_warned_about(case):
    model = Net()
    loader = smdl.DataLoader(DATA, model, BATCH, method="uniform" if case == "uniform" else "fresh")
    if case == "a part of it":
        model.body.requires_grad_(False)
    if case == "nothing to train":
        model.requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            for x, y in loader:
                if case == "left half-way":
                    break
                if case in ("the model", "a part of it"):
                    model.zero_grad()
                    F.cross_entropy(model(x), y).backward()
                    with torch.no_grad():
                        for weight in model.parameters():
                            if weight.grad is not None:
                                weight -= 0.1 * weight.grad


def test_a_copy_is_noticed_in_a_loop_that_stops_at_the_last_batch():
    """As that of Lightning: it knows the length and does not ask for one batch more."""
    loader = smdl.DataLoader(DATA, Net(), BATCH, method="fresh")
    list(islice(loader, len(loader)))
    with pytest.warns(UserWarning, match="is this the model in training"):
        next(iter(loader))


def test_a_model_that_is_trained_after_its_last_batch_is_fetched_is_not_warned_about():
    model = Net()
    loader = smdl.DataLoader(DATA, model, BATCH, method="fresh")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            list(islice(loader, len(loader)))
            with torch.no_grad():
                model.head.weight += 1


def test_a_stream_notices_a_copy_too():
    batches = [(DATA.x[k : k + 6], DATA.y[k : k + 6]) for k in range(0, N, 6)]
    with pytest.warns(UserWarning, match="is this the model in training"):
        list(smdl.SelectiveLoader(batches, Net(), keep=0.5))


def test_an_average_of_the_model_may_choose():
    """An EMA copy is passed to the loader on purpose; it changes as it is updated, so there is no warning."""
    model, strategy = Net(), Recorder(smdl.Objective.gradients())
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
    loader = smdl.DataLoader(DATA, average, BATCH, method=strategy, candidates=smdl.RandomPool(3))
    optimizer = sgd(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            for x, y in loader:
                inner: Net = average.module  # type: ignore[assignment]
                training = inner.training
                inner.eval()
                features = [int((inner.body(DATA.x) - row).abs().sum(1).argmin()) for row in strategy.pool.features]
                assert torch.allclose(inner.body(DATA.x)[features], strategy.pool.features, atol=1e-6)
                inner.train(training)
                optimizer.zero_grad()
                F.cross_entropy(model(x), y).backward()
                optimizer.step()
                average.update_parameters(model)


def test_a_copy_for_scoring_sees_what_is_copied_to_it():
    """Such as a copy on another device: the user copies the weights when they should count."""
    model, strategy = Net(), Recorder(smdl.Objective.gradients())
    scored = copy.deepcopy(model)
    loader = smdl.DataLoader(DATA, scored, BATCH, method=strategy, candidates=smdl.RandomPool(3))
    step = lambda batch: F.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
    optimizer, iterator = sgd(model), iter(loader)
    for _ in range(3):
        batch = next(iterator)
        step(batch).backward()
        optimizer.step()
        scored.load_state_dict(model.state_dict())
    next(iterator)
    model.eval()
    with torch.no_grad():
        gaps = torch.cdist(strategy.pool.features, model.body(DATA.x)).amin(1)
    assert float(gaps.max()) < 1e-5


def tokenized(lengths: tuple[int, ...], left: bool = False) -> list[dict[str, Tensor]]:
    """Batches of four rows each, padded to their own length. Rows are numbered by their first token."""
    batches = []
    for k, length in enumerate(lengths):
        ids = torch.arange(4)[:, None] + 4 * k + torch.ones(4, length, dtype=torch.int64)
        mask = torch.ones_like(ids)
        mask[0, 0 if left else -1] = 0
        batches.append({"input_ids": ids * mask, "attention_mask": mask, "labels": torch.arange(4) % CLASSES})
    return batches


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(30, 6), nn.Linear(6, CLASSES)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> dict[str, Tensor]:
        mask = attention_mask[..., None]
        return {"logits": self.head((self.embed(input_ids) * mask).sum(1) / mask.sum(1))}


@pytest.mark.parametrize("left", [False, True])
def test_rows_are_padded_where_the_mask_shows_padding(left):
    short, long = same_length(tokenized((3, 5), left), None)
    padded = short["attention_mask"][:, :2] if left else short["attention_mask"][:, 3:]
    assert short["input_ids"].shape == long["input_ids"].shape == (4, 5)
    assert not bool(padded.any())
    assert int(short["attention_mask"].sum()) == 11


@pytest.mark.parametrize("left", [False, True])
def test_a_stream_joins_batches_of_different_lengths(left):
    batches, model = tokenized((3, 5, 4, 4), left), Masked()
    lengths = []
    for batch in smdl.SelectiveLoader(batches, model, keep=0.5):
        lengths.append(batch["input_ids"].shape[1])
        assert torch.equal(batch["input_ids"] == 0, batch["attention_mask"] == 0)
        mask = batch["attention_mask"]
        assert torch.equal(mask, mask.sort(dim=1, descending=not left).values)
        whole = Scorer(model)(batch).losses
        for row, loss in zip(batch["input_ids"], whole, strict=True):
            kept = row[row > 0]
            alone = {"input_ids": kept[None], "attention_mask": torch.ones(1, len(kept)).long()}
            first = int(kept[0]) - 1
            wanted = F.cross_entropy(model(**alone)["logits"], torch.tensor([first % 4 % CLASSES]))
            assert torch.allclose(loss, wanted, atol=1e-5)
    assert lengths == [5, 4]


def test_padding_without_a_mask_is_asked_for():
    pairs = [(torch.ones(4, length), torch.arange(4) % CLASSES) for length in (3, 5)]
    model = nn.Sequential(nn.AdaptiveAvgPool1d(WIDTH), Body())
    options = {"keep": 0.5, "forward": lambda model, batch: model(batch[0])}
    with pytest.raises(ValueError, match=r"rows of column 0 have different lengths .*: pass padding=, the value"):
        list(smdl.SelectiveLoader(pairs, model, **grouped(options)))
    for padding in (0.5, {0: 0.5}):
        (batch,) = list(smdl.SelectiveLoader(pairs, model, padding=padding, **grouped(options)))
        assert batch[0].shape == (4, 5)
        assert set(batch[0].flatten().tolist()) <= {0.5, 1.0}
    nested = [({"x": x}, y) for x, y in pairs]
    options["forward"] = lambda model, batch: model(batch[0]["x"])
    (batch,) = list(smdl.SelectiveLoader(nested, model, padding={"x": 0.5}, **grouped(options)))
    assert batch[0]["x"].shape == (4, 5)
    with pytest.raises(ValueError, match=r"rows of column 'x' have different lengths"):
        list(smdl.SelectiveLoader(nested, model, **grouped(options)))
    with pytest.raises(TypeError, match="padding must be a number, or a dict"):
        smdl.SelectiveLoader(pairs, model, padding="zeros")


def test_labels_of_tokens_are_padded_with_the_number_that_losses_ignore():
    batches = [{**batch, "labels": batch["input_ids"]} for batch in tokenized((3, 5))]
    source = smdl.SelectiveLoader(batches, Masked(), keep=1, method="uniform")
    assert [batch["labels"].shape[1] for batch in source] == [3, 5]
    source = smdl.SelectiveLoader(batches, Masked(), keep=0.5, method="uniform", seed=1)
    (batch,) = list(source)
    short = batch["labels"][batch["labels"][:, -1] == -100]
    assert 0 < len(short) < 4
    assert bool((short[:, 3:] == -100).all())
