import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.randomness import stream
from tests.toys import Net, Tuples, numbers_of

DATA = Tuples(42)


def batches(size: int = 6, n: int = 42):
    for start in range(0, n, size):
        rows = slice(start, min(n, start + size))
        yield DATA.x[rows], DATA.y[rows]


def rows_of(x: torch.Tensor) -> list[int]:
    return [int((DATA.x == row).all(1).nonzero()) for row in x]


def scored(model: Net, x: torch.Tensor, y: torch.Tensor, reference: torch.Tensor | None = None) -> smdl.Pool:
    with torch.no_grad():
        features = model.eval().body(x)
        probabilities = model.head(features).softmax(1)
    model.train()
    return smdl.Pool(features, probabilities, y, reference=reference)


def step_seed(seed: int, epoch: int, step: int) -> int:
    return int(np.random.default_rng(stream(stream(seed), epoch, step)).integers(2**63))


def test_three_batches_are_joined_and_a_third_of_them_selected_with_the_weights_of_that_step():
    model = Net().train()
    filtered = smdl.filter(batches(), model, keep=1 / 3, seed=5)
    for step, (x, y) in zip(range(3), filtered, strict=True):
        low, high = 18 * step, min(42, 18 * step + 18)
        pool = scored(model, DATA.x[low:high], DATA.y[low:high])
        wanted = smdl.select(pool, smdl.Objective.recommended(), (high - low) // 3, seed=step_seed(5, 0, step))
        assert numbers_of(filtered).tolist() == wanted.indices.tolist()
        assert rows_of(x) == (wanted.indices + low).tolist()
        assert torch.equal(y, DATA.y[rows_of(x)])
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(step)))
    assert filtered.forwards == 42


@given(
    count=st.integers(0, 9),
    size=st.integers(1, 5),
    parts=st.integers(1, 7),
    strategy=st.sampled_from(["uniform", "smdl"]),
)
def test_the_length_and_the_sizes_are_right(count, size, parts, strategy):
    source = list(batches(size))[:count]
    filtered = smdl.filter(source, Net(), keep=1 / parts, strategy=strategy)
    sizes = [len(x) for x, _ in filtered]
    assert len(sizes) == len(filtered)
    rows = [len(x) for x, _ in source]
    groups = [sum(rows[k : k + parts]) for k in range(0, len(rows), parts)]
    for chosen, group in zip(sizes, groups, strict=True):
        assert chosen == 1 if group < parts else abs(chosen - group / parts) <= 0.5 + 1e-9


def test_so_many_batches_are_joined_as_are_needed_to_keep_one():
    assert [smdl.filter([], Net(), keep=1 / parts).joined for parts in range(1, 200)] == list(range(1, 200))
    assert smdl.filter([], Net(), keep=0.4).joined == 3


def test_batches_of_any_form_pass():
    def dicts():
        for x, y in batches():
            yield {"pixels": x, "meta": {"label": y, "name": [f"sample {row}" for row in rows_of(x)]}}

    options = {"forward": lambda model, batch: model(batch["pixels"]), "targets": lambda batch: batch["meta"]["label"]}
    plain = [rows_of(x) for x, _ in smdl.filter(list(batches()), Net(), keep=0.5)]
    for batch, rows in zip(smdl.filter(dicts(), Net(), keep=0.5, **options), plain, strict=True):
        assert rows_of(batch["pixels"]) == rows
        assert batch["meta"]["name"] == [f"sample {row}" for row in rows]
        assert torch.equal(batch["meta"]["label"], DATA.y[rows])


def test_no_more_is_read_than_the_pool_in_hand():
    read = []
    source = (read.append(1) or batch for batch in batches())
    next(iter(smdl.filter(source, Net(), keep=1 / 3)))
    assert len(read) == 3


def test_keeping_all_selects_all():
    for (x, _), (whole, _) in zip(smdl.filter(batches(), Net(), keep=1), batches(), strict=True):
        assert sorted(rows_of(x)) == rows_of(whole)


def test_uniform_asks_no_model():
    def broken(*_):
        raise AssertionError("scored")

    filtered = smdl.filter(batches(), Net(), keep=0.5, strategy="uniform", forward=broken)
    assert sum(len(x) for x, _ in filtered) == 21
    assert filtered.forwards == 0


