"""Observed: features of the training forward, a fresh head, batches chosen ahead."""

import copy
import warnings
from itertools import chain

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import nn
from torch.nn import functional as F

import smdl
from smdl.scoring import feature_cache, row_matching
from smdl.scoring.feature_cache import FeatureCache
from smdl.scoring.scorer import Scorer
from tests.toys import CLASSES, Net, Recorder, Tuples, epoch_of, forwarded, numbers_of, sgd, train

EXACT = {"lag": 0, "dtype": "float32"}


def frozen() -> Net:
    """A model whose forward is the same in training and in scoring."""
    return Net().eval()


def cache_of(loader: smdl.DataLoader) -> FeatureCache:
    source = loader.candidates
    assert isinstance(source, smdl.Observed)
    assert source._cache is not None
    return source._cache


def test_without_training_it_chooses_what_fresh_scores_choose():
    """At learning rate 0, with a float32 cache and no lag: the same pools, the same scores, the same picks."""
    model = frozen()
    observed = smdl.DataLoader(Tuples(60), model, 4, candidates=smdl.Observed(**EXACT), seed=3)
    fresh = smdl.DataLoader(Tuples(60), model, 4, method="fresh", seed=3)
    assert sorted(chain(*epoch_of(observed))) == list(range(60)), "the first epoch is a plain pass"
    fresh.set_epoch(1)
    for _ in range(2):
        assert epoch_of(observed) == epoch_of(fresh)
    assert observed.forwards == 0
    assert fresh.forwards > 0


@pytest.mark.parametrize("lag", [0, 1, 3, 20])
def test_a_batch_is_chosen_with_the_head_of_lag_steps_before(lag):
    """Recompute each choice from the features of the last training forward and from the head of that moment."""
    data, model, strategy = Tuples(32), Net(), Recorder()
    loader = smdl.DataLoader(data, model, 4, method=strategy, candidates=smdl.Observed(lag=lag, dtype="float32"))
    optimizer, features, heads = sgd(model), torch.zeros(32, 6), []
    source, steps = loader.candidates, len(loader)
    chosen = {}

    def choose(epoch, rows, step, original=source._choose):  # type: ignore[attr-defined]
        selection = original(epoch, rows, step)
        if epoch.number > 0:
            pool, now = strategy.pool, len(heads)
            weights, bias = heads[-1] if heads else (model.head.weight, model.head.bias)
            assert torch.allclose(pool.features, features[rows])
            logits = F.linear(features[rows], weights, bias)
            assert torch.allclose(pool.probabilities, logits.softmax(1), atol=1e-6)
            chosen[epoch.number * steps + step] = now
        return selection

    source._choose = choose  # type: ignore[attr-defined]
    model.body.register_forward_hook(lambda *args: taken.append(args[2].detach().clone()))
    taken: list[torch.Tensor] = []
    for epoch in range(3):
        for step, (x, y) in enumerate(loader):
            if epoch > 0:
                age = len(heads) - chosen[epoch * steps + step]
                assert loader.staleness == age == min(step, lag)
            taken.clear()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            features[numbers_of(loader)] = taken[-1]
            heads.append((model.head.weight.detach().clone(), model.head.bias.detach().clone()))


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_workers_change_nothing(lag):
    runs = []
    for workers in (0, 1, 2):
        model = Net()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if workers > lag else "error")
            loader = smdl.DataLoader(Tuples(40), model, 4, candidates=smdl.Observed(lag=lag), num_workers=workers)
        runs.append(train(loader, model, sgd(model), 25))
    assert runs[0] == runs[1] == runs[2]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_by_default_as_many_batches_are_chosen_ahead_as_there_are_workers(workers):
    loader = smdl.DataLoader(Tuples(40), Net(), 4, method="observed", num_workers=workers)
    assert isinstance(loader.candidates, smdl.Observed)
    assert loader.candidates.lag == workers
    seen = []
    for batch in loader:
        forwarded(loader, batch)
        seen.append(loader.staleness)
    assert seen == [min(step, workers) for step in range(10)]


