import copy
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, Subset, TensorDataset, default_collate

import smdl
from smdl.candidates import deal
from smdl.randomness import stream
from tests.toys import (
    ADAPTIVE,
    CASES,
    Dicts,
    ManyAtOnce,
    NamedTuples,
    Net,
    Shifted,
    Strings,
    Tuples,
    epoch_of,
    make,
    numbers_of,
    same,
    sgd,
    train,
)

EVERY = [*CASES, *ADAPTIVE]
LIMITED = [case for case in EVERY if case not in ("loss", "loss_recomputed", "replacement")]


def jolt(model: torch.nn.Module, seed: int) -> None:
    """Weights so different that selections with the old ones would show."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))


@pytest.mark.parametrize("case", EVERY)
@pytest.mark.parametrize("form", [Tuples, Strings, Dicts, NamedTuples, ManyAtOnce])
def test_a_batch_is_the_rows_of_the_dataset_that_were_selected(form, case):
    data, model = form(30), Net()
    options = {}
    if form is Dicts:
        options = {"forward": lambda model, batch: model(batch["pixels"]), "targets": lambda b: b["meta"]["label"]}
    loader = make(case, data, model, **options)
    steps = 0
    for batch in loader:
        if form is Dicts:
            batch = batch["pixels"], batch["meta"]["label"], batch["meta"]["name"]
        rows = numbers_of(loader)
        assert torch.equal(batch[0], data.x[rows])
        assert torch.equal(batch[1], data.y[rows])
        if form in (Dicts, Strings):
            assert list(batch[2]) == [f"sample {row}" for row in rows]
        model(batch[0])
        steps += 1
    assert steps >= 5


def test_any_map_style_dataset_will_do():
    data = Tuples(40)
    columns = TensorDataset(data.x, data.y)
    for dataset in (columns, Subset(columns, range(5, 25)), [(data.x[k], data.y[k]) for k in range(10)]):
        loader = smdl.DataLoader(dataset, Net(), 5)
        for x, y in loader:
            assert torch.equal(x, torch.stack([dataset[int(row)][0] for row in numbers_of(loader)]))
            assert y.shape == (5,)


def test_the_selection_behind_the_batch_is_at_hand():
    loader = smdl.DataLoader(Tuples(30), Net(), 4)
    assert loader.batch is None
    next(iter(loader))
    assert isinstance(loader.batch, smdl.Selection)
    assert loader.batch.value == pytest.approx(loader.batch.gains.sum())
    assert loader.batch.weights is not None
    assert loader.batch.weights.sum() == 12, "each of the pool is represented"


@settings(max_examples=100)
@given(n=st.integers(1, 24), data=st.data(), drop_last=st.booleans(), case=st.sampled_from(list(CASES)))
def test_the_length_is_exact(n, data, drop_last, case):
    size = data.draw(st.integers(1, n))
    reference = {"reference": torch.rand(n, 2)} if "paper" in case else {}  # spares its training
    loader = make(case, Tuples(n), Net(), batch_size=size, drop_last=drop_last, **reference)
    sizes = [len(batch) for batch in epoch_of(loader)]
    assert len(loader) == len(sizes) == (n // size if drop_last else -(-n // size))
    assert sizes[:-1] == [size] * (len(sizes) - 1)
    assert sum(sizes) == (n - n % size if drop_last else n)


@given(
    n=st.integers(1, 24),
    data=st.data(),
    drop_last=st.booleans(),
    penalty=st.sampled_from([-1.0, 0.02, 0.1, 1e9]),
    every=st.sampled_from([None, 3]),
)
def test_adaptive_sizes_stay_within_bounds_and_use_the_epoch_up(n, data, drop_last, penalty, every):
    high = data.draw(st.integers(1, n))
    low = data.draw(st.integers(1, high))
    loader = smdl.DataLoader(
        Tuples(n), Net(), (low, high), size_penalty=penalty, refresh_every=every, drop_last=drop_last
    )
    sizes = [len(batch) for batch in epoch_of(loader)]
    assert all(low <= size <= high for size in sizes[:-1])
    assert sizes[-1] <= high
    if drop_last:
        assert sizes[-1] >= low
        assert n - sum(sizes) < low
    else:
        assert sum(sizes) == n
    if penalty == 1e9:
        assert set(sizes[:-1]) <= {low}
    if penalty == -1:
        assert set(sizes[:-1]) <= {high}


def test_adaptive_sizes_adapt_and_have_no_length():
    for case in ADAPTIVE:
        loader = make(case, Tuples(30), Net())
        assert len({len(batch) for batch in epoch_of(loader)}) > 1
        with pytest.raises(TypeError, match="adaptive batch size has no len"):
            len(loader)


@pytest.mark.parametrize("case", LIMITED)
def test_no_sample_is_drawn_twice_where_the_candidates_are_all_of_v(case):
    loader = make(case, Tuples(30), Net(), drop_last=False)
    seen = [*chain(*epoch_of(loader))]
    if isinstance(loader.refresh, smdl.Full) or case == "uniform":
        assert sorted(seen) == list(range(30))
    else:
        assert len(seen) == 30
        assert len(set(seen)) < 30, "pools are drawn anew, whatever was trained on"


def test_with_replacement_a_sample_may_come_again():
    seen = [*chain(*epoch_of(make("replacement", Tuples(30), Net())))]
    assert len(seen) == 30
    assert len(set(seen)) < 30


def test_every_step_has_random_numbers_of_its_own():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, strategy="uniform", refresh=smdl.Full(3), replacement=True)
    assert len({tuple(batch) for batch in epoch_of(loader)}) == 8


@pytest.mark.parametrize("case", ["recommended", "paper_pool", "adaptive"])
def test_every_pool_is_dealt_from_the_deck_and_read_once(case):
    data = Tuples(31)
    reference = {"reference": torch.rand(31, 2)} if "paper" in case else {}
    loader = make(case, data, Net(), seed=3, **reference)
    sizes = {"recommended": [12] * 7 + [9], "paper_pool": [10] * 7 + [8], "adaptive": [18] * 20}[case]
    pools = deal(31, iter(sizes), np.random.default_rng(stream(loader._key, 0, 0)))
    for _ in loader:
        pool = next(pools).tolist()
        assert data.reads == pool
        assert set(numbers_of(loader)) <= set(pool)
        data.reads.clear()


def test_all_of_v_is_scored_before_steps_0_k_2k():
    data = Tuples(30)
    loader = make("recommended_full", data, Net(), scoring_batch_size=7)
    for epoch in range(2):
        for step, _ in zip(range(8), loader, strict=True):
            assert loader.forwards == 30 * (3 * epoch + step // 3 + 1)
            scoring = list(range(30)) if step % 3 == 0 else []
            assert data.reads == scoring + numbers_of(loader).tolist()
            data.reads.clear()


def test_scoring_goes_batch_by_batch():
    seen, model = [], Net()
    model.register_forward_hook(lambda *args: seen.append(len(args[2])))
    next(iter(make("recommended_full", Tuples(30), model, scoring_batch_size=8)))
    assert seen == [8, 8, 8, 6]


@pytest.mark.parametrize("case", ["recommended", "recommended_full"])
def test_the_scoring_dataset_is_scored_and_the_dataset_trained_on(case):
    data, evaluation = Shifted(30), Tuples(30)
    loader = make(case, data, Net(), scoring_dataset=evaluation)
    plain = make(case, evaluation, Net())
    for (x, _), _ in zip(loader, plain, strict=True):
        assert numbers_of(loader).tolist() == numbers_of(plain).tolist(), "scored as without the shift"
        assert torch.equal(x, data.x[numbers_of(loader)] + 100)


def scored(model: Net, data: Tuples, rows: np.ndarray) -> smdl.Pool:
    """An independent forward."""
    model = copy.deepcopy(model).eval()
    with torch.no_grad():
        features = model.body(data.x[rows])
        return smdl.Pool(features, model.head(features).softmax(1), data.y[rows])


def step_seed(loader: smdl.DataLoader, epoch: int, step: int) -> int:
    return int(np.random.default_rng(stream(loader._key, 1, epoch, step)).integers(2**63))


@pytest.mark.parametrize("workers", [0, 2])
def test_every_pool_is_scored_with_the_weights_of_its_own_step(workers):
    data, model, stale = Tuples(30), Net(), 0
    loader = make("recommended", data, model, num_workers=workers)
    objective = smdl.Objective.recommended()
    for epoch in range(2):
        pools = deal(30, iter([12] * 7 + [6]), np.random.default_rng(stream(loader._key, 0, epoch)))
        iterator = iter(loader)
        jolt(model, 99)
        for step in range(8):
            before = copy.deepcopy(model)
            jolt(model, 10 * epoch + step)
            next(iterator)
            rows, size = next(pools), 4 if step < 7 else 2
            fresh, old = (
                smdl.select(scored(m, data, rows), objective, size, seed=step_seed(loader, epoch, step))
                for m in (model, before)
            )
            assert numbers_of(loader).tolist() == rows[fresh.indices].tolist()
            stale += fresh.indices.tolist() != old.indices.tolist()
        assert next(iterator, None) is None
    assert stale > 10, "with the weights of the step before, most batches would be others"


@pytest.mark.parametrize("workers", [0, 2])
def test_every_window_is_selected_with_the_weights_of_its_refresh(workers):
    data, model = Tuples(30), Net()
    loader = make("recommended_full", data, model, num_workers=workers)
    objective, taken, pool = smdl.Objective.recommended(), np.zeros(0, int), scored(model, data, np.arange(30))
    iterator = iter(loader)
    for step in range(8):
        jolt(model, step)
        if step % 3 == 0:
            pool = scored(model, data, np.arange(30))
        next(iterator)
        size = 4 if step < 7 else 2
        chosen = smdl.select(pool, objective, size, exclude=taken, seed=step_seed(loader, 0, step))
        assert numbers_of(loader).tolist() == chosen.indices.tolist()
        taken = np.append(taken, chosen.indices)


@pytest.mark.parametrize("case", ["paper", "paper_pool", "loss_recomputed"])
def test_workers_change_nothing(case):
    """The paper trains a reference with the very workers that read the batches."""
    runs = []
    for workers in (0, 2):
        model = Net()
        loader = make(case, Tuples(30), model, num_workers=workers)
        runs.append((train(loader, model, sgd(model), 12), [*model.state_dict().values()]))
    assert runs[0][0] == runs[1][0]
    assert same(runs[0][1], runs[1][1])


def test_workers_may_be_spawned():
    loader = smdl.DataLoader(Tuples(12), Net(), 4, num_workers=1, multiprocessing_context="spawn")
    assert epoch_of(loader) == epoch_of(smdl.DataLoader(Tuples(12), Net(), 4))


@pytest.mark.parametrize("case", ["paper", "paper_pool"])
def test_the_reference_may_be_features_or_a_model_or_is_trained_once(case):
    data, given_one = Tuples(30), Net(seed=7)
    with torch.no_grad():
        features = copy.deepcopy(given_one).eval().body(data.x)
    runs = {
        name: epoch_of(make(case, data, Net(), reference=reference))
        for name, reference in {
            "tensor": features,
            "array": features.numpy(),
            "model": given_one,
            "trained": None,
            "trained again": None,
        }.items()
    }
    assert runs["tensor"] == runs["array"] == runs["model"]
    assert runs["trained"] == runs["trained again"] != runs["tensor"]
    made = [make(case, data, Net(), seed=seed) for seed in (0, 1)]
    for loader in made:
        next(iter(loader))
    assert not torch.equal(*(loader.state_dict()["reference"] for loader in made)), "the loader's seed is its seed"


def test_a_pool_is_matched_with_the_reference_of_its_own_samples():
    data, reference = Tuples(30), torch.rand(30, 2, generator=torch.Generator().manual_seed(1))
    objective = smdl.Objective(feature_match=1.0)
    loader = smdl.DataLoader(data, Net(), 4, objective=objective, reference=reference)
    pools = deal(30, iter([12] * 7 + [6]), np.random.default_rng(stream(loader._key, 0, 0)))
    for step, batch in enumerate(epoch_of(loader)):
        rows = next(pools)
        pool = smdl.Pool(data.x[rows], reference=reference[rows])
        assert batch == rows[smdl.select(pool, objective, len(batch), seed=step_seed(loader, 0, step)).indices].tolist()


def test_strategies_that_need_no_reference_have_none_trained():
    for case in ("uniform", "recommended", "loss"):
        data, model = Tuples(30), Net()
        loader = make(case, data, model)
        train(loader, model, sgd(model), 2)
        assert loader.state_dict()["reference"] is None
        assert len(data.reads) == (24 if case == "recommended" else 8)


@pytest.mark.parametrize("shape", [(29, 3), (30,), (30, 2, 2)])
def test_a_reference_has_a_row_a_sample(shape):
    with pytest.raises(ValueError, match=r"reference must be features of the 30 samples, \(N, M\), got shape"):
        make("paper", Tuples(30), Net(), reference=torch.rand(shape))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Tuples())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, "shuffle is smdl's own business here: choose a strategy= and a seed= instead"),
        ({"sampler": [1]}, "sampler is smdl's own business"),
        ({"batch_sampler": [[1]]}, "batch_sampler is smdl's own business"),
        ({"in_order": False}, "in_order is smdl's own business"),
        ({"strategy": "unifrom"}, "unknown strategy 'unifrom'; did you mean 'uniform'"),
        ({"strategy": "uniform", "objective": "paper"}, "objective= and size_penalty= belong to strategy smdl"),
        ({"objective": "papper"}, "unknown preset 'papper'; did you mean 'paper'"),
        ({"batch_size": 31}, "batch_size must be at most the dataset's 30 samples, got 31"),
        ({"batch_size": 0}, "batch_size must be a whole number ≥ 1"),
        ({"batch_size": (2, 5)}, "size_penalty= go together"),
        ({"size_penalty": 0.1}, "size_penalty= go together"),
        ({"dataset": Stream()}, "dataset must be map-style"),
        ({"dataset": Tuples(0)}, "dataset must have at least one sample, got an empty one"),
        ({"scoring_dataset": Tuples(29)}, "scoring_dataset must have the dataset's 30 samples, got 29"),
        ({"scoring_dataset": Stream()}, "scoring_dataset must be map-style"),
        ({"model": print}, r"model must be a torch\.nn\.Module"),
        ({"refresh": smdl.Full(5), "refresh_every": 5}, "not both"),
        ({"refresh": smdl.Full(5), "replacement": True}, "'auto' would choose the same batch again"),
        ({"replacement": True}, r"replacement=True belongs to refresh=Full"),
        ({"strategy": "loss", "refresh": smdl.RandomPool()}, "refresh must be Full"),
        ({"features": "hed"}, "unknown module in features= 'hed'; did you mean 'head'"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
    ],
)
def test_bad_options_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        smdl.DataLoader(**{"dataset": Tuples(30), "model": Net(), "batch_size": 4, **options})


@pytest.mark.parametrize("case", ["uniform", "recommended", "recommended_full"])
def test_samples_lost_in_the_collate_function_are_missed(case):
    lossy = lambda items: default_collate(items[:-1])  # noqa: E731
    with pytest.raises(ValueError, match=r"collate_fn must make one row of each sample, got \d+ rows of \d+ samples"):
        next(iter(make(case, Tuples(30), Net(), collate_fn=lossy)))


def test_a_model_that_diverged_stops_the_loader():
    model = Net()
    loader = smdl.DataLoader(Tuples(30), model, 4)
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="has training diverged"):
        next(iter(loader))


def test_the_time_is_accounted_for():
    loader = smdl.DataLoader(Tuples(30), Net(), 4)
    epoch_of(loader)
    assert list(loader.seconds) == ["data", "scoring", "selection"]
    assert min(loader.seconds.values()) > 0
