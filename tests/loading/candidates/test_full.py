import pytest

import smdl
from smdl.loading.strategies.loss_rank import LossRank
from smdl.loading.strategies.submodular import Submodular
from smdl.loading.strategies.uniform import Uniform
from tests.toys import Net, Tuples, epoch_of


@pytest.mark.parametrize("every", [0, -1])
def test_there_is_at_least_one_step_between_refreshes(every):
    with pytest.raises(ValueError, match=f"every must be a whole number ≥ 1, got {every}"):
        smdl.Full(every)


@pytest.mark.parametrize("options", [{"every": 2.0}, {"every": True}, {"every": "5"}, {"replacement": "no"}])
def test_wrong_types_are_refused(options):
    with pytest.raises(TypeError, match=f"{next(iter(options))} must be"):
        smdl.Full(**options)


def test_without_a_number_of_steps_there_is_one_refresh_per_epoch():
    loader = smdl.DataLoader(Tuples(30), Net(), 4, candidates=smdl.Full(every=None))
    epoch_of(loader)
    assert loader.forwards == 30
    epoch_of(loader)
    assert loader.forwards == 60
    assert smdl.Full(every=None).period(8) == 8
    assert smdl.Full(5).period(8) == 5


def test_replacement_needs_random_draws():
    source = smdl.Full(replacement=True)
    source.check(Submodular(optimizer="stochastic"))
    source.check(Uniform())
    source.check(LossRank())
    for optimizer in ("auto", "lazy", "naive"):
        with pytest.raises(ValueError, match=f"{optimizer}, 1 partitions.* would choose the same batch again"):
            source.check(Submodular(optimizer=optimizer))


def test_loaders_do_not_share_the_state_of_a_source():
    source = smdl.Full(3)
    first, second = (smdl.DataLoader(Tuples(30), Net(), 4, candidates=source) for _ in range(2))
    next(iter(first))
    assert len(epoch_of(second)) == 8
    assert first.state_dict()["candidates"]["used"].sum() == 12