def test_more_workers_than_batches_known_ahead_are_not_started():
    with pytest.warns(UserWarning, match=r"num_workers is 3 and only 2 batches are known in advance: 2 workers are st"):
        smdl.DataLoader(Tuples(40), Net(), 4, candidates=smdl.Observed(lag=2), num_workers=3)


def test_only_the_samples_that_are_trained_on_are_read():
    data, model = Tuples(40), Net()
    loader = smdl.DataLoader(data, model, 4, candidates=smdl.Observed(lag=2))
    seen = train(loader, model, sgd(model), 30)
    assert data.reads == [*chain(*seen)]
    assert loader.forwards == 0


def test_random_picks_are_plain_sgd():
    """Every sample equally often, in every position: what uniform sampling gives."""
    counts, model = np.zeros(30), frozen()
    loader = smdl.DataLoader(Tuples(30), model, 5, method="uniform", candidates=smdl.Observed(3), seed=1)
    next_epochs = [epoch_of(loader) for _ in range(151)][1:]
    for batches in next_epochs:
        for batch in batches:
            assert len(set(batch)) == 5
            counts[batch] += 1
    assert counts.sum() == 150 * 30
    assert chisquare(counts).pvalue > 1e-3


def test_selection_starts_after_the_plain_epochs():
    loader = smdl.DataLoader(Tuples(40), frozen(), 4, candidates=smdl.Observed(start=3))
    for epoch in range(5):
        seen = [*chain(*epoch_of(loader))]
        assert (sorted(seen) == list(range(40))) == (epoch < 3)


def test_samples_never_seen_come_first():
    """Half of the forwards of the first epoch are hidden from the hooks."""
    data, model = Tuples(40), frozen()
    loader = smdl.DataLoader(data, model, 4, candidates=smdl.Observed(3, lag=0))
    unseen: set[int] = set(range(40))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step, (x, _) in enumerate(loader):
            if step % 2:
                model(x)
                unseen -= set(numbers_of(loader))
    assert len(unseen) == 20
    pools = deque_of_pools(loader)
    for (x, _), pool in zip(loader, pools, strict=True):
        model(x)
        rows = numbers_of(loader)
        due = [row for row in pool if row in unseen]
        assert rows[: len(due)].tolist() == due[: len(rows)]
        unseen -= set(rows.tolist())


def deque_of_pools(loader: smdl.DataLoader) -> list[np.ndarray]:
    return loader.candidates._pools(loader.new_epoch())  # type: ignore[attr-defined]


def test_the_features_of_the_cache_are_those_of_the_last_training_forward():
    data, model = Tuples(40), Net(dropout=0.3)
    loader = smdl.DataLoader(data, model, 4, candidates=smdl.Observed(dtype="float32"), num_workers=2)
    optimizer, latest = sgd(model), torch.zeros(40, 6)
    model.body.register_forward_hook(lambda *args: taken.append(args[2].detach().clone()))
    taken: list[torch.Tensor] = []
    for _ in range(3):
        for x, y in loader:
            taken.clear()
            for part in (slice(0, 2), slice(2, 4)):  # gradient accumulation
                F.cross_entropy(model(x[part]), y[part]).backward()
            latest[numbers_of(loader)] = torch.cat(taken)
            optimizer.step()
            optimizer.zero_grad()
    state = loader.state_dict()["candidates"]["cache"]
    assert torch.equal(state["features"], latest)
    assert torch.equal(state["targets"], data.y)
    assert bool(state["seen"].all())


class TwoLayers(nn.Module):
    """A head that is no single linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 6), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, CLASSES))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


class Cosine(nn.Linear):
    """A head that does more than its weights say."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002
        return 10 * F.linear(F.normalize(input), F.normalize(self.weight))


def hooked() -> nn.Linear:
    """A linear head whose output a hook changes."""
    head = nn.Linear(6, CLASSES)
    head.register_forward_hook(lambda _, __, output: 3 * output + torch.arange(CLASSES))
    return head


