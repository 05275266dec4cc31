from itertools import islice

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.candidates import (
    Full,
    RandomPool,
    at_most,
    bounds,
    check_batch_size,
    check_refresh,
    check_replacement,
    check_size_penalty,
    deal,
    make_strategy,
    pool_sizes,
)
from smdl.strategies.loss_rank import LossRank
from smdl.strategies.submodular import Submodular
from smdl.strategies.uniform import Uniform


@given(n=st.integers(1, 20), seed=st.integers(0, 99), data=st.data())
def test_pools_hold_no_sample_twice_and_every_deck_deals_out_all(n, seed, data):
    sizes = data.draw(st.lists(st.integers(1, n), max_size=30))
    counts = np.zeros(n, int)
    for size, pool in zip(sizes, deal(n, iter(sizes), np.random.default_rng(seed)), strict=True):
        assert len(np.unique(pool)) == len(pool) == size
        counts[pool] += 1
        assert counts.max() - counts.min() <= 1, "nothing comes again before everything has come"


def test_pools_are_shuffled_and_decks_differ():
    first, second = deal(50, iter([50, 50]), np.random.default_rng(1))
    assert first.tolist() != sorted(first)
    assert first.tolist() != second.tolist()
    again = next(deal(50, iter([50]), np.random.default_rng(1)))
    assert first.tolist() == again.tolist()


def test_pools_are_so_many_batches_large_as_far_as_the_data_goes():
    assert list(pool_sizes(10, 4, 1.0)) == [4, 4, 2]
    assert list(pool_sizes(10, 4, 1.6)) == [7, 7, 4]
    assert list(pool_sizes(10, 4, 9.0)) == [10, 10, 10]
    assert list(pool_sizes(8, 4, 1.0)) == [4, 4]
    assert list(islice(pool_sizes(10, (1, 3), 2.0), 20)) == [6] * 20, "an adaptive epoch ends when it is used up"


@pytest.mark.parametrize("every", [0, -1, 2.0, True, None])
def test_full_wants_a_number_of_steps(every):
    with pytest.raises(ValueError, match=f"every must be a whole number of steps ≥ 1, got {every}"):
        Full(every)


@pytest.mark.parametrize("factor", [0.99, 0, -3, float("inf"), float("nan"), "3", None])
def test_a_random_pool_holds_a_batch_at_least(factor):
    with pytest.raises(ValueError, match="factor must be a number ≥ 1, got"):
        RandomPool(factor)


def test_a_factor_is_the_same_written_either_way():
    assert str(RandomPool(3)) == str(RandomPool(3.0)) == str(RandomPool())


def test_strategies_come_by_name_or_as_they_are():
    assert isinstance(make_strategy("uniform", None, None), Uniform)
    assert isinstance(make_strategy("loss", None, None), LossRank)
    mine = Uniform()
    assert make_strategy(mine, None, None) is mine
    recommended = make_strategy("smdl", None, None)
    assert isinstance(recommended, Submodular)
    assert recommended.objective == smdl.Objective.recommended()
    given_one = make_strategy("smdl", smdl.Objective(redundancy=1.0), 0.25)
    assert isinstance(given_one, Submodular)
    assert (given_one.objective, given_one.size_penalty) == (smdl.Objective(redundancy=1.0), 0.25)


def test_the_paper_is_the_partitioned_stochastic_greedy():
    paper = make_strategy("smdl", "paper", None)
    assert isinstance(paper, Submodular)
    assert paper.objective == smdl.Objective.paper()
    assert (paper.optimizer, paper.partitions, paper.epsilon) == ("stochastic", 10, 0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("unifrom", None, None), "unknown strategy 'unifrom'; did you mean 'uniform'"),
        ((3, None, None), "unknown strategy 3. Choose one of loss, smdl, uniform"),
        (("uniform", "paper", None), "objective= and size_penalty= belong to strategy smdl, got strategy 'uniform'"),
        (("loss", None, 0.1), "belong to strategy smdl, got strategy 'loss'"),
        ((Uniform(), "paper", None), "belong to strategy smdl"),
        (("smdl", "papper", None), "unknown preset 'papper'; did you mean 'paper'"),
    ],
)
def test_strategies_that_are_none_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_strategy(*arguments)


