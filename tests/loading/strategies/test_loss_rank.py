import copy
import io
from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch.nn import functional as F

import smdl
from smdl.loading.strategies.loss_rank import LossRank, ranks
from tests.toys import CASES, Net, Tuples, numbers_of, sgd, train

EVERY_3 = smdl.Full(3, replacement=True)
SHARPEST = 1e300  # the first rank is drawn, and no other


def probabilities(n: int, pressure: float) -> np.ndarray:
    """p_i ∝ 1 / exp(ln(s_e) / N)^i, i = 1..N."""
    powers = 1 / np.exp(np.log(pressure) / n) ** np.arange(1, n + 1)
    return powers / powers.sum()


def constant(pressure: float, **options) -> LossRank:
    return LossRank(pressure, pressure, **options)


def prepared(strategy: LossRank, samples: int, epochs: int | None = None) -> LossRank:
    strategy.prepare(samples, epochs)
    return strategy


def warmed(strategy: LossRank, losses: np.ndarray, epochs: int | None = None) -> LossRank:
    """After the plain pass, every loss known."""
    n = len(losses)
    strategy.prepare(n, epochs)
    strategy.select(None, np.arange(n), n, np.random.default_rng(0))
    strategy.observe(np.arange(n), losses)
    return strategy


def draw(strategy: LossRank, n: int, size: int, seed: int = 1) -> np.ndarray:
    return strategy.select(None, np.arange(n), size, np.random.default_rng(seed)).indices


@pytest.mark.parametrize("pressure", [1, 1.001, 2, 100, 1e8])
def test_draws_follow_the_exponential_of_the_rank(pressure):
    n, draws = 30, 60_000
    losses = np.random.default_rng(3).permutation(n).astype(float)
    strategy = warmed(constant(pressure), losses)
    counts = np.bincount(draw(strategy, n, draws), minlength=n)[np.argsort(-losses)]
    expected = probabilities(n, pressure) * draws
    often = expected >= 5
    pooled = [np.append(values[often], values[~often].sum()) for values in (counts, expected)]
    seen, wanted = (values if values[-1] > 0 else values[:-1] for values in pooled)
    assert chisquare(seen, wanted).pvalue > 1e-3


@given(n=st.integers(1, 200), pressure=st.sampled_from([1, 1 + 1e-9, 1.5, 100, 1e8, SHARPEST]), data=st.data())
def test_ranks_are_the_inverse_of_the_cumulative_probability(n, pressure, data):
    ends = np.cumsum(probabilities(n, pressure))
    starts = np.concatenate([[0.0], ends[:-1]])
    visible = ends - starts > 1e-6
    assert ranks(((starts + ends) / 2)[visible], n, pressure).tolist() == np.flatnonzero(visible).tolist()
    uniform = np.array(data.draw(st.lists(st.floats(0, 1, exclude_max=True), max_size=20)))
    drawn = ranks(uniform, n, pressure)
    assert ((drawn >= 0) & (drawn < n)).all()


def test_pressure_is_how_much_likelier_the_first_rank_is():
    p = np.bincount(ranks((np.arange(10**6) + 0.5) / 10**6, 50, 100.0), minlength=50)
    assert p[0] / p[-1] == pytest.approx(100 ** (49 / 50), rel=0.01)


def test_pressure_decays_from_epoch_to_epoch():
    strategy = prepared(LossRank(100.0, 1.0), 30, epochs=10)
    assert strategy.pressure(0) == 100
    assert strategy.pressure(5) == pytest.approx(10)
    assert strategy.pressure(10) == strategy.pressure(25) == 1
    assert constant(7.0).pressure(3) == prepared(constant(7.0), 30, epochs=5).pressure(3) == 7


def test_the_decay_is_felt_epoch_by_epoch():
    n = 40
    strategy = warmed(LossRank(SHARPEST, 1.0), np.arange(n), epochs=2)
    for batch in range(4):
        assert set(draw(strategy, n, 10, seed=batch)) == {n - 1}, "constant within the epoch"
    assert len(set(draw(strategy, n, 40))) > 15, "the third epoch is uniform"


def test_the_first_epoch_is_one_plain_pass():
    for size in (3, 4, 12):
        strategy = prepared(constant(SHARPEST), 12)
        seen = []
        for step in range(0, 12, size):
            batch = draw(strategy, 12, size, seed=step)
            strategy.observe(batch, np.arange(size, dtype=float))
            seen += batch.tolist()
        assert sorted(seen) == list(range(12))
        assert seen != sorted(seen)