def elsewhere() -> nn.Linear:
    """A linear head whose weight is there during the forward alone, as some libraries keep it."""
    head = nn.Linear(6, CLASSES)
    whole = head.weight.data.clone()
    head.register_forward_pre_hook(lambda *_: setattr(head.weight, "data", whole))
    head.register_forward_hook(lambda *_: setattr(head.weight, "data", torch.empty(0)))
    return head


@pytest.mark.parametrize(
    "head", [lambda: Cosine(6, CLASSES), hooked, elsewhere], ids=["subclass", "hook", "sharded weight"]
)
def test_a_head_that_is_more_than_a_linear_layer_keeps_its_logits(head):
    model, strategy = Net().eval(), Recorder()
    model.head = head()
    loader = smdl.DataLoader(Tuples(40), model, 4, method=strategy, candidates=smdl.Observed(**EXACT))
    epoch_of(loader)
    (pool, *_), _ = deque_of_pools(loader), next(iter(loader))
    with torch.no_grad():
        wanted = model(loader.dataset.x[pool]).softmax(1)  # type: ignore[attr-defined]
    assert torch.allclose(strategy.pool.probabilities, wanted, atol=1e-6)


@pytest.mark.parametrize("given", [True, False], ids=["head=", "cached probabilities"])
def test_a_head_of_several_layers(given):
    model, strategy = TwoLayers(), Recorder()
    options = {"head": model.head} if given else {}
    loader = smdl.DataLoader(
        Tuples(40),
        model,
        4,
        method=strategy,
        candidates=smdl.Observed(**EXACT),
        scoring=smdl.Scoring(features="body", **options),
    )
    epoch_of(loader)
    old = model.body(loader.dataset.x), model(loader.dataset.x).softmax(1)  # type: ignore[attr-defined]
    with torch.no_grad():
        list(model.head.parameters())[2].mul_(-1.0)
    new = model(loader.dataset.x).softmax(1)  # type: ignore[attr-defined]
    (pool, *_), _ = deque_of_pools(loader), next(iter(loader))
    assert torch.allclose(strategy.pool.features, old[0][pool], atol=1e-6)
    assert torch.allclose(strategy.pool.probabilities, (new if given else old[1])[pool], atol=1e-6)
    assert not torch.allclose(new, old[1], atol=1e-2)


@pytest.mark.parametrize("observe", ["auto", "manual"])
def test_a_loop_that_changes_its_inputs_says_so_or_observes_by_hand(observe):
    data, model = Tuples(40), frozen()
    loader = smdl.DataLoader(data, model, 4, candidates=smdl.Observed(lag=0, observe=observe, dtype="float32"))
    iterator = iter(loader)
    x, _ = next(iterator)
    changed = x.flip(1)
    features = model.body(changed)
    logits = model(changed)
    if observe == "auto":
        with pytest.warns(UserWarning, match=r"got none for this batch.* inputs are changed .* Call loader.observe\(f"):
            next(iterator)
        return
    rows = torch.tensor([2, 0, 3, 1])
    loader.observe(features=features[rows], logits=logits[rows], rows=rows)
    next(iterator)
    state = loader.state_dict()["candidates"]["cache"]
    seen = state["seen"].nonzero()[:, 0]
    assert len(seen) == 4
    assert torch.allclose(state["outputs"][seen].sum(0), logits.sum(0), atol=1e-5), "the head is not known by itself"


def test_inputs_that_change_in_the_last_batch_are_noticed_too():
    model = frozen()
    iterator = iter(smdl.DataLoader(Tuples(12), model, 4, candidates=smdl.Observed(lag=0)))
    for _ in range(2):
        model(next(iterator)[0])
    model(next(iterator)[0].flip(1))
    with pytest.warns(UserWarning, match="got none for this batch"), pytest.raises(StopIteration):
        next(iterator)


