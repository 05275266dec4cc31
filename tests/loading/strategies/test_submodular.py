from typing import Any

import numpy as np
import pytest

import smdl
from smdl.loading.methods import METHODS
from smdl.loading.strategies.submodular import Submodular


def pool(n: int = 60) -> smdl.Pool:
    rng = np.random.default_rng(0)
    return smdl.Pool(
        rng.random((n, 4)), rng.dirichlet(np.ones(3), n), rng.integers(0, 3, n), reference=rng.random((n, 4))
    )


def seed_of(rng: np.random.Generator) -> int:
    return int(rng.integers(2**63))


@pytest.mark.parametrize(
    ("strategy", "objective", "options"),
    [
        (Submodular(), smdl.Objective.gradients(), {}),
        (Submodular("paper"), smdl.Objective.paper(), {}),
        (
            METHODS["paper"].make()[0],
            smdl.Objective.paper(),
            {"optimizer": "stochastic", "partitions": 10, "epsilon": 0.01},
        ),
        (
            Submodular(smdl.Objective(redundancy=1.0), optimizer="stochastic", partitions=2, epsilon=0.3),
            smdl.Objective(redundancy=1.0),
            {"optimizer": "stochastic", "partitions": 2, "epsilon": 0.3},
        ),
    ],
    ids=["gradients", "paper's objective", "paper", "own"],
)
def test_a_batch_is_what_select_picks(strategy, objective, options):
    for remaining in (np.arange(60), np.arange(7, 50)):
        batch = strategy.select(pool(), remaining, 5, np.random.default_rng(4))
        seed = seed_of(np.random.default_rng(4))
        picks = smdl.select(pool(), objective, 5, seed=seed, among=remaining, **options)
        assert batch.indices.tolist() == picks.indices.tolist()
        assert batch.gains.tolist() == picks.gains.tolist()
        assert set(batch.indices) <= set(remaining)


def test_it_says_what_it_needs():
    assert Submodular().needs_scores
    assert not Submodular().needs_reference
    assert Submodular("paper").needs_reference
    assert not Submodular().needs_losses
    assert not Submodular().needs_all
    assert Submodular().repeats
    assert not Submodular(optimizer="stochastic").repeats


def test_the_draws_are_those_of_the_generator():
    strategy = Submodular(smdl.Objective(redundancy=1.0))
    firsts = {strategy.select(pool(), np.arange(60), 3, np.random.default_rng(s)).indices[0] for s in range(8)}
    assert len(firsts) > 1


def test_picks_keep_their_weights_under_other_numbers():
    batch = Submodular().select(pool(), np.arange(60), 5, np.random.default_rng(0))
    renumbered = batch.renumbered(np.arange(60) + 1000)
    assert renumbered.indices.tolist() == (batch.indices + 1000).tolist()
    assert renumbered.gains is batch.gains
    assert renumbered.shares is not None
    assert renumbered.shares.tolist() == batch.shares.tolist()  # type: ignore[union-attr]
    assert renumbered.shares.sum() == 60


def test_the_plan_of_a_step_serves_only_pools_of_its_form():
    strategy, features = Submodular(smdl.Objective(facility_location=1.0)), np.random.default_rng(0).random((40, 4))
    for x, size in ((features, 5), (features, 7), (features[:30], 7), (features[:, :2], 7), (features, 5)):
        batch = strategy.select(smdl.Pool(x), np.arange(len(x)), size, np.random.default_rng(4))
        assert batch.indices.tolist() == smdl.select(x, "facility_location", size).indices.tolist()
    with pytest.raises(ValueError, match="the 4 candidates"):
        strategy.select(smdl.Pool(features[:4]), np.arange(4), 5, np.random.default_rng(4))


def test_another_objective_makes_another_plan():
    strategy = Submodular("facility_location")
    first = strategy.select(pool(), np.arange(60), 5, np.random.default_rng(4))
    strategy.objective = smdl.Objective(redundancy=1.0)
    second = strategy.select(pool(), np.arange(60), 5, np.random.default_rng(4))
    assert second.indices.tolist() != first.indices.tolist()
    assert second.value == pytest.approx(smdl.evaluate(pool(), strategy.objective, second.indices).value)


def test_a_step_of_a_subset_draws_its_seed_once(monkeypatch):
    monkeypatch.setattr("smdl.engine.greedy.subset.FEWEST", 30)
    asked = []

    class Counted:
        def integers(self, most):
            asked.append(most)
            return 5

    counted: Any = Counted()
    Submodular("redundancy", optimizer="subset").select(pool(), np.arange(60), 5, counted)
    assert len(asked) == 1


def test_a_random_number_is_asked_for_only_if_all_candidates_tie():
    class NoNumbers:
        def integers(self, _):
            raise LookupError

    none: Any = NoNumbers()
    assert len(Submodular().select(pool(), np.arange(60), 5, none)) == 5
    with pytest.raises(LookupError):  # the first redundancy is that of the empty batch, for every candidate
        Submodular(smdl.Objective(redundancy=1.0)).select(pool(), np.arange(60), 5, none)
