import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, get_worker_info

import smdl
from smdl.loading.candidates.stream import Stream
from tests.toys import Net, Recorder, Tuples, numbers_of

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


def test_three_batches_are_joined_and_a_third_of_them_selected_with_the_weights_of_that_step():
    model, strategy = Net().train(), Recorder()
    filtered = smdl.SelectiveLoader(batches(), model, keep=1 / 3, method=strategy, seed=5)
    for step, (x, y) in zip(range(3), filtered, strict=True):
        low, high = 18 * step, min(42, 18 * step + 18)
        pool = scored(model, DATA.x[low:high], DATA.y[low:high])
        wanted = smdl.select(pool, smdl.Objective.gradients(), (high - low) // 3, seed=strategy.seed)
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
    method=st.sampled_from(["uniform", "observed"]),
)
def test_the_length_and_the_sizes_are_right(count, size, parts, method):
    source = list(batches(size))[:count]
    filtered = smdl.SelectiveLoader(source, Net(), keep=1 / parts, method=method)
    sizes = [len(x) for x, _ in filtered]
    assert len(sizes) == len(filtered)
    rows = [len(x) for x, _ in source]
    groups = [sum(rows[k : k + parts]) for k in range(0, len(rows), parts)]
    for chosen, group in zip(sizes, groups, strict=True):
        assert chosen == 1 if group < parts else abs(chosen - group / parts) <= 0.5 + 1e-9


def test_so_many_batches_are_joined_as_are_needed_to_keep_one():
    for parts in range(1, 200):
        stream = Stream(1 / parts)
        assert [stream.read_before(step) for step in (1, 2, 99, 10**6)] == [parts, 2 * parts, 99 * parts, 10**6 * parts]
        assert [stream.steps(batches) for batches in (parts, parts + 1, 99 * parts)] == [1, 2, 99]


@pytest.mark.parametrize("keep", [0.3, 0.4, 0.7])
def test_batches_keep_their_size_and_the_share_of_the_samples_is_what_was_asked(keep):
    data = [(torch.randn(30, 4), torch.randint(3, (30,))) for _ in range(100)]
    loader = smdl.SelectiveLoader(data, Net(), keep=keep, method="uniform")
    sizes = [len(inputs) for inputs, _ in loader]
    assert sizes == [30] * round(100 * keep)
    assert len(loader) == len(sizes)


class Endless(IterableDataset):
    """A stream of torch: it has no length."""

    def __iter__(self):
        info = get_worker_info()
        first, count = (0, 1) if info is None else (info.id, info.num_workers)
        for row in range(first, 90, count):
            yield torch.full((4,), float(row)), row % 3


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_of_torch_over_a_stream_has_no_length(workers):
    loader = smdl.SelectiveLoader(TorchLoader(Endless(), batch_size=5, num_workers=workers), Net(), keep=1 / 3)
    with pytest.raises(TypeError, match="has no len"):
        len(loader)
    assert [len(inputs) for inputs, _ in loader] == [5] * 6
    assert loader.epoch == 1


def test_batches_of_any_form_pass():
    def dicts():
        for x, y in batches():
            yield {"pixels": x, "meta": {"label": y, "name": [f"sample {row}" for row in rows_of(x)]}}

    options = {"forward": lambda model, batch: model(batch["pixels"]), "targets": lambda batch: batch["meta"]["label"]}
    plain = [rows_of(x) for x, _ in smdl.SelectiveLoader(list(batches()), Net(), keep=0.5)]
    for batch, rows in zip(
        smdl.SelectiveLoader(dicts(), Net(), keep=0.5, scoring=smdl.Scoring(**options)), plain, strict=True
    ):
        assert rows_of(batch["pixels"]) == rows
        assert batch["meta"]["name"] == [f"sample {row}" for row in rows]
        assert torch.equal(batch["meta"]["label"], DATA.y[rows])


def test_no_more_is_read_than_the_pool_in_hand():
    read = []
    source = (read.append(1) or batch for batch in batches())
    next(iter(smdl.SelectiveLoader(source, Net(), keep=1 / 3)))
    assert len(read) == 3


def test_keeping_all_selects_all():
    for (x, _), (whole, _) in zip(smdl.SelectiveLoader(batches(), Net(), keep=1), batches(), strict=True):
        assert sorted(rows_of(x)) == rows_of(whole)


def test_uniform_asks_no_model():
    def broken(*_):
        raise AssertionError("scored")

    filtered = smdl.SelectiveLoader(batches(), Net(), keep=0.5, method="uniform", scoring=smdl.Scoring(forward=broken))
    assert sum(len(x) for x, _ in filtered) == 21
    assert filtered.forwards == 0


