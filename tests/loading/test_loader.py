import copy
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, Subset, TensorDataset, default_collate

import smdl
from tests.conftest import examples
from tests.toys import (
    CASES,
    Dicts,
    ManyAtOnce,
    NamedTuples,
    Net,
    Recorder,
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

EVERY = list(CASES)
LIMITED = [case for case in EVERY if case not in ("balanced", "loss", "loss_recomputed", "replacement")]


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
        loader = smdl.DataLoader(dataset, Net(), 5, method="fresh")
        for x, y in loader:
            assert torch.equal(x, torch.stack([dataset[int(row)][0] for row in numbers_of(loader)]))
            assert y.shape == (5,)


def test_the_selection_behind_the_batch_is_at_hand():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method="fresh")
    assert loader.selection is None
    next(iter(loader))
    assert isinstance(loader.selection, smdl.Selection)
    assert loader.selection.value == pytest.approx(loader.selection.gains.sum())
    assert loader.selection.shares is not None
    assert loader.selection.shares.sum() == 12, "each of the pool is represented"


@pytest.mark.filterwarnings("ignore:the model has 3 outputs per sample")  # few samples may have few labels
@examples(100)
@given(n=st.integers(1, 24), data=st.data(), drop_last=st.booleans(), case=st.sampled_from(list(CASES)))
def test_the_length_is_exact(n, data, drop_last, case):
    size = data.draw(st.integers(1, n))
    widths = {"paper": 2, "paper_pool": 2, "rho_loss": 1}
    reference = {"reference": torch.rand(n, widths[case])} if case in widths else {}  # spares its training
    loader = make(case, Tuples(n), Net(), batch_size=size, drop_last=drop_last, **reference)
    sizes = [len(batch) for batch in epoch_of(loader)]
    assert len(loader) == len(sizes) == (n // size if drop_last else -(-n // size))
    assert sizes[:-1] == [size] * (len(sizes) - 1)
    assert sum(sizes) == (n - n % size if drop_last else n)


@pytest.mark.parametrize("case", LIMITED)
def test_no_sample_is_drawn_twice_where_the_candidates_are_all_of_v(case):
    loader = make(case, Tuples(30), Net(), drop_last=False)
    seen = [*chain(*epoch_of(loader))]
    if isinstance(loader.candidates, smdl.Full | smdl.Observed) or case in (
        "uniform",
        "recommended",
    ):
        assert sorted(seen) == list(range(30))
    else:
        assert len(seen) == 30
        assert len(set(seen)) < 30, "pools do not depend on what was trained on"


def test_with_replacement_a_sample_may_come_again():
    seen = [*chain(*epoch_of(make("replacement", Tuples(30), Net())))]
    assert len(seen) == 30
    assert len(set(seen)) < 30


def test_every_step_has_random_numbers_of_its_own():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method="uniform", candidates=smdl.Full(3, replacement=True))
    assert len({tuple(batch) for batch in epoch_of(loader)}) == 8


@pytest.mark.parametrize(("case", "sizes"), [("fresh", [12] * 7 + [9]), ("paper_pool", [10] * 7 + [8])])
def test_every_pool_is_fresh_and_read_once(case, sizes):
    data, counts, pools = Tuples(31), np.zeros(31, int), []
    loader = make(case, data, Net(), seed=3, reference=torch.rand(31, 2))
    for _ in loader:
        pools.append(tuple(data.reads))
        data.reads.clear()
        counts[list(pools[-1])] += 1
        assert set(numbers_of(loader)) <= set(pools[-1])
        assert counts.max() - counts.min() <= 1, "every sample is a candidate equally often"
    assert [len(set(pool)) for pool in pools] == [len(pool) for pool in pools] == sizes
    assert len(set(pools)) == len(pools)