@pytest.mark.parametrize("method", ["observed", "loss"])
@pytest.mark.parametrize("device", ["cpu", "another"])
def test_samples_that_were_not_recognised_are_counted_and_that_is_said_once(monkeypatch, method, device):
    if device == "another":  # do as if it were one that must be waited for
        monkeypatch.setattr(row_matching, "AT_ONCE", ())
    model = Net()
    loader = smdl.DataLoader(Tuples(40), model, 8, method=method, epochs=3)
    told, left_out = [], [0]
    for epoch in range(3):
        left_out.append(left_out[-1])
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for step, (x, y) in enumerate(loader):
                rows = 8 if epoch == 0 or step == 4 else 3  # the loop leaves out most rows of some batches
                F.cross_entropy(model(x[:rows].clone()), y[:rows]).backward()
                drawn = loader.selection.indices  # type: ignore[union-attr]
                left_out[-1] += int((~np.isin(drawn, drawn[:rows])).sum())  # the method loss draws some twice
        told += [str(warning.message) for warning in caught if "recognised" in str(warning.message)]
        assert loader.unobserved == left_out[-1]
    assert left_out[1] == 0 < left_out[2]
    assert len(told) == 1
    assert told[0].startswith(f"{left_out[2]} of 80 samples that were trained on were not recognised in a forward")


def test_nothing_is_counted_where_nothing_is_needed_or_all_is_observed_by_hand():
    model = Net()
    plain = smdl.DataLoader(Tuples(40), model, 4, method="uniform")
    assert len(list(plain)) == 10
    assert plain.unobserved == 0
    loader = smdl.DataLoader(Tuples(40), model, 4, method="loss", epochs=2)
    for _ in loader:
        loader.observe(torch.ones(4))
    assert loader.unobserved == 0


def test_manual_observation_without_a_call_is_a_warning():
    iterator = iter(smdl.DataLoader(Tuples(40), Net(), 4, candidates=smdl.Observed(observe="manual")))
    next(iterator)
    with pytest.warns(UserWarning, match="needs the features of the training forward and got none"):
        next(iterator)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "needs both features and logits"),
        ({"features": torch.zeros(4, 6)}, "needs both features and logits"),
        (
            {"features": torch.zeros(3, 6), "logits": torch.zeros(4, 3)},
            "features must have one row per sample, 4, got 3",
        ),
        ({"features": torch.zeros(4, 6), "logits": torch.zeros(5, 3)}, "logits must have one row per sample, 4, got 5"),
        ({"features": torch.zeros(4), "logits": torch.zeros(4, 3)}, "features must have two dimensions"),
        ({"features": torch.full((4, 6), torch.nan), "logits": torch.zeros(4, 3)}, "features must be finite"),
        (
            {"features": torch.zeros(1, 6), "logits": torch.zeros(1, 3), "rows": [4]},
            r"rows must be places in the current batch, 0..3, got \[4\]",
        ),
    ],
)
def test_wrong_observations_are_refused(given, message):
    loader = smdl.DataLoader(Tuples(40), Net(), 4, candidates=smdl.Observed(observe="manual"))
    next(iter(loader))
    with pytest.raises(ValueError, match=message):
        loader.observe(**given)


def test_rescoring_renews_the_oldest_features_of_the_next_pool():
    data, model = Tuples(60), frozen()
    loader = smdl.DataLoader(data, model, 4, candidates=smdl.Observed(3, lag=1, rescore=0.5, dtype="float32"))
    epoch_of(loader)
    with torch.no_grad():
        next(model.body.parameters()).mul_(2.0)  # every feature that is kept is old now
    old = loader.state_dict()["candidates"]["cache"]["features"]
    data.reads.clear()
    for step, batch in enumerate(loader):
        forwarded(loader, batch)
        if step == 0:
            break
    now = loader.state_dict()["candidates"]["cache"]["features"]
    renewed = (now != old).any(dim=1).nonzero()[:, 0].tolist()
    assert loader.forwards == 2
    assert sorted(renewed) == sorted({*data.reads})
    assert len(data.reads) == 6, "a batch, and half a batch to rescore"
    with torch.no_grad():
        assert torch.allclose(now[renewed], model.body(data.x[renewed]), atol=1e-6)