def test_a_batch_across_the_end_of_the_pass_is_part_pass_part_draw():
    strategy = prepared(constant(SHARPEST), 10)
    first = draw(strategy, 10, 7)
    strategy.observe(first, np.zeros(7))
    second = draw(strategy, 10, 7)
    assert sorted([*first, *second[:3]]) == list(range(10))
    assert len(second) == 7
    assert set(second[3:]) < set(second[:3]), "their losses are not known yet"


def test_unknown_losses_rank_first():
    strategy = warmed(constant(SHARPEST), np.full(6, 1e9))
    strategy._losses[4] = np.inf  # as before it was ever trained on
    assert set(draw(strategy, 6, 5)) == {4}


def test_samples_are_sorted_again_only_after_so_many():
    strategy = warmed(constant(SHARPEST, sort_every=6), np.array([5.0, 1, 1, 1]))
    seen = []
    for _ in range(5):
        batch = draw(strategy, 4, 2)
        strategy.observe(np.array([0, 2]), np.array([0.0, 9.0]))
        seen.append(set(batch.tolist()))
    assert seen == [{0}, {0}, {0}, {2}, {2}]


def test_recomputed_losses_take_the_place_of_what_training_told():
    strategy = warmed(constant(SHARPEST, recompute=True), np.array([5.0, 1, 1, 1]))
    assert set(draw(strategy, 4, 2)) == {0}
    losses = torch.tensor([0.0, 0, 0, 3])
    pool = smdl.Pool(torch.rand(4, 2), losses=losses)
    assert set(strategy.select(pool, np.arange(4), 2, np.random.default_rng(0)).indices) == {3}
    assert set(draw(strategy, 4, 2)) == {3}
    strategy.observe(np.array([3]), np.array([-1.0]))
    assert losses[3] == 3, "the pool is not written to"


