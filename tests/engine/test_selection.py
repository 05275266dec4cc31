import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine.plan import resolve_optimizer
from smdl.files.request import SelectRequest
from tests.conftest import objectives, pools

REDUNDANCY = smdl.Objective(redundancy=1.0)


def clustered(n: int = 400, d: int = 16) -> smdl.Pool:
    rng = np.random.default_rng(5)
    features = rng.random((12, d))[rng.integers(0, 12, n)] + 0.1 * rng.random((n, d))
    return smdl.Pool(
        features.astype(np.float32), rng.dirichlet(np.ones(4), n), rng.integers(0, 4, n), reference=features
    )


ALL = [
    smdl.Objective.paper(),
    smdl.Objective.gradients(),
    smdl.Objective(feature_coverage=1.0),
    smdl.Objective(facility_location=1.0, neighbours=9),
    smdl.Objective(log_determinant=0.5, class_balance=0.5, redundancy=0.2),
    smdl.Objective.paper(normalize="candidates"),
]


@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_the_result_depends_on_inputs_and_seed_alone(objective):
    picks = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        try:
            picks.append(
                smdl.select(clustered(), objective, 20, optimizer="stochastic", partitions=7, seed=3, threads=threads)
            )
        finally:
            torch.set_num_threads(1)
    for other in picks[1:]:
        assert other.indices.tolist() == picks[0].indices.tolist()
        assert other.gains.tolist() == picks[0].gains.tolist()
    again = smdl.select(clustered(), objective, 20, optimizer="stochastic", partitions=7, seed=(3, 1))
    assert again.indices.tolist() != picks[0].indices.tolist(), "another seed, another batch"


def test_the_batch_is_full_however_many_partitions_are_asked_for():
    pool = clustered(100)
    for partitions in (1, 2, 3, 50, 1000):
        for optimizer in ("naive", "lazy", "stochastic"):
            batch = smdl.select(pool, REDUNDANCY, 30, optimizer=optimizer, partitions=partitions)
            assert len(np.unique(batch.indices)) == 30


def test_every_seed_draws_other_partitions():
    pool = clustered()
    batches = {tuple(smdl.select(pool, REDUNDANCY, 5, partitions=8, seed=seed).indices) for seed in range(6)}
    assert len(batches) > 1


@pytest.mark.parametrize("objective", ALL, ids=repr)
def test_among_and_exclude_limit_the_choice_but_not_the_scores(objective):
    pool = clustered()
    few = np.arange(50, 90)
    batch = smdl.select(pool, objective, 20, among=few, exclude=torch.tensor([60, 61, 399]))
    assert set(batch.indices) <= set(few) - {60, 61}
    everything = smdl.select(pool, objective, 20, among=np.arange(400))
    assert everything.indices.tolist() == smdl.select(pool, objective, 20).indices.tolist()
    if objective.diminishing:
        assert smdl.evaluate(pool, objective, batch.indices).value == pytest.approx(batch.value, abs=1e-4)


@pytest.mark.parametrize("objective", [o for o in ALL if o.diminishing], ids=repr)
def test_adaptive_size_stops_where_the_gain_falls_below_the_penalty(objective):
    pool = clustered()
    whole = smdl.select(pool, objective, 40)
    penalty = float(whole.gains[15])
    batch = smdl.select(pool, objective, (3, 40), size_penalty=penalty)
    assert batch.indices.tolist() == whole.indices[whole.gains >= penalty].tolist()
    for optimizer in ("naive", "lazy", "stochastic"):
        assert len(smdl.select(pool, objective, (3, 40), size_penalty=1e9, optimizer=optimizer)) == 3
    assert len(smdl.select(pool, objective, (3, 40), size_penalty=-1.0, partitions=4)) == 40


@given(pool=pools(), objective=objectives(normalize="pool"), data=st.data())
def test_evaluate_gives_the_value_of_a_selection_and_splits_it_by_term(pool, objective, data):
    batch = smdl.select(pool, objective, data.draw(st.integers(1, len(pool))))
    result = smdl.evaluate(pool, objective, batch.indices)
    assert float(result) == pytest.approx(batch.value, abs=1e-6)
    assert sum(result.terms.values()) == pytest.approx(result.value)
    assert list(result.terms) == list(objective.weights)


def test_auto_follows_its_rule():
    location = smdl.Objective(facility_location=1.0, sample=20_000)
    assert resolve_optimizer("auto", REDUNDANCY, 50_000, 50_000, 50) == "lazy"
    assert resolve_optimizer("auto", REDUNDANCY, 10**8, 10**8, 1000) == "stochastic"
    assert resolve_optimizer("auto", smdl.Objective.paper(normalize="candidates"), 100, 100, 5) == "stochastic"
    assert resolve_optimizer("auto", location, 65_536, 65_536, 50) == "lazy"
    assert resolve_optimizer("auto", location, 65_537, 100, 50) == "subset"
    assert resolve_optimizer("auto", location.changed(normalize="candidates"), 70_000, 70_000, 50) == "stochastic"
    assert resolve_optimizer("auto", location.changed(uncertainty=0.1), 70_000, 70_000, 50) == "lazy"
    assert resolve_optimizer("auto", location.changed(sample=None, neighbours=9), 70_000, 70_000, 50) == "lazy"