def test_all_of_v_is_scored_before_steps_0_k_2k():
    data = Tuples(30)
    loader = make("observed_full", data, Net(), scoring_batch_size=7)
    for epoch in range(2):
        for step, _ in zip(range(8), loader, strict=True):
            assert loader.forwards == 30 * (3 * epoch + step // 3 + 1)
            scoring = list(range(30)) if step % 3 == 0 else []
            assert data.reads == scoring + numbers_of(loader).tolist()
            data.reads.clear()


def test_scoring_goes_batch_by_batch():
    seen, model = [], Net()
    model.register_forward_hook(lambda *args: seen.append(len(args[2])))
    next(iter(make("observed_full", Tuples(30), model, scoring_batch_size=8)))
    assert seen == [8, 8, 8, 6]


@pytest.mark.parametrize("case", ["fresh", "observed_full"])
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


@pytest.mark.parametrize("workers", [0, 2])
def test_every_pool_is_scored_with_the_weights_of_its_own_step(workers):
    data, model, strategy, stale = Tuples(30), Net(), Recorder(), 0
    candidates = smdl.RandomPool()
    loader = smdl.DataLoader(data, model, 4, method=strategy, candidates=candidates, num_workers=workers)
    for epoch in range(2):
        iterator = iter(loader)
        for step in range(8):
            before = copy.deepcopy(model)
            jolt(model, 10 * epoch + step)
            next(iterator)
            rows = numbers_of(loader)
            assert len(strategy.pool) == (12 if step < 7 else 6)
            # Not equal in every bit: a forward of 4 rows may round otherwise than one of 12.
            features = strategy.pool.features[strategy.chosen]
            torch.testing.assert_close(features, scored(model, data, rows).features)
            stale += not torch.allclose(features, scored(before, data, rows).features, rtol=1e-3)
            again = smdl.select(strategy.pool, smdl.Objective.gradients(), len(rows), seed=strategy.seed)
            assert again.indices.tolist() == strategy.chosen.tolist()
        assert next(iterator, None) is None
    assert stale == 16, "the weights of the step before would show"


@pytest.mark.parametrize("workers", [0, 2])
def test_every_window_is_selected_with_the_weights_of_its_refresh(workers):
    data, model, strategy = Tuples(30), Net(), Recorder()
    loader = smdl.DataLoader(data, model, 4, method=strategy, candidates=smdl.Full(3), num_workers=workers)
    taken, pool, iterator = np.zeros(0, int), scored(model, data, np.arange(30)), iter(loader)
    for step in range(8):
        jolt(model, step)
        if step % 3 == 0:
            pool = scored(model, data, np.arange(30))
        next(iterator)
        assert torch.equal(strategy.pool.features, pool.features)
        rows = numbers_of(loader)
        chosen = smdl.select(pool, "gradients", len(rows), exclude=taken)  # lazy greedy: its seed breaks ties alone
        assert rows.tolist() == chosen.indices.tolist()
        taken = np.append(taken, rows)


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
    strategy = Recorder(smdl.Objective(feature_match=1.0))
    loader = smdl.DataLoader(data, Net(), 4, method=strategy, reference=reference)
    for _ in loader:
        rows, matched = np.array(data.reads), strategy.pool.reference
        data.reads.clear()
        assert matched is not None
        assert torch.equal(matched, reference[rows])
        assert numbers_of(loader).tolist() == rows[strategy.chosen].tolist()


def test_strategies_that_need_no_reference_have_none_trained():
    for case in ("uniform", "fresh", "loss"):
        data, model = Tuples(30), Net()
        loader = make(case, data, model)
        train(loader, model, sgd(model), 2)
        assert loader.state_dict()["reference"] is None
        assert len(data.reads) == (24 if case == "fresh" else 8)


@pytest.mark.parametrize("shape", [(29, 3), (30,), (30, 2, 2)])
def test_a_reference_has_a_row_a_sample(shape):
    with pytest.raises(
        ValueError, match=r"reference must (be features of the 30 samples|have two dimensions).* got shape"
    ):
        make("paper", Tuples(30), Net(), reference=torch.rand(shape))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(Tuples())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shuffle": True}, "`shuffle` cannot be set: the method decides the order"),
        ({"sampler": [1]}, "`sampler` cannot be set"),
        ({"batch_sampler": [[1]]}, "`batch_sampler` cannot be set"),
        ({"in_order": False}, "`in_order` cannot be set"),
        ({"method": "unifrom"}, "unknown method 'unifrom'; did you mean 'uniform'"),
        ({"method": "no_such_module:Mine"}, "there is no module 'no_such_module'"),
        ({"method": "uniform", "objective": smdl.Objective.paper()}, "method uniform has no objective"),
        ({"method": "loss", "options": {"presure": 3}}, "unknown option of method loss 'presure'; did you mean 'press"),
        ({"method": "loss"}, "a pressure that decays from 100 to 1 needs epochs="),
        ({"batch_size": 31}, "batch_size must be at most the dataset's 30 samples, got 31"),
        ({"batch_size": 0}, "batch_size must be a whole number ≥ 1"),
        ({"dataset": Stream()}, "dataset must be map-style"),
        ({"dataset": Tuples(0)}, "dataset must have at least one sample, got an empty one"),
        ({"scoring_dataset": Tuples(29)}, "scoring_dataset must have the dataset's 30 samples, got 29"),
        ({"scoring_dataset": Stream()}, "scoring_dataset must be map-style"),
        ({"candidates": smdl.Full(5, replacement=True)}, "would choose the same batch again until the next refresh"),
        (
            {"method": "loss", "epochs": 3, "candidates": smdl.RandomPool()},
            r"use candidates=smdl.Full\(replacement=True",
        ),
        ({"method": "loss", "epochs": 3, "candidates": smdl.Full(5)}, r"draws from the whole dataset"),
        ({"scoring": smdl.Scoring(features="hed")}, "unknown module in features= 'hed'; did you mean 'head'"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
    ],
)
def test_bad_options_are_refused_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        smdl.DataLoader(**{"dataset": Tuples(30), "model": Net(), "batch_size": 4, **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 2.5}, "batch_size must be a whole number ≥ 1, got 2.5"),
        ({"batch_size": (2, 5)}, r"batch_size must be a whole number ≥ 1, got \(2, 5\)"),
        ({"batch_size": True}, "batch_size must be a whole number"),
        ({"drop_last": "no"}, "drop_last must be True or False, got 'no'"),
        ({"seed": "7"}, "seed must be a whole number ≥ 0, got '7'"),
        ({"model": print}, r"model must be a torch\.nn\.Module"),
        ({"method": 3}, r"method must be a name, a smdl\.Method or a smdl\.Strategy, got 3"),
        ({"objective": 3}, "objective must be a smdl.Objective, or the name of a preset or a term, got 3"),
        ({"candidates": 5}, r"candidates must be candidates such as smdl\.RandomPool\(\)"),
        ({"metod": "fresh"}, "unknown argument of DataLoader 'metod'; did you mean 'method'?"),
        ({"loss": "mse"}, r"`loss` belongs to scoring=: pass scoring=smdl.Scoring\(loss=...\)"),
        ({"scoring": smdl.Scoring(loss=torch.nn.MSELoss)}, r"loss must be an object, not a class: pass nn.MSELoss\(\)"),  # type: ignore[arg-type]
        ({"scoring": "mse"}, "scoring must be a smdl.Scoring, got 'mse'"),
    ],
)
def test_wrong_types_are_type_errors(options, message):
    with pytest.raises(TypeError, match=message):
        smdl.DataLoader(**{"dataset": Tuples(30), "model": Net(), "batch_size": 4, **options})