def test_every_step_and_every_pass_draws_anew_and_the_seed_decides():
    def two_passes(seed):
        filtered = smdl.filter(list(batches()), Net(), keep=0.5, strategy="uniform", seed=seed)
        return [[rows_of(x) for x, _ in filtered] for _ in range(2)]

    first, second = two_passes(1)
    assert first != second
    assert len({tuple(row - 12 * step for row in rows) for step, rows in enumerate(first)}) == len(first)
    assert two_passes(1) == [first, second]
    assert two_passes(2)[0] != first


def test_a_reference_model_scores_the_stream_for_feature_match():
    model, reference = Net().train(), Net(seed=8)
    objective = smdl.Objective(feature_match=1.0)
    for x, _ in smdl.filter([(DATA.x, DATA.y)], model, keep=0.25, objective=objective, reference=reference):
        with torch.no_grad():
            pool = scored(model, DATA.x, DATA.y, reference.eval().body(DATA.x))
        wanted = smdl.select(pool, objective, 10, seed=step_seed(0, 0, 0))
        assert rows_of(x) == wanted.indices.tolist()


def test_the_time_is_accounted_for():
    filtered = smdl.filter(batches(), Net())
    list(filtered)
    assert list(filtered.seconds) == ["data", "scoring", "selection"]
    assert min(filtered.seconds.values()) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0}, r"keep must be a fraction in \(0, 1\], got 0"),
        ({"keep": 1.5}, r"keep must be a fraction in \(0, 1\], got 1.5"),
        ({"keep": "half"}, "keep must be a fraction"),
        ({"strategy": "loss"}, "strategy LossRank follows each sample of a dataset; a stream has none"),
        ({"objective": "paper"}, "feature_match needs reference=, a trained model, to score a stream"),
        ({"strategy": "unifrom"}, "unknown strategy 'unifrom'; did you mean 'uniform'"),
        ({"objective": "paper", "strategy": "uniform"}, "belong to strategy smdl"),
        ({"features": "hed"}, "unknown module in features= 'hed'; did you mean 'head'"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        smdl.filter(iter([]), Net(), **options)


def test_a_stream_without_length_has_none():
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(smdl.filter(batches(), Net()))


FEATURES, LOGITS = torch.rand(30, 5, generator=torch.Generator().manual_seed(0)), DATA.x[:30, :3]


@pytest.mark.parametrize("objective", ["recommended", "paper", smdl.Objective(redundancy=1.0)], ids=str)
def test_pick_is_select_on_the_same_pool(objective):
    reference = FEATURES[:, :2]
    picked = smdl.pick(FEATURES, LOGITS, DATA.y[:30], 7, objective=objective, reference=reference, bias=False, seed=3)
    pool = smdl.Pool(FEATURES, LOGITS.softmax(1), DATA.y[:30], reference=reference, bias=False)
    named = getattr(smdl.Objective, objective)() if isinstance(objective, str) else objective
    assert picked.tolist() == smdl.select(pool, named, 7, seed=3).indices.tolist()


def test_pick_answers_in_kind():
    tensor = smdl.pick(FEATURES.clone().requires_grad_(), LOGITS.clone().requires_grad_(), DATA.y[:30], 4)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == torch.int64
    assert tensor.device == FEATURES.device
    assert DATA.y[tensor].shape == (4,)
    array = smdl.pick(FEATURES.numpy(), LOGITS.numpy(), DATA.y[:30].numpy(), 4)
    assert isinstance(array, np.ndarray)
    assert array.tolist() == tensor.tolist()


def test_pick_serves_half_precision_inside_a_step():
    half = smdl.pick(FEATURES.bfloat16(), LOGITS.bfloat16(), DATA.y[:30], 4)
    assert len(set(half.tolist())) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((FEATURES, LOGITS[:, 0], DATA.y[:30], 3), r"logits of shape \(batch, classes\), got shape \(30,\)"),
        ((FEATURES, LOGITS, DATA.y[:29], 3), "30 features, 29 labels"),
        ((FEATURES, LOGITS, DATA.y[:30] + 2, 3), "below the 3 classes"),
        ((FEATURES, LOGITS, DATA.y[:30], 31), "size must be at most the 30 candidates, got 31"),
    ],
)
def test_pick_refuses_what_does_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        smdl.pick(*arguments)