def test_a_sketch_keeps_inner_products_within_a_few_per_cent():
    """The relative error of ‖x − y‖² is about √(2/k): 9 % for 256 projections."""
    generator = torch.Generator().manual_seed(0)
    features, labels = torch.randn(200, 2048, generator=generator), torch.zeros(200, dtype=torch.int64)
    cache = FeatureCache(200, "float32", "cpu", 256)
    found = torch.ones(200, dtype=torch.bool)
    scorer = Scorer(Net())
    cache.write(scorer, np.arange(200), found, features, torch.zeros(200, 3), labels)
    kept = cache.scores(scorer, np.arange(200))
    assert kept is not None
    ratio = torch.pdist(kept[0].features) / torch.pdist(features)
    assert abs(float(ratio.square().mean()) - 1) < 0.02
    assert 0.05 < float(ratio.square().std()) < 0.12


def test_a_large_cache_is_announced(monkeypatch):
    monkeypatch.setattr(feature_cache, "ANNOUNCED", 400)
    model = Net()
    with pytest.warns(UserWarning, match=r"will keep 6 numbers for each of 40 samples: 0.0 GB. .* sketch=256"):
        epoch_of(smdl.DataLoader(Tuples(40), model, 4, method="observed"))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_numbers_too_large_for_the_type_become_its_largest(dtype):
    cache, scorer = FeatureCache(2, dtype, "cpu", None), Scorer(Net())
    features = torch.tensor([[1e39, -1e39, 1.0], [0.0, 1.0, 2.0]], dtype=torch.float64).float()
    found, labels = torch.ones(2, dtype=torch.bool), torch.zeros(2, dtype=torch.int64)
    cache.write(scorer, np.arange(2), found, features, torch.zeros(2, 3), labels)
    state = cache.state_dict()
    assert bool(state["features"].isfinite().all())
    assert state["features"][1].tolist() == [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("dtype", "largest", "told"), [("float16", 1.7e9, 1), ("float16", 6e4, 0), ("float32", 1e9, 0)]
)
def test_features_beyond_float16_are_told_once_with_the_remedy(dtype, largest, told):
    cache, scorer, labels = FeatureCache(2, dtype, "cpu", None), Scorer(Net()), torch.zeros(2, dtype=torch.int64)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            cache.write(scorer, np.arange(2), None, largest * torch.eye(2, 6), torch.zeros(2, 3), labels)
            cache.scores(scorer, np.arange(2))
    assert sum('use smdl.Observed(dtype="float32")' in str(each.message) for each in caught) == len(caught) == told


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["cache"].update(features=s["cache"]["features"][:20]), "feature cache: features must be"),
        (lambda s: s["cache"].update(features=s["cache"]["features"].double()), "must be torch.float16 with 40 rows"),
        (lambda s: s["cache"].update(seen=None), "feature cache: seen must be torch.bool .* got NoneType"),
        (lambda s: s["cache"].pop("targets"), "targets missing"),
        (lambda s: s["cache"].update(targets=torch.zeros(3)), "feature cache: targets must be .* 40 rows"),
        (lambda s: s.update(observed_at=torch.zeros(3, dtype=torch.int64)), "observed_at must be 40 whole numbers"),
        (lambda s: s["window"][0].update(step=-1), "a planned batch: step must be a whole number"),
        (lambda s: s["window"][0]["indices"].fill_(40), "indices in 0..39"),
        (lambda s: s["window"][0].update(rescored=torch.tensor([40])), "rescored must be indices in 0..39"),
    ],
)
def test_a_damaged_state_is_refused_and_changes_nothing(change, message):
    loader = smdl.DataLoader(Tuples(40), model := Net(), 4, candidates=smdl.Observed(lag=4), seed=2)
    train(loader, model, sgd(model), 13)
    state = copy.deepcopy(loader.state_dict())
    before = copy.deepcopy(state)
    change(state["candidates"])
    with pytest.raises((ValueError, TypeError), match=message):
        loader.load_state_dict(state)
    after = loader.state_dict()["candidates"]
    assert torch.equal(after["cache"]["features"], before["candidates"]["cache"]["features"])
    assert [one["step"] for one in after["window"]] == [one["step"] for one in before["candidates"]["window"]]