def test_every_step_and_every_epoch_draws_again_and_the_seed_decides():
    def two_passes(seed):
        filtered = smdl.SelectiveLoader(list(batches()), Net(), keep=0.5, method="uniform", seed=seed)
        return [[rows_of(x) for x, _ in filtered] for _ in range(2)]

    first, second = two_passes(1)
    assert first != second
    assert len({tuple(row - 12 * step for row in rows) for step, rows in enumerate(first)}) == len(first)
    assert two_passes(1) == [first, second]
    assert two_passes(2)[0] != first


def test_a_reference_model_scores_the_stream_for_feature_match():
    model, reference = Net().train(), Net(seed=8)
    objective = smdl.Objective(feature_match=1.0)
    strategy = Recorder(objective)
    for x, _ in smdl.SelectiveLoader([(DATA.x, DATA.y)], model, keep=0.25, method=strategy, reference=reference):
        with torch.no_grad():
            pool = scored(model, DATA.x, DATA.y, reference.eval().body(DATA.x))
        wanted = smdl.select(pool, objective, 10, seed=strategy.seed)
        assert rows_of(x) == wanted.indices.tolist()


def test_the_time_is_accounted_for():
    filtered = smdl.SelectiveLoader(batches(), Net())
    list(filtered)
    assert list(filtered.seconds) == ["data", "scoring", "selection"]
    assert min(filtered.seconds.values()) > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": 0}, r"keep must be a fraction in \(0, 1\], got 0"),
        ({"keep": 1.5}, r"keep must be a fraction in \(0, 1\], got 1.5"),
        ({"method": "loss"}, "LossRank tracks each sample of a dataset; a stream has no such samples"),
        ({"method": "paper"}, "feature_match needs reference=, a trained model, to score a stream"),
        ({"method": "unifrom"}, "unknown method 'unifrom'; did you mean 'uniform'"),
        ({"objective": smdl.Objective.paper(), "method": "uniform"}, "method uniform has no objective"),
        ({"scoring": smdl.Scoring(features="hed")}, "unknown module in features= 'hed'; did you mean 'head'"),
    ],
)
def test_bad_options_are_refused_before_anything_is_read(options, message):
    with pytest.raises(ValueError, match=message):
        smdl.SelectiveLoader(iter([]), Net(), **options)


def test_an_argument_of_scoring_is_told_from_a_misspelt_one():
    for options, says in (
        ({"loss": "mse"}, r"`loss` belongs to scoring=: pass scoring=smdl.Scoring\(loss=...\)"),
        ({"lss": "mse"}, "unknown argument of SelectiveLoader 'lss'"),
    ):
        with pytest.raises(TypeError, match=says):
            smdl.SelectiveLoader(iter([]), Net(), **options)


def test_a_stream_without_length_has_none():
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(smdl.SelectiveLoader(batches(), Net()))


def test_keep_is_a_number():
    with pytest.raises(TypeError, match="keep must be a fraction"):
        smdl.SelectiveLoader([], Net(), keep="half")


def taken(loader: smdl.SelectiveLoader, count: int) -> list[list[int]]:
    """The samples of the next batches, over as many epochs as it takes."""
    seen: list[list[int]] = []
    while len(seen) < count:
        for x, _ in loader:
            seen.append(rows_of(x))
            if len(seen) == count:
                break
    return seen


class Stateful:
    """A loader that resumes by itself, as torchdata's StatefulDataLoader does."""

    def __init__(self) -> None:
        self.next = 0

    def __len__(self) -> int:
        return 7

    def __iter__(self):
        every = list(batches())
        while self.next < 7:
            self.next += 1
            yield every[self.next - 1]
        self.next = 0

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state) -> None:
        self.next = state["next"]


@pytest.mark.parametrize("stop", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("make_loader", [lambda: list(batches()), Stateful], ids=["plain", "stateful"])
def test_resume_gives_the_identical_tail(make_loader, stop):
    def make() -> smdl.SelectiveLoader:
        return smdl.SelectiveLoader(make_loader(), Net(), keep=0.5, method="uniform", seed=3)

    whole = taken(make(), 8)  # four batches per epoch
    stopped = make()
    assert taken(stopped, stop) == whole[:stop]
    resumed = make()
    resumed.load_state_dict(stopped.state_dict())
    assert taken(resumed, 8 - stop) == whole[stop:]


def test_the_state_of_another_loader_is_refused():
    state = smdl.SelectiveLoader([], Net(), keep=0.5).state_dict()
    with pytest.raises(ValueError, match=r"candidates Stream\(keep=0.5\), this one has Stream\(keep=0.25\)"):
        smdl.SelectiveLoader([], Net(), keep=0.25).load_state_dict(state)


def test_it_says_what_it_does():
    shown = repr(smdl.SelectiveLoader([], Net(), keep=0.5, method="uniform"))
    assert shown == "smdl.SelectiveLoader(list, method=uniform: Uniform; keep=0.5, seed=0)"
