"""A loader that is timed is in the state of the middle of a run."""

import numpy as np
import pytest

import smdl
from smdl.experiments.typical_step import fill_cache, make_typical
from tests.toys import Net, Tuples, epoch_of


def typical(method, **options):
    loader = smdl.DataLoader(Tuples(40), Net(), 5, method=method, **options)
    make_typical(loader)
    return loader


def chosen(loader):
    assert loader.selection is not None
    return loader.selection


def test_steps_that_do_not_select_are_spread_evenly():
    loader = typical("evolved_sampling", epochs=4, options={"anneal": 0.25})
    assert [loader.strategy.selects_at(0, step, 8) for step in range(8)] == [False, True] * 4


def test_a_method_that_always_selects_is_left_alone():
    loader = typical("fresh")
    assert "selects_at" not in vars(loader.strategy)


def test_a_loss_method_draws_by_rank_from_the_first_step_on():
    loader = typical("loss", epochs=4)
    seen = epoch_of(loader)
    assert len(np.unique(seen)) < 40, "a plain pass would show every sample once"


def test_importance_sampling_scores_a_pool_at_every_step():
    loader = typical("importance")
    for _ in range(3):
        next(iter(loader))
    assert loader.forwards == 3 * 15


@pytest.mark.parametrize("method", ["fresh", "observed"])
def test_the_cache_is_full_after_the_first_steps(method):
    loader = typical(method)
    batches = iter(loader)
    for _ in range(2):
        loader.model(next(batches)[0])
    fill_cache(loader)
    state = loader.candidates.state_dict()
    assert bool(state["cache"]["seen"].all()) if method == "observed" else state == {}
    loader.model(next(batches)[0])
    gains = chosen(loader).gains
    assert (gains > 0).any(), "the third step selects among samples with features"
