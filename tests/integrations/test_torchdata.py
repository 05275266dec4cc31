"""torchdata's StatefulDataLoader behind a SelectiveLoader: its state is part of ours."""

import copy

import pytest

import smdl
from tests.toys import Net, Tuples, sgd, train

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]
stateful = pytest.importorskip("torchdata.stateful_dataloader")


def begun(workers):
    model, data = Net(), Tuples(60)
    plain = stateful.StatefulDataLoader(data, batch_size=4, num_workers=workers)
    return smdl.SelectiveLoader(plain, model, keep=1 / 3, seed=5), model, sgd(model), data


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_stream_reads_on_where_it_stopped(workers):
    loader, model, optimizer, _ = begun(workers)
    whole = train(loader, model, optimizer, 5)
    loader, model, optimizer, _ = begun(workers)
    train(loader, model, optimizer, 2)
    state, weights, momenta = copy.deepcopy((loader.state_dict(), model.state_dict(), optimizer.state_dict()))
    loader, model, optimizer, data = begun(workers)
    model.load_state_dict(weights)
    optimizer.load_state_dict(momenta)
    loader.load_state_dict(state)
    assert train(loader, model, optimizer, 3) == whole[2:]
    assert workers or min(data.reads) == 24, "what was trained on is not read again"


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_after_the_last_batch_resumes_with_the_next_epoch(workers):
    loader, model, optimizer, _ = begun(workers)
    whole = train(loader, model, optimizer, 10)
    loader, model, optimizer, _ = begun(workers)
    train(loader, model, optimizer, 5)  # it does not ask for more than the last batch
    state, weights, momenta = copy.deepcopy((loader.state_dict(), model.state_dict(), optimizer.state_dict()))
    loader, model, optimizer, _ = begun(workers)
    model.load_state_dict(weights)
    optimizer.load_state_dict(momenta)
    loader.load_state_dict(state)
    assert len(list(loader)) == 5, "not an epoch without batches"
    loader.load_state_dict(state)
    assert train(loader, model, optimizer, 5) == whole[5:]