def test_the_scoring_dataset_is_refused_because_nothing_is_scored():
    with pytest.raises(ValueError, match="scoring_dataset has no effect with candidates=Observed"):
        smdl.DataLoader(Tuples(40), Net(), 4, method="observed", scoring_dataset=Tuples(40))


def test_features_from_a_callable_cannot_be_observed():
    how = smdl.Scoring(features=lambda _, batch: batch[0])
    loader = smdl.DataLoader(Tuples(40), Net(), 4, method="observed", scoring=how)
    with pytest.raises(ValueError, match="features= is a callable, so a training forward does not show its features"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"factor": 0.5}, ValueError, "factor must be a number ≥ 1, got 0.5"),
        ({"lag": -1}, ValueError, "lag must be a whole number ≥ 0, got -1"),
        ({"lag": 1.5}, TypeError, "lag must be a whole number ≥ 0, got 1.5"),
        ({"start": None}, TypeError, "start must be a whole number"),
        ({"rescore": -0.1}, ValueError, "rescore must be a number ≥ 0, got -0.1"),
        ({"dtype": "int8"}, ValueError, "unknown dtype 'int8'"),
        ({"device": "disk"}, ValueError, "unknown device 'disk'"),
        ({"sketch": 0}, ValueError, "sketch must be a whole number ≥ 1, got 0"),
        ({"observe": "never"}, ValueError, "unknown observe 'never'"),
    ],
)
def test_bad_options_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        smdl.Observed(**options)


def test_scores_of_the_cache_are_those_of_the_head_now():
    model, data = frozen(), Tuples(30)
    cache, scorer = FeatureCache(30, "float32", "model", None), Scorer(model)
    scorer.find_tap((data.x, data.y))
    with torch.no_grad():
        features = model.body(data.x)
    cache.write(scorer, np.arange(30), torch.ones(30, dtype=torch.bool), features, model(data.x).detach(), data.y)
    with torch.no_grad():
        model.head.weight.add_(0.5)
    fresh, found = scorer((data.x, data.y)), cache.scores(scorer, np.arange(30))
    assert found is not None
    assert fresh.errors is found[0].errors is None, "they follow from the probabilities"
    for one, other in zip(found[0][:4], fresh[:4], strict=True):
        assert torch.allclose(one, other, atol=1e-6)


