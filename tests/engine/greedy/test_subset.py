"""Greedy among random candidates, in stages, follows the plain loops; its memory is bounded."""

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine import geometry
from smdl.engine.greedy import subset
from smdl.engine.randomness import stream
from tests import specification
from tests.conftest import DISTANCES, examples, pools


def without_matrix():
    return mock.patch.object(geometry, "holds_matrix", return_value=False)


def limits(entries: int, candidates: int, per_pick: int = 2):
    """A memory for so many entries, and so many candidates."""
    return mock.patch.multiple(subset, ENTRIES=entries, FEWEST=candidates, PER_PICK=1, PER_EARLY_PICK=per_pick)


@pytest.mark.parametrize("space", ["features", "gradients"])
@examples(100)
@given(pool=pools(smallest=2), data=st.data())
def test_the_stages_follow_the_plain_loops(space, pool, data):
    n, uncertainty = len(pool), data.draw(st.sampled_from([0.0, 0.25]))
    distance, sample = data.draw(st.sampled_from(DISTANCES)), data.draw(st.sampled_from([None, n // 2 or 1]))
    objective = smdl.Objective(
        facility_location=1.0, uncertainty=uncertainty, distance=distance, space=space, sample=sample
    )
    if space == "features" and distance in ("euclidean", "gaussian") and data.draw(st.booleans()):
        pool = pool.changed(away_from=np.ones((1, pool.features.shape[1]), np.float32))
    initial = data.draw(st.sampled_from([[], [0]]))
    size, seed = data.draw(st.integers(1, n - 1)), data.draw(st.integers(0, 2**40))
    entries, candidates = data.draw(st.sampled_from([1, 3 * n, 10**6])), data.draw(st.sampled_from([size, n]))
    with without_matrix(), limits(entries, candidates):
        found = smdl.select(pool, objective, size, optimizer="subset", seed=seed, initial=initial)
        members = np.array([a for a in range(n) if a not in initial], np.int32)
        key = stream(seed, 2)
        order = subset.draw(members, size, key).tolist()
    assert len(order) == min(len(members), max(size, candidates))
    problem = specification.Specification(pool, objective)
    if problem._bound() == 0.0:
        return
    indices, gains = specification.staged(problem, order, size, key, entries, 2, initial)
    assert found.indices.tolist() == indices
    np.testing.assert_allclose(found.gains, gains, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("query", [False, True])
def test_on_another_device_the_lists_are_the_same(query):
    rng = np.random.default_rng(0)
    pool = smdl.Pool(rng.random((300, 5), np.float32), query=rng.random((2, 5), np.float32) if query else None)
    objective = smdl.Objective(facility_location=1.0, sample=200)
    place = objective.on(pool).geometry
    side, best = place.blocks.side(slice(0, 50)), torch.full((200,), 0.8)
    for columns, covered in place.covered_blocks():
        caps = None if place.caps is None else place.caps[columns]
        here = place.blocks.rises(side, covered, best[columns], caps)
        elsewhere = mock.Mock(type="cuda")
        with mock.patch.object(place.blocks, "device", elsewhere):
            there = place.blocks.rises(side, covered, best[columns], caps)
        assert 0 < len(here[0]) < 50 * 200
        for ours, theirs in zip(here, there, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-6)


def test_only_the_drawn_candidates_are_picked_and_another_seed_draws_others():
    features = np.random.default_rng(0).random((500, 4), np.float32)
    objective = smdl.Objective(facility_location=1.0, sample=300)
    with limits(10**6, 40):
        chosen = [smdl.select(features, objective, 30, optimizer="subset", seed=seed).indices for seed in (0, 0, 1)]
        drawn = subset.draw(np.arange(500, dtype=np.int32), 30, stream(0, 2))
    assert set(chosen[0]) <= set(drawn.tolist())
    assert len(drawn) == 40
    assert chosen[0].tolist() == chosen[1].tolist() != chosen[2].tolist()


def test_the_lists_never_exceed_their_memory(monkeypatch):
    features = np.random.default_rng(0).random((2000, 8), np.float32)
    objective = smdl.Objective(facility_location=1.0, sample=1500)
    lists, real = [], subset.Staged._list
    monkeypatch.setattr(subset.Staged, "_list", lambda self: lists.append(real(self)) or lists[-1])
    with limits(20_000, 2000, per_pick=8):
        chosen = smdl.select(features, objective, 60, optimizer="subset")
    assert all(len(found.samples) <= 20_000 for found in lists)
    assert [found.count for found in lists] == sorted(found.count for found in lists), "lists get shorter"
    assert len(lists) > 2
    assert len(set(chosen.indices.tolist())) == 60
    assert chosen.value == pytest.approx(smdl.evaluate(features, objective, chosen.indices).value, abs=1e-6)
    lazy = smdl.select(features, objective, 60, optimizer="lazy")
    random = np.random.default_rng(0).choice(2000, 60, replace=False)
    gained = chosen.value - smdl.evaluate(features, objective, random).value
    assert gained > 0.7 * (lazy.value - smdl.evaluate(features, objective, random).value)


@pytest.mark.parametrize("objective", ["redundancy", "feature_coverage"])
def test_other_objectives_are_lazy_among_the_drawn(objective):
    features = np.random.default_rng(0).random((500, 4), np.float32)
    with limits(10**6, 40):
        chosen = smdl.select(features, objective, 10, optimizer="subset")
        drawn = subset.draw(np.arange(500, dtype=np.int32), 10, stream(0, 2))
    assert (
        chosen.indices.tolist() == smdl.select(features, objective, 10, optimizer="lazy", among=drawn).indices.tolist()
    )


def test_a_size_penalty_looks_at_every_row(monkeypatch):
    monkeypatch.setattr("smdl.engine.plan.EXACT", 10)
    features = np.random.default_rng(0).random((50, 4), np.float32)
    options = {"size": (2, 5), "size_penalty": 0.01}
    auto = smdl.select(features, "facility_location", **options)
    assert (
        auto.indices.tolist()
        == smdl.select(features, "facility_location", optimizer="lazy", **options).indices.tolist()
    )


def test_what_subset_cannot_do_is_refused():
    features = np.random.default_rng(0).random((50, 4), np.float32)
    with pytest.raises(ValueError, match="size_penalty needs the optimizer lazy, naive or stochastic"):
        smdl.select(features, "facility_location", (2, 5), size_penalty=0.1, optimizer="subset")
    with pytest.raises(ValueError, match="costs and groups need"):
        smdl.select(features, "facility_location", costs=np.ones(50), budget=3.0, optimizer="subset")
    with pytest.raises(ValueError, match="subset needs gains that diminish"):
        smdl.select(features, smdl.Objective(facility_location=1.0, normalize="candidates"), 3, optimizer="subset")
