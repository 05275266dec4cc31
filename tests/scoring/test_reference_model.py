import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from smdl.scoring.reading import Reader, in_order
from smdl.scoring.reference_model import reference_features
from smdl.scoring.scorer import Scorer
from tests.toys import Net, Shifted, Tuples, same


def parts(n: int = 40, dropout: float = 0.0):
    data, model = Tuples(n), Net(dropout)
    return data, model, Scorer(model), Reader(data, None, None, 0)


def plain(model: nn.Module, data: Tuples) -> torch.Tensor:
    with torch.no_grad():
        return copy.deepcopy(model).eval().body(data.x)  # type: ignore[operator]


def test_a_given_model_is_used_as_it_is():
    data, _, scorer, reader = parts(300)
    trained = Net(seed=9)
    features = reference_features(scorer, reader, 300, model=trained)
    assert torch.allclose(features, plain(trained, data), atol=1e-6)


def test_the_reference_is_a_copy_trained_on_a_random_part():
    data, model, scorer, reader = parts()
    features = reference_features(scorer, reader, 40, batch_size=5)
    trained_on, scored = data.reads[:20], data.reads[20:]
    assert len(set(trained_on)) == 20, "half of the data, each sample once"
    assert trained_on != sorted(trained_on)
    assert scored == list(range(40))
    assert features.shape == (40, 6)
    assert not torch.allclose(features, plain(model, data)), "it was trained"


def test_the_reference_is_what_a_plain_loop_of_one_epoch_makes_of_the_model():
    for make_optimizer in (None, lambda weights: torch.optim.SGD(weights, lr=0.5)):
        data, model, scorer, reader = parts()
        features = reference_features(scorer, reader, 40, batch_size=5, optimizer=make_optimizer)
        model.train()
        optimizer = make_optimizer(model.parameters()) if make_optimizer else torch.optim.Adam(model.parameters())
        for rows in torch.tensor(data.reads[:20]).split(5):
            optimizer.zero_grad()
            F.cross_entropy(model(data.x[rows]), data.y[rows]).backward()
            optimizer.step()
        assert torch.equal(features, plain(model, data))


def test_the_features_are_those_of_the_scoring_dataset():
    _, _, scorer, _ = parts()
    shifted = Shifted(40)
    features = reference_features(scorer, Reader(Tuples(40), shifted, None, 0), 40, model=Net())
    with torch.no_grad():
        assert torch.allclose(features, Net().eval().body(shifted.x + 100), atol=1e-4)


def test_training_the_reference_leaves_the_model_and_the_random_numbers_alone():
    _, model, scorer, reader = parts(dropout=0.5)
    model.train()
    model.body[1].eval()
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before = copy.deepcopy(model)
    modes, state = [module.training for module in model.modules()], torch.get_rng_state()
    reference_features(scorer, reader, 40)
    assert same([*model.state_dict().values()], [*before.state_dict().values()])
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))
    assert model.body[0].weight.grad is None
    assert scorer.samples == 0, "what the reference costs is not scoring"


def test_the_reference_depends_on_its_seed_alone():
    made = []
    for seed, disturbance in ((0, 1), (0, 2), (1, 1)):
        torch.manual_seed(disturbance)
        _, _, scorer, reader = parts(dropout=0.5)
        made.append(reference_features(scorer, reader, 40, seed=seed, batch_size=5))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_a_batch_of_one_is_left_out_because_batchnorm_cannot_train_on_it():
    data, _, scorer, reader = parts(22)
    reference_features(scorer, reader, 22, batch_size=5)
    assert len(data.reads) == 10 + 22
    data, _, scorer, reader = parts(8)
    reference_features(scorer, reader, 8, batch_size=5)
    assert len(data.reads) == 4 + 8, "less than a batch is trained on as it is"


def test_progress_goes_to_the_end():
    _, _, scorer, reader = parts(600)
    told = []
    reference_features(scorer, reader, 600, batch_size=50, progress=lambda done, of: told.append((done, of)))
    assert told[-1] == (900, 900)
    assert told == sorted(told)
    told.clear()
    reference_features(scorer, reader, 600, model=Net(), progress=lambda done, of: told.append((done, of)))
    assert told == [(256, 600), (512, 600), (600, 600)]


@pytest.mark.parametrize("fraction", [0.0, 1.5, -0.1])
def test_a_fraction_is_a_part_of_the_data(fraction):
    _, _, scorer, reader = parts()
    with pytest.raises(ValueError, match=rf"fraction must be in \(0, 1\], got {fraction}"):
        reference_features(scorer, reader, 40, fraction=fraction)


def test_a_reference_that_diverges_is_refused():
    _, _, scorer, reader = parts()
    wild = lambda weights: torch.optim.SGD(weights, lr=1e30)  # noqa: E731
    with pytest.raises(ValueError, match=r"a reference model diverged: its loss is .*; give reference= yourself"):
        reference_features(scorer, reader, 40, batch_size=5, optimizer=wild)


def test_all_of_v_comes_once_in_order():
    requests = in_order(10, 4)
    assert [list(request.rows) for request in requests] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert all(request.score and not request.train for request in requests)