def test_a_saved_state_goes_on_with_the_same_draws():
    strategy = warmed(constant(100.0, sort_every=5), np.random.default_rng(0).random(20))
    draw(strategy, 20, 3)
    strategy.observe(np.array([1]), np.array([7.0]))
    file = io.BytesIO()
    torch.save(strategy.state_dict(), file)
    file.seek(0)
    resumed = prepared(constant(100.0, sort_every=5), 20)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for seed in range(5):
        assert draw(strategy, 20, 3, seed).tolist() == draw(resumed, 20, 3, seed).tolist()
        for each in (strategy, resumed):
            each.observe(np.array([seed]), np.array([10.0 + seed]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pressure": 0.5}, r"pressure must be a number ≥ 1 \(1 is uniform\), got 0.5"),
        ({"pressure": float("nan")}, "pressure must be a number ≥ 1"),
        ({"final_pressure": 0.0}, "final_pressure must be a number ≥ 1 .* got 0.0"),
        ({"sort_every": 0}, "sort_every must be a whole number ≥ 1, got 0"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LossRank(**options)


def test_a_decay_needs_the_length_of_the_run():
    with pytest.raises(ValueError, match="a pressure that decays from 100 to 1 needs epochs=, the length of the run"):
        LossRank().prepare(30, None)
    constant(100).prepare(30, None)


def test_an_epoch_of_the_loader_is_n_draws_the_first_a_plain_pass():
    data, model = Tuples(30), Net()
    loader = smdl.DataLoader(data, model, 4, method="loss", epochs=3)
    seen = train(loader, model, sgd(model), 3 * len(loader))
    epochs = [[*chain(*seen[start : start + 8])] for start in (0, 8, 16)]
    assert [len(epoch) for epoch in epochs] == [30, 30, 30]
    assert sorted(epochs[0]) == list(range(30))
    assert len(set(epochs[1])) < 30, "with replacement"


def test_each_batch_is_drawn_with_the_losses_of_the_one_before():
    n = 12
    loader = smdl.DataLoader(Tuples(n), Net(), 2, method=constant(SHARPEST, sort_every=1))
    for _ in loader:
        loader.observe(numbers_of(loader) + 1.0)
    hardest = n - 1
    for _ in loader:
        assert set(numbers_of(loader)) == {hardest}
        loader.observe(np.zeros(2))
        hardest -= 1


def known(loader: smdl.DataLoader) -> np.ndarray:
    assert isinstance(loader.strategy, LossRank)
    return loader.strategy._losses


def test_training_tells_the_losses_by_itself():
    data, model = Tuples(30), Net(dropout=0.5)
    loader = smdl.DataLoader(data, model, 4, method="loss", epochs=3)
    for _, (x, y) in zip(range(3), loader, strict=False):
        logits = model(x)
        losses = F.cross_entropy(logits, y, reduction="none")
        losses.mean().backward()
        loader.state_dict()  # takes what was observed so far
        assert known(loader)[numbers_of(loader)].tolist() == losses.double().tolist()
    assert np.isfinite(known(loader)).sum() == 12
    assert all(weight.grad is not None for weight in model.parameters())


@pytest.mark.parametrize("kind", ["no_grad", "copy", "other rows", "no logits"])
def test_only_forwards_that_train_the_model_on_the_batch_are_heard(kind):
    data, model = Tuples(30), Net()
    loader = smdl.DataLoader(data, model, 4, method="loss", epochs=3)
    iterator = iter(loader)
    x, _ = next(iterator)
    if kind == "no_grad":
        with torch.no_grad():
            model(x)
    elif kind == "copy":
        copy.deepcopy(model)(x)
    elif kind == "other rows":
        model(data.x[:4] + 1)
    else:
        model.forward = lambda x: x.mean()  # type: ignore[method-assign]
        model(x)
    assert np.isinf(known(loader)).all()
    with pytest.warns(
        UserWarning, match=r"method loss needs the training losses and got none for this batch.* Call loader.observe"
    ):
        next(iterator)


def test_losses_can_be_told_by_hand():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, method="loss", epochs=3)
    for step, _ in enumerate(loader):  # a warning would be an error
        loader.observe(torch.full((len(numbers_of(loader)),), float(step), requires_grad=True))
        assert (known(loader)[numbers_of(loader)] == step).all()
        with pytest.raises(ValueError, match=r"losses must be one per sample of the batch, \d, got shape \(9,\)"):
            loader.observe(np.zeros(9))


def test_recomputing_scores_all_of_v_at_each_refresh():
    data, model = Tuples(30), Net()
    loader = smdl.DataLoader(data, model, 4, method=constant(SHARPEST, recompute=True), candidates=EVERY_3)
    train(loader, model, sgd(model), 8)
    assert loader.forwards == 3 * 30
    for step, _ in enumerate(loader):
        if step % 3 == 0:
            with torch.no_grad():
                losses = F.cross_entropy(copy.deepcopy(model).eval()(data.x), data.y, reduction="none")
            assert set(numbers_of(loader)) == {int(losses.argmax())}
        with torch.no_grad():
            model.head.weight.mul_(-1.5)
        loader.observe(np.zeros(len(numbers_of(loader))))


class Precious(Tuples):
    def __reduce__(self):
        raise AssertionError("the data was copied along with the model")


@pytest.mark.parametrize("end", ["epoch", "break", "error"])
def test_the_model_is_listened_to_only_while_iterating(end):
    model, x = Net(), torch.zeros(4, 4)
    loader = smdl.DataLoader(Precious(30), model, 4, **CASES["loss"])
    with pytest.raises(ZeroDivisionError) if end == "error" else pytest.MonkeyPatch.context():
        for x, _ in loader:
            model(x)
            assert len(model._forward_hooks) == 1
            torch.save(model, io.BytesIO())
            copy.deepcopy(model)
            if end == "break":
                break
            if end == "error":
                raise ZeroDivisionError
    before = known(loader).copy()
    model(x)
    loader.state_dict()
    assert np.array_equal(known(loader), before), "not between two iterations"
    del loader
    assert len(model._forward_hooks) == 0


def test_a_batch_forwarded_in_parts_is_heard_as_a_whole():
    """Gradient accumulation over micro-batches."""
    loader = smdl.DataLoader(Tuples(30), model := Net(), 10, method="loss", epochs=3)
    for x, y in loader:
        losses = [
            torch.nn.functional.cross_entropy(model(x[part]), y[part], reduction="none")
            for part in (slice(0, 4), slice(4, 8), slice(8, 10))
        ]
        loader.state_dict()  # takes what was observed so far
        assert loader.selection is not None
        assert np.allclose(known(loader)[loader.selection.indices], torch.cat(losses).detach().numpy())