class Shuffled(Net):
    """Computes its rows in a random order while it is trained."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        order = torch.randperm(len(x)) if self.training else torch.arange(len(x))
        return super().forward(x[order])[order.argsort()]


def test_a_model_that_shuffles_its_rows_is_told_once_and_nothing_is_kept():
    model = Shuffled()
    loader = smdl.DataLoader(Tuples(40), model, 4, candidates=smdl.Observed(lag=0))
    with pytest.warns(UserWarning, match="rows inside Shuffled are in another order .* batches are random") as told:
        train(loader, model, sgd(model), 25)
    assert len(told) == 1
    assert not bool(loader.state_dict()["candidates"]["cache"]["seen"].any())


class Adapted(Net):
    """A frozen head with an adapter, which adds nothing at first."""

    def __init__(self) -> None:
        super().__init__()
        self.adapter = nn.Linear(6, CLASSES, bias=False)
        nn.init.zeros_(self.adapter.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        features = self.body(x)
        return self.head(features) + self.adapter(features)


def test_a_head_that_is_no_longer_the_linear_layer_is_told_once_and_outputs_are_kept():
    model, data = Adapted().eval(), Tuples(40)
    loader, optimizer = smdl.DataLoader(data, model, 4, candidates=smdl.Observed(**EXACT)), sgd(model)
    with pytest.warns(UserWarning, match="outputs of Adapted are not those of its last linear layer alone") as told:
        train(loader, model, optimizer, 20)
    assert len(told) == 1
    for x, _ in loader:
        model(x)
    seen = loader.state_dict()["candidates"]["cache"]["seen"].numpy().nonzero()[0]
    latest = loader.selection.indices  # type: ignore[union-attr]
    found = cache_of(loader).scores(loader.scorer, latest)
    assert found is not None
    assert len(seen) > 20
    assert torch.allclose(found[0].probabilities, model(data.x[latest]).softmax(1), atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm`")
def test_a_weight_that_is_computed_in_each_forward_is_not_applied():
    """Between a step of the optimizer and the next forward, `weight` is an old one."""
    model = Net().eval()
    model.head = nn.utils.weight_norm(model.head)
    loader = smdl.DataLoader(Tuples(40), model, 4, candidates=smdl.Observed(**EXACT))
    epoch_of(loader)
    assert loader.state_dict()["candidates"]["cache"]["outputs"] is not None


def test_a_single_linear_layer_is_observed():
    data = Tuples(40)
    model = nn.Linear(4, CLASSES)
    loader = smdl.DataLoader(data, model, 4, candidates=smdl.Observed(**EXACT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(loader, model, sgd(model), 30)  # type: ignore[arg-type]
    state = loader.state_dict()["candidates"]["cache"]
    assert bool(state["seen"].all())
    assert torch.equal(state["features"], data.x)


class Indexed(Tuples):
    """A number of each sample beside its input and its label."""

    def __getitem__(self, row: int) -> dict[str, object]:
        x, y = super().__getitem__(row)
        return {"idx": row, "x": x, "label": y}


class Labelled(Net):
    """Takes the labels too."""

    def forward(self, x: torch.Tensor, label: torch.Tensor | None = None) -> torch.Tensor:  # noqa: ARG002
        return super().forward(x)


def test_forward_tells_which_columns_are_inputs():
    """The labels have the shape of `idx`, which the model does not get."""
    model = Labelled()
    loader = smdl.DataLoader(
        Indexed(40),
        model,
        4,
        candidates=smdl.Observed(lag=0),
        scoring=smdl.Scoring(forward=lambda model, batch: model(batch["x"])),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="an epoch has passed")
        for batch in loader:
            model(batch["x"].clone(), batch["label"].clone())
    assert bool(loader.state_dict()["candidates"]["cache"]["seen"].all())


class Noisy(Tuples):
    """A column of the shape of the inputs comes before them."""

    def __getitem__(self, row: int) -> tuple[torch.Tensor, ...]:
        x, y = super().__getitem__(row)
        return -x, x, y


def test_a_column_of_the_same_shape_before_the_inputs_changes_nothing():
    model = Net()
    loader = smdl.DataLoader(
        Noisy(40),
        model,
        4,
        candidates=smdl.Observed(lag=0),
        scoring=smdl.Scoring(targets=2, forward=lambda model, batch: model(batch[1])),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="an epoch has passed")
        for _, x, _ in loader:
            model(x.clone())
    assert bool(loader.state_dict()["candidates"]["cache"]["seen"].all())


def test_the_warning_names_the_columns_and_how_to_tell_the_inputs():
    model = Net()
    loader = smdl.DataLoader(
        Indexed(40),
        model,
        4,
        candidates=smdl.Observed(lag=0),
        scoring=smdl.Scoring(forward=lambda model, batch: model(batch["x"])),
    )
    iterator = iter(loader)
    model(next(iterator)["x"] + 1)
    with pytest.warns(UserWarning, match=r"recognised by 'x' of shape \(4, 4\): .* say what it gets with forward="):
        next(iterator)


@pytest.mark.parametrize("rows", [30, 50])
def test_a_dataset_that_changes_its_length_is_refused(rows):
    data, model = Tuples(40), Net()
    loader = smdl.DataLoader(data, model, 4)
    epoch_of(loader)
    data.x, data.y = data.x[:1].repeat(rows, 1), data.y[:1].repeat(rows)
    with pytest.raises(ValueError, match=f"the dataset has {rows} samples, and had 40 when the loader was made"):
        next(iter(loader))