def test_the_first_pick_is_drawn_by_lot_where_all_tie():
    pool = clustered(50)
    for optimizer in ("naive", "lazy", "stochastic"):
        first = {int(smdl.select(pool, REDUNDANCY, 2, optimizer=optimizer, seed=s).indices[0]) for s in range(60)}
        assert len(first) > 25
        alone = {int(smdl.select(pool, REDUNDANCY, 2, optimizer=optimizer, seed=s).gains[0]) for s in range(5)}
        assert alone == {1}


@pytest.mark.parametrize("space", ["features", "gradients"])
def test_facility_location_is_the_same_with_and_without_a_matrix(monkeypatch, space):
    objective = smdl.Objective(facility_location=1.0, uncertainty=0.1, space=space)
    dense = [smdl.select(clustered(), objective, 20, partitions=m) for m in (1, 3)]
    monkeypatch.setattr("smdl.engine.geometry.holds_matrix", lambda *_: False)
    free = [smdl.select(clustered(), objective, 20, partitions=m) for m in (1, 3)]
    for one, other in zip(dense, free, strict=True):
        assert one.indices.tolist() == other.indices.tolist()
        np.testing.assert_allclose(one.gains, other.gains, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 0}, "size must be a whole number ≥ 1, got 0"),
        ({"size": 11}, "size must be at most the 10 candidates, got 11"),
        ({"size": 5, "among": [1, 2, 3]}, "size must be at most the 3 candidates, got 5"),
        ({"size": (0, 3), "size_penalty": 0.1}, r"size must be .* 1 ≤ low ≤ high, got \(0, 3\)"),
        ({"size": (4, 3), "size_penalty": 0.1}, r"1 ≤ low ≤ high, got \(4, 3\)"),
        ({"size": (1, 3), "size_penalty": float("nan")}, "size_penalty must be a finite number where size is"),
        ({"size": 3, "size_penalty": 0.5}, "size must be .* where size_penalty is given, got 3"),
        ({"epsilon": 0.0}, r"epsilon must be a number in \(0, 1\), got 0.0"),
        ({"epsilon": 1.0}, r"epsilon must be a number in \(0, 1\), got 1.0"),
        ({"epsilon": float("nan")}, r"epsilon must be a number in \(0, 1\), got nan"),
        ({"partitions": 0}, "partitions must be a whole number ≥ 1, got 0"),
        ({"threads": 0}, "threads must be a whole number ≥ 1, got 0"),
        ({"seed": -1}, "seed must be a whole number ≥ 0"),
        ({"optimizer": "lasy"}, "unknown optimizer 'lasy'; did you mean 'lazy'"),
        ({"among": [0, 10]}, r"among must be indices in 0..9, got 10"),
        ({"exclude": [-1]}, r"exclude must be indices in 0..9, got -1"),
        ({"among": [0.5]}, "among must be a list of indices"),
        ({"among": []}, "leave no candidate"),
        ({"exclude": range(10)}, "leave no candidate"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    pool = smdl.Pool(np.arange(20.0).reshape(10, 2))
    with pytest.raises(ValueError, match=message):
        smdl.select(pool, REDUNDANCY, **{"size": 3, **options})  # type: ignore[arg-type]


def test_bad_kinds_of_arguments_are_refused():
    pool = smdl.Pool(np.arange(20.0).reshape(10, 2))
    literal = smdl.Objective(redundancy=1.0, normalize="candidates")
    with pytest.raises(ValueError, match="lazy needs gains that diminish"):
        smdl.select(pool, literal, 1, optimizer="lazy")
    with pytest.raises(ValueError, match="per-step scores have no F"):
        smdl.evaluate(pool, literal, [1])
    with pytest.raises(ValueError, match="indices must name each sample once"):
        smdl.evaluate(pool, REDUNDANCY, [1, 1])
    with pytest.raises(ValueError, match=r"indices must be indices in 0..9, got 12"):
        smdl.evaluate(pool, REDUNDANCY, [1, 12])


def test_arrays_and_names_will_do():
    features = np.random.default_rng(0).random((40, 6))
    plain = smdl.select(smdl.Pool(features), smdl.Objective(facility_location=1.0), 5)
    assert smdl.select(features, "facility_location", 5).indices.tolist() == plain.indices.tolist()
    assert smdl.select(features.tolist(), "facility_location", size=5).indices.tolist() == plain.indices.tolist()
    value = smdl.evaluate(features, "facility_location", plain.indices)
    assert float(value) == pytest.approx(plain.value)


def test_a_preset_comes_by_name():
    rng = np.random.default_rng(0)
    pool = smdl.Pool(
        rng.random((40, 6)), rng.dirichlet(np.ones(3), 40), rng.integers(0, 3, 40), reference=rng.random((40, 2))
    )
    for name in ("paper", "paper_subset", "gradients"):
        wanted = smdl.select(pool, getattr(smdl.Objective, name)(), 5)
        assert smdl.select(pool, name, 5).indices.tolist() == wanted.indices.tolist()


def test_features_are_enough_and_the_default_is_the_same_everywhere():
    features = np.random.default_rng(0).random((40, 6))
    wanted = smdl.select(features, "facility_location", 5).indices.tolist()
    assert smdl.select(features, size=5).indices.tolist() == wanted
    assert smdl.Selector(size=5).fit(features).indices_.tolist() == wanted
    assert smdl.explain(features, size=5).objective == smdl.Objective(facility_location=1.0)
    assert SelectRequest.objective == "facility_location", "the command's"
    with pytest.raises(ValueError, match='space="gradients" needs probabilities'):
        smdl.select(features, "gradients", 5)


def test_a_term_that_hardly_counts_is_named_with_a_weight_that_would_balance_it():
    rng = np.random.default_rng(0)
    pool = smdl.Pool(rng.normal(size=(400, 4)), rng.dirichlet(np.ones(3), 400))
    with pytest.warns(UserWarning, match="facility_location has 0") as caught:
        chosen = smdl.select(pool, smdl.Objective(facility_location=1.0, uncertainty=1.0), 200)
    assert chosen.term_shares is not None
    assert chosen.term_shares["facility_location"] < 0.01
    assert sum(chosen.term_shares.values()) == pytest.approx(1)
    weight = float(str(caught[0].message).split("facility_location=")[1].split()[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        balanced = smdl.select(pool, smdl.Objective(facility_location=weight, uncertainty=1.0), 200)
    assert balanced.term_shares is not None
    assert 0.3 < balanced.term_shares["facility_location"] < 0.7
    whole = smdl.evaluate(pool, smdl.Objective(facility_location=weight, uncertainty=1.0), balanced.indices)
    assert whole.term_shares == pytest.approx(balanced.term_shares)
    assert "facility_location" in str(whole)
    assert str(whole).partition(": ")[2] == str(balanced).partition(": ")[2]
    assert str(balanced).startswith("200 picks of value ")
    tiny = smdl.evaluate(pool, smdl.Objective(facility_location=1e-6, uncertainty=1.0), balanced.indices)
    assert "facility_location < 0.1%" in str(tiny)
    assert str(smdl.select(pool, "uncertainty", 5)).count(":") == 0, "the shares of several terms"


def test_terms_leave_out_what_was_there_before():
    rng = np.random.default_rng(0)
    pool = smdl.Pool(rng.normal(size=(60, 4)), rng.dirichlet(np.ones(3), 60), rng.integers(0, 3, 60))
    objective = smdl.Objective(facility_location=4.0, uncertainty=0.1, class_balance=0.2)
    chosen = smdl.select(pool, objective, 5, initial=[3, 1, 4])
    before, after = (smdl.evaluate(pool, objective, rows).terms for rows in ([3, 1, 4], [3, 1, 4, *chosen.indices]))
    assert chosen.terms == pytest.approx({name: after[name] - before[name] for name in after})


def test_indices_come_back_in_kind():
    features = torch.rand(40, 6, generator=torch.Generator().manual_seed(0))
    tensor = smdl.select(features, "redundancy", 5).indices
    assert isinstance(tensor, torch.Tensor)
    assert (tensor.dtype, tensor.device) == (torch.int64, features.device)
    assert features[tensor].shape == (5, 6)
    array = smdl.select(features.numpy(), "redundancy", 5).indices
    assert isinstance(array, np.ndarray)
    assert array.tolist() == tensor.tolist()
    chosen = smdl.select(features, "facility_location", 5)
    assert chosen.shares is not None
    assert chosen.shares.sum() == 40
    assert float(smdl.evaluate(features, "facility_location", chosen.indices)) == pytest.approx(chosen.value)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            ("features", "paper", 5),
            TypeError,
            "pool must be a smdl.Pool, or features as an array or a tensor, got 'str'",
        ),
        ((np.ones((9, 2)), 3, 5), TypeError, "objective must be a smdl.Objective, or the name of a preset or a term"),
        (
            (np.ones((9, 2)), "facility_locaton", 5),
            ValueError,
            "unknown objective .*; did you mean 'facility_location'",
        ),
        ((np.ones((9, 2)), "redundancy"), TypeError, "size is missing"),
        ((np.ones((9, 2)), "redundancy", 2.5), TypeError, "size must be a whole number ≥ 1, got 2.5"),
        ((np.ones((9, 2)), "redundancy", 0), ValueError, "size must be a whole number ≥ 1, got 0"),
    ],
)
def test_wrong_calls_name_the_rule(arguments, error, message):
    with pytest.raises(error, match=message):
        smdl.select(*arguments)