@pytest.mark.parametrize("case", ["uniform", "fresh", "observed_full"])
def test_samples_lost_in_the_collate_function_are_missed(case):
    lossy = lambda items: default_collate(items[:-1])  # noqa: E731
    with pytest.raises(ValueError, match=r"collate_fn must make one row of each sample, got \d+ rows of \d+ samples"):
        next(iter(make(case, Tuples(30), Net(), collate_fn=lossy)))


def test_a_model_that_diverged_stops_the_loader():
    model = Net()
    loader = smdl.DataLoader(Tuples(30), model, 4, method="fresh")
    with torch.no_grad():
        model.head.weight.fill_(float("nan"))
    with pytest.raises(ValueError, match="has training diverged"):
        next(iter(loader))


def test_the_time_is_accounted_for():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method="observed")
    epoch_of(loader)
    epoch_of(loader)
    assert list(loader.seconds) == ["data", "scoring", "selection"]
    assert min(loader.seconds.values()) > 0


def test_a_second_iteration_ends_the_first():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method="fresh")
    first = iter(loader)
    next(first)
    second = iter(loader)
    next(second)
    with pytest.raises(RuntimeError, match="another iteration of this loader was started"):
        next(first)
    assert len(list(second)) == 7


@pytest.mark.parametrize("case", EVERY)
def test_the_loader_says_what_it_does(case):
    loader = make(case, Tuples(30), Net())
    shown = repr(loader)
    for part in (f"method={loader.method.name}", repr(loader.candidates), "30 samples", "batch_size=4", "8 steps per"):
        assert part in shown


def test_a_loader_that_is_made_again_for_every_epoch_warns_that_it_restarts():
    model, data = Net(), Tuples(8)
    epoch_of(smdl.DataLoader(data, model, 4))
    with pytest.warns(UserWarning, match="starts epoch 0 of a run of which another loader has finished an epoch"):
        epoch_of(smdl.DataLoader(Tuples(8), model, 4))  # the first one is freed, and the data set is made again, too


@pytest.mark.parametrize("known", ["epoch", "state", "seed", "model", "data"])
def test_a_second_loader_that_continues_or_is_another_run_does_not_warn(known):
    model, data = Net(), Tuples(8)
    first = smdl.DataLoader(data, model, 4)
    epoch_of(first)
    data = Strings(8) if known == "data" else data
    second = smdl.DataLoader(data, Net() if known == "model" else model, 4, seed=1 if known == "seed" else 0)
    if known == "epoch":
        second.set_epoch(1)
    elif known == "state":
        second.load_state_dict(first.state_dict())
    epoch_of(second)  # warnings are errors
    epoch_of(first)


@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_a_trainer_that_asks_for_the_sampler_is_told_how_to_resume(name):
    """HF and Accelerate would build a plain loader from it. Lightning asks with hasattr, and must be told no."""
    for loader in (smdl.DataLoader(Tuples(8), Net(), 4), smdl.SelectiveLoader([], Net())):
        assert not hasattr(loader, name)
        with pytest.raises(AttributeError, match=r"has no sampler.*register_for_checkpointing.*SelectiveTrainer"):
            getattr(loader, name)


@pytest.mark.parametrize("method", ["uniform", "balanced", "fresh"])
def test_a_loop_may_show_its_logits_to_every_method(method):
    model = Net()
    loader = smdl.DataLoader(Tuples(8), model, 4, method=method)
    for x, _ in loader:
        loader.observe(logits=model(x))