@pytest.mark.parametrize(
    ("strategy", "objective", "refresh"),
    [
        ("smdl", None, RandomPool(3)),
        ("smdl", "paper", Full(5)),
        ("smdl", "paper_subset", RandomPool(3)),
        ("uniform", None, RandomPool(1)),
        ("loss", None, Full(1)),
    ],
)
def test_each_strategy_has_its_own_candidates_unless_told(strategy, objective, refresh):
    made = make_strategy(strategy, objective, None)
    assert check_refresh(made, objective, None, None) == refresh
    assert check_refresh(made, objective, Full(2), None) == Full(2)
    assert check_refresh(made, objective, None, 7) == Full(7)


@pytest.mark.parametrize(
    ("strategy", "refresh", "every", "message"),
    [
        ("smdl", RandomPool(3), 5, r"give refresh= or refresh_every=, not both: got RandomPool\(factor=3.0\) and 5"),
        ("smdl", Full(5), 5, "not both"),
        ("smdl", 5, None, r"refresh must be Full\(every=...\) or RandomPool\(factor=...\), got 5"),
        ("smdl", None, 0, "every must be a whole number"),
        ("loss", RandomPool(3), None, "strategy LossRank draws from all of V: refresh must be Full"),
    ],
)
def test_candidates_that_do_not_go_together_are_refused(strategy, refresh, every, message):
    with pytest.raises(ValueError, match=message):
        check_refresh(make_strategy(strategy, None, None), None, refresh, every)


def test_replacement_needs_chance_and_all_of_v():
    paper = Submodular.paper()
    assert check_replacement(paper, Full(5), True) is True
    assert check_replacement(paper, Full(5), False) is False
    assert check_replacement(Uniform(), Full(5), True) is True
    assert check_replacement(LossRank(), Full(1), False) is True, "by its own rule"
    with pytest.raises(ValueError, match=r"belongs to refresh=Full"):
        check_replacement(paper, RandomPool(3), True)
    for optimizer in ("auto", "lazy", "naive"):
        with pytest.raises(ValueError, match=f"'{optimizer}' would choose the same batch again"):
            check_replacement(Submodular("recommended", optimizer=optimizer), Full(5), True)


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "3", None, (), (1, 2, 3), (0, 3), (4, 3), (1, 2.5), [1, 2]])
def test_a_batch_size_is_a_number_or_a_range(size):
    with pytest.raises(ValueError, match="batch_size must be a whole number ≥ 1, or"):
        check_batch_size(size, 10)


def test_a_batch_is_no_larger_than_the_data():
    assert check_batch_size(np.int64(10), 10) == 10
    assert check_batch_size((2, np.int32(10)), 10) == (2, 10)
    for size in (11, (2, 11)):
        with pytest.raises(ValueError, match="batch_size must be at most the dataset's 10 samples, got 11"):
            check_batch_size(size, 10)


def test_a_range_of_sizes_and_a_penalty_come_together():
    check_size_penalty(Submodular(size_penalty=0.1), (2, 5))
    check_size_penalty(Submodular(), 5)
    check_size_penalty(Uniform(), (2, 5))
    for strategy, size in ((Submodular(), (2, 5)), (Submodular(size_penalty=0.1), 5)):
        with pytest.raises(ValueError, match=r"batch_size=\(fewest, most\) and size_penalty= go together, got"):
            check_size_penalty(strategy, size)


def test_sizes_are_cut_to_what_is_left():
    assert bounds(5) == (5, 5)
    assert bounds((2, 5)) == (2, 5)
    assert at_most(5, 3) == 3
    assert at_most((2, 5), 3) == (2, 3)
    assert at_most((2, 5), 1) == (1, 1)
    assert at_most((2, 5), 9) == (2, 5)
