"""Which forwards are taken for those of the batch, and what is taken from them."""

import copy
import gc
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from smdl.scoring import row_matching
from smdl.scoring.observation import Observer
from smdl.scoring.scorer import Scorer
from smdl.scoring.scoring_options import Scoring
from tests.toys import CLASSES, WIDTH, Net, Tuples

ROWS = 8


def batch_of(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    data = Tuples(rows)
    return data.x, data.y


def watched(model: nn.Module, batch: tuple[Tensor, Tensor] | None = None, **options) -> Observer:
    observer = Observer(Scorer(model, Scoring(**options)), features=True)
    batch = batch or batch_of()
    observer.start(batch, batch[1])
    return observer


def expected(model: Net, x: Tensor) -> tuple[Tensor, Tensor]:
    """Features and logits by an independent forward."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        features = model.body(x)
        return features, model.head(features)


def assert_observed(observer: Observer, features: Tensor, logits: Tensor, rows: slice = slice(None), **close) -> None:
    seen = observer.finish()
    assert seen is not None
    wanted = torch.zeros(ROWS, dtype=torch.bool)
    wanted[rows] = True
    assert torch.equal(wanted if seen.found is None else seen.found, wanted)
    assert seen.found is not None or bool(wanted.all())
    assert seen.features is not None
    assert seen.logits is not None
    assert torch.allclose(seen.features[rows], features[rows], **close)
    assert torch.allclose(seen.logits[rows], logits[rows], **close)


def test_features_and_logits_are_those_of_the_training_forward():
    (x, y), model = batch_of(), Net()
    observer, wanted = watched(model), expected(model, x)
    F.cross_entropy(model(x), y).backward()
    assert_observed(observer, *wanted)
    assert observer.finish() is None, "taken once"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_inputs_of_another_float_type_are_recognised(dtype):
    (x, _), model = batch_of(), Net().to(dtype)
    observer = Observer(Scorer(model, Scoring(forward=lambda model, batch: model(batch[0].to(dtype)))), features=True)
    observer.start((x, _), _)
    wanted = expected(model, x.to(dtype))
    model(x.to(dtype))
    assert_observed(observer, *(part.float() for part in wanted), rtol=1e-2, atol=1e-2)


def test_autocast_changes_nothing():
    (x, _), model = batch_of(), Net()
    observer, wanted = watched(model), expected(model, x)
    with torch.autocast("cpu", torch.bfloat16):
        model(x)
    assert_observed(observer, *wanted, rtol=2e-2, atol=2e-2)


def test_parts_of_the_batch_in_any_order_are_put_together():
    (x, _), model = batch_of(), Net().eval()
    observer, wanted = watched(model), expected(model, x)
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(1))
    for part in order.split(3):
        model(x[part])
    assert_observed(observer, *wanted, atol=1e-6)


def test_rows_that_were_not_forwarded_are_not_found():
    (x, _), model = batch_of(), Net().eval()
    observer, wanted = watched(model), expected(model, x)
    model(x[:5])
    assert_observed(observer, *wanted, rows=slice(0, 5), atol=1e-6)


def test_the_latest_forward_of_a_sample_counts():
    (x, _), model = batch_of(), Net().eval()
    observer = watched(model)
    model(x)
    with torch.no_grad():
        model.head.weight.mul_(3.0)
        next(model.body.parameters()).mul_(2.0)
    wanted = expected(model, x)
    model(x)
    assert_observed(observer, *wanted, atol=1e-6)


def mixed_up(x: Tensor) -> Tensor:
    return 0.7 * x + 0.3 * x.flip(0)


@pytest.mark.parametrize(
    "forward",
    [
        lambda model, _: model(Tuples(ROWS, seed=9).x),
        lambda model, x: model(mixed_up(x)),
        lambda model, x: model(x + 0.01),
        lambda model, x: torch.no_grad()(model)(x),
        lambda model, x: copy.deepcopy(model)(x),
        lambda model, x: model.head(model.body(x)),
    ],
    ids=["other samples", "mixup", "shifted", "without gradients", "a copy", "around the model"],
)
def test_no_other_forward_is_taken_for_one_of_the_batch(forward):
    (x, _), model = batch_of(), Net()
    observer = watched(model)
    forward(model, x)
    seen = observer.finish()
    assert seen is None or (seen.found is not None and not bool(seen.found.any()))


@pytest.mark.parametrize("part", [slice(None), slice(0, 5)])
def test_a_batch_that_was_changed_in_place_is_not_recognised(part):
    (x, y), model = batch_of(), Net()
    observer = watched(model, (x, y))
    x.copy_(x.flip(0))
    model(x if part == slice(None) else x[part])
    assert observer.finish() is None


def test_the_batch_itself_is_recognised_without_fingerprints(monkeypatch):
    (x, y), model = batch_of(), Net().eval()
    observer, wanted = watched(model, (x, y)), expected(model, x)
    monkeypatch.setattr(row_matching, "fingerprints", None)
    model(x)
    assert_observed(observer, *wanted, atol=1e-6)


def test_tensors_of_inference_mode_are_observed():
    with torch.inference_mode():
        x, y = batch_of()
        x, y = x.clone(), y.clone()
    model = Net().eval()
    observer, wanted = watched(model, (x, y)), expected(model, x)
    model.requires_grad_(False)(x)
    assert_observed(observer, *wanted, atol=1e-6)


def test_an_evaluation_in_between_is_ignored():
    (x, _), model = batch_of(), Net()
    observer, wanted = watched(model), expected(model, x)
    model(x)
    model.eval()
    for seed in (1, 2):
        with torch.no_grad():  # right after the training forward, whose features it must not replace
            model(Tuples(ROWS, seed=seed).x)
    for seed in (1, 2):
        model(Tuples(ROWS, seed=seed).x)
    assert_observed(observer, *wanted, atol=1e-6)


def test_logits_that_the_loop_changes_in_place_are_observed_as_they_were():
    (x, _), model = batch_of(), Net()
    observer, wanted = watched(model), expected(model, x)
    model(x).mul_(100.0)
    assert_observed(observer, *wanted, atol=1e-6)


def test_whole_numbers_of_one_byte_are_recognised_in_any_part():
    generator = torch.Generator().manual_seed(0)
    x, model = torch.randint(0, 256, (ROWS, 3 * 32 * 32), dtype=torch.uint8, generator=generator), Bytes()
    observer, y = Observer(Scorer(model), features=True), batch_of()[1]
    observer.start((x, y), y)
    for row in x.clone().flip(0).split(1):
        model(row)
    seen = observer.finish()
    assert seen is not None
    assert seen.found is None or bool(seen.found.all())
    assert seen.features is not None
    assert torch.allclose(seen.features, model.body(x.float()), rtol=1e-5, atol=1e-3)  # sums of 3,072 numbers up to 255


class Bytes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(3 * 32 * 32, 5), nn.Linear(5, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x.float()))


def test_rows_are_told_apart_by_all_columns_of_the_batch():
    """The first column is the same for every row."""
    tokens, labels = torch.randint(0, 30_000, (ROWS, 6)), batch_of()[1]
    batch, model = {"mask": torch.ones(ROWS, 6), "tokens": tokens, "label": labels}, Embedded()
    scorer = Scorer(
        model,
        Scoring(
            forward=lambda model, batch: model(mask=batch["mask"], tokens=batch["tokens"])["logits"],
            targets=lambda batch: batch["label"],
        ),
    )
    observer = Observer(scorer, features=True)
    observer.start(batch, labels)
    parts = [model(mask=batch["mask"][part], tokens=tokens[part])["logits"] for part in (slice(0, 4), slice(4, 8))]
    seen = observer.finish()
    assert seen is not None
    assert seen.found is None or bool(seen.found.all())
    assert torch.allclose(seen.logits, torch.cat(parts), atol=1e-6)


def test_tokens_that_are_also_the_targets_are_inputs():
    """As in language models. The mask alone would not tell the rows apart."""
    tokens, model = torch.randint(0, 30_000, (ROWS, 6)), Embedded()
    batch = {"mask": torch.ones(ROWS, 6), "tokens": tokens, "labels": tokens.clone()}
    observer = Observer(Scorer(model, Scoring(loss=lambda outputs, _: outputs.mean(1))), features=True)
    observer.start(batch, batch["labels"])
    output = model(mask=batch["mask"], tokens=tokens.flip(0))
    seen = observer.finish()
    assert seen is not None
    assert seen.logits is not None
    assert torch.equal(seen.logits, output["logits"].flip(0))


@pytest.mark.filterwarnings("ignore")
def test_many_parts_of_a_compiled_model_are_not_compiled_again():
    torch.compiler.reset()
    (x, y), model = batch_of(), Net().eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)  # which fails if it is compiled too often
    observer = Observer(Scorer(model), features=True)
    for _ in range(3):
        observer.start((x, y), y)
        wanted = expected(model, x)
        for part in x.split(2):
            for _ in range(4):
                compiled(part)
        assert_observed(observer, *wanted, atol=1e-5)


def test_an_error_in_the_forward_leaves_nothing_behind():
    (x, _), model = batch_of(), Net().eval()
    observer, wanted = watched(model), expected(model, x)
    with pytest.raises(RuntimeError):
        model(x[:, :2])
    model.head.register_forward_pre_hook(_fail_once())
    with pytest.raises(ZeroDivisionError):
        model(x)
    assert observer.finish() is None
    model(x)
    assert_observed(observer, *wanted, atol=1e-6)


def _fail_once():
    calls = []

    def hook(*_):
        calls.append(1)
        if len(calls) == 1:
            raise ZeroDivisionError

    return hook


class Checkpointed(Net):
    reentrant = False

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(lambda x: self.head(self.body(x)), x, use_reentrant=self.reentrant)  # type: ignore[return-value]


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_activations_are_observed(reentrant):
    (x, y), model = batch_of(), Checkpointed().eval()
    model.reentrant = reentrant
    observer, wanted = watched(model), expected(model, x)
    F.cross_entropy(model(x.requires_grad_()), y).backward()
    assert_observed(observer, *wanted, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # torch.compile has many of its own
@pytest.mark.parametrize("given", ["the compiled model", "the model"])
@pytest.mark.parametrize("whole", [True, False], ids=["fullgraph", "with breaks"])
def test_a_compiled_model_is_observed(given, whole):
    torch.compiler.reset()
    (x, y), model = batch_of(), Net()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=whole)
    observer = Observer(Scorer(compiled if given == "the compiled model" else model), features=True)  # type: ignore[arg-type]
    for step in range(3):
        observer.start((x + step, y), y)
        wanted = expected(model, x + step)
        F.cross_entropy(compiled(x + step), y).backward()
        assert_observed(observer, *wanted, atol=1e-5)


def test_an_average_of_the_model_is_not_in_training():
    (x, _), model = batch_of(), Net()
    observer = watched(model)
    average = torch.optim.swa_utils.AveragedModel(model)
    average(x)
    assert observer.finish() is None
    wanted = expected(model, x)
    model(x)
    average.update_parameters(model)
    assert_observed(observer, *wanted, atol=1e-6)


def test_samples_with_the_same_input_share_its_features():
    (x, y), model = batch_of(), Net().eval()
    x[3] = x[6]
    observer, wanted = watched(model, (x, y)), expected(model, x)
    for part in x.split(2):
        model(part)
    assert_observed(observer, *wanted, atol=1e-6)


def test_sparse_inputs_are_told_apart():
    """Rows that are equal in nearly all places."""
    x, model = torch.zeros(ROWS, WIDTH), Net().eval()
    x[torch.arange(ROWS), torch.arange(ROWS) % WIDTH] = torch.arange(1.0, ROWS + 1)
    observer, wanted = watched(model, (x, batch_of()[1])), expected(model, x)
    model(x.flip(0))
    assert_observed(observer, *wanted, atol=1e-6)


class Embedded(nn.Module):
    """Tokens, by keyword, beside a mask of the same shape."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(30_000, 5), nn.Linear(5, CLASSES)

    def forward(self, mask: Tensor, tokens: Tensor) -> dict[str, Tensor]:
        return {"logits": self.head((self.table(tokens) * mask[..., None]).sum(1))}


def test_tokens_that_differ_by_one_are_told_apart():
    tokens = torch.randint(20_000, 30_000, (1, 6)).repeat(ROWS, 1)
    tokens[:, 2] += torch.arange(ROWS)
    batch = {"label": batch_of()[1].int(), "tokens": tokens, "mask": torch.ones(ROWS, 6)}
    model = Embedded()
    scorer = Scorer(
        model,
        Scoring(
            forward=lambda model, batch: model(mask=batch["mask"], tokens=batch["tokens"])["logits"],
            targets=lambda batch: batch["label"],
        ),
    )
    observer = Observer(scorer, features=True)
    observer.start(batch, scorer.criterion.targets(batch))
    output = model(mask=batch["mask"].flip(0), tokens=tokens.flip(0))
    seen = observer.finish()
    assert seen is not None
    assert seen.found is None or bool(seen.found.all())
    assert torch.equal(seen.logits, output["logits"].flip(0))


class TwoHeads(Net):
    """A second head of the same shape runs after the one that makes the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.auxiliary = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(self.body(x))
        self.auxiliary(x)
        return logits


def test_the_layer_that_makes_the_logits_is_tapped_not_the_last_of_that_shape():
    (x, _), model = batch_of(), TwoHeads().eval()
    observer, wanted = watched(model), expected(model, x)
    model(x)
    assert_observed(observer, *wanted, atol=1e-6)


class SharedHead(Net):
    """The head runs twice: the second time for an auxiliary loss."""

    def forward(self, x: Tensor) -> Any:
        return self.head(self.body(x)), self.head(self.body(-x))


def test_of_a_head_that_runs_twice_the_call_that_makes_the_logits_counts():
    (x, y), model = batch_of(), SharedHead().eval()
    wanted = expected(model, x)
    scorer = Scorer(model)
    for _ in range(2):  # the first forward finds the tap
        assert torch.allclose(scorer((x, y)).features, wanted[0], atol=1e-6)
    observer = watched(model)
    model(x)
    assert_observed(observer, *wanted, atol=1e-6)


def test_a_batch_without_inputs_asks_for_manual_observation():
    y = batch_of()[1]
    observer = Observer(
        Scorer(Net(), Scoring(forward=lambda *_: torch.zeros(ROWS, 3), targets=lambda b: b["y"])), features=False
    )
    with pytest.raises(ValueError, match=r'cannot be recognised .* use candidates=smdl.Observed\(observe="manual"\)'):
        observer.start({"names": ["a"] * ROWS, "y": y}, y)


def test_the_hooks_go_with_the_observer():
    model = Net()
    observer = watched(model)
    assert sum(len(module._forward_hooks) for module in model.modules()) == 2
    del observer
    gc.collect()
    assert sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()) == 0


def test_nothing_is_kept_between_iterations():
    (x, y), model = batch_of(), Net()
    observer = watched(model, (x, y))
    observer.stop()
    for _ in range(3):
        model(x)
    assert observer._log is not None
    assert observer._log.last is None
    kept = weakref.ref(x)
    del x
    assert kept() is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert observer.finish() is None
