"""smdl.preview: what methods cost on the user's data and model, and what the data looks like."""

import time

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

import smdl
from smdl.cli.commands import main
from smdl.experiments import preview as preview_module
from smdl.experiments.calibration import SHARE
from smdl.experiments.preview import (
    DataLook,
    MethodCost,
    Preview,
    held_bytes,
    look_at,
    middle_half,
    near_duplicates,
    sibling,
    usual_methods,
)
from smdl.loading.methods import METHODS


class Rows(Dataset):
    """Samples whose labels are found only by reading them."""

    def __init__(self, count=100):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(count, 6, generator=generator)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, row):
        return self.inputs[row], int(row < 20)


def loader_of(dataset=None, **options):
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 2))
    return smdl.DataLoader(
        dataset or TensorDataset(Rows().inputs, (torch.arange(100) < 20).long()), model, 10, **options
    )


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(preview_module, "ROUNDS", 2)


@pytest.mark.usefixtures("quick")
def test_every_usual_method_is_timed_against_plain_sgd_and_the_model_is_left_alone():
    loader = loader_of()
    before = {name: value.clone() for name, value in loader.model.state_dict().items()}
    state = torch.get_rng_state()
    found = smdl.preview(loader, seconds=0.01, quiet=True)
    assert [cost.method for cost in found.costs] == usual_methods()
    assert found.costs[0].ratio == pytest.approx(1, abs=0.01)  # with its share of the start of an epoch
    costs = {cost.method: cost for cost in found.costs}
    assert costs["fresh"].forwards_per_step == 30
    assert costs["observed"].forwards_per_step == 0
    assert costs["observed"].memory >= 100 * 8 * 2, "the features of every sample, in half precision"
    assert costs["uniform"].memory == costs["fresh"].memory == 0
    for name, value in loader.model.state_dict().items():
        assert torch.equal(value, before[name])
    assert (torch.get_rng_state() == state).all()
    assert loader.selection is None, "the loader is not used"
    text = str(found)
    assert "This predicts no accuracy" in text
    assert max(map(len, found.table().splitlines())) <= 80


@pytest.mark.usefixtures("quick")
@pytest.mark.filterwarnings("error:an epoch has passed")
def test_a_preview_does_not_look_like_training_a_copy_of_the_model():
    loader = loader_of(TensorDataset(Rows(20).inputs, torch.arange(20) % 2))  # an epoch has two steps
    assert [cost.method for cost in smdl.preview(loader, ["uniform"], seconds=0.01, quiet=True).costs] == ["uniform"]


def test_usual_methods_train_no_second_model_and_score_no_whole_dataset():
    assert {"uniform", "balanced", "recommended", "fresh"} <= set(usual_methods())
    assert not {"paper", "paper_subset", "rho_loss"} & set(usual_methods())
    assert usual_methods() == [name for name in METHODS if name in usual_methods()]


@pytest.mark.usefixtures("quick")
def test_a_method_with_a_reference_model_says_what_that_takes():
    found = smdl.preview(loader_of(), ["paper"], seconds=0.01, quiet=True)
    assert [cost.method for cost in found.costs] == ["uniform", "paper"]
    assert found.costs[1].reference_seconds > 0
    assert "for its reference model (paper)" in str(found)


@pytest.mark.parametrize(("ratio", "saved"), [(1.0, 0.0), (0.9, 0.0), (2.0, 0.5), (1.7, 0.4118)])
def test_the_break_even_point_is_the_share_of_steps_that_equal_time_takes_away(ratio, saved):
    assert MethodCost("fresh", 0.01, ratio, (ratio, ratio), 0, 0, None).break_even == pytest.approx(saved, abs=1e-4)


def test_the_text_names_the_method_that_must_save_most():
    costs = [MethodCost(name, 0.01 * r, r, (r, r), 0, 0, None) for name, r in (("uniform", 1), ("a", 1.1), ("b", 1.7))]
    text = str(Preview(costs, DataLook(10, [5, 4, 0, 1], 10, 0.25, 10), {"c": "no labels"}, 3))
    assert "b must save 41% of the steps to pay." in text
    assert "10 samples, 4 classes, 1 of them empty; the largest class has 5.0 × the samples of the smallest." in text
    assert "Near-duplicates, by the features of this model: 25%." in text
    assert "c cannot be used here: no labels" in text
    assert "Rough: only 3 rounds of turns." in text
    assert "Rough" not in str(Preview(costs, DataLook(10, [5, 5], 10, 0.0, 10), {}, 10))


def test_the_middle_half_leaves_out_a_quarter_on_each_side():
    assert middle_half([1.0]) == (1.0, 1.0)
    assert middle_half([1.0, 2.0, 3.0]) == (1.0, 3.0)
    assert middle_half([0.1, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 9.0]) == (1.1, 1.4)


def test_the_time_for_making_the_loaders_counts(monkeypatch):
    given = []
    monkeypatch.setattr(preview_module, "take_turns", lambda _, __, budget, ___: given.append(budget * SHARE) or 1 / 0)
    monkeypatch.setattr(preview_module, "look_at", lambda _: time.sleep(0.5))
    for seconds in (0.1, 100.0):
        with pytest.raises(ZeroDivisionError):
            smdl.preview(loader_of(), ["uniform"], seconds=seconds, quiet=True)
    assert given[0] == pytest.approx(0.025)
    assert 50 < given[1] < 99.6


def test_classes_are_counted_from_stored_labels_or_from_what_is_examined(monkeypatch):
    assert look_at(loader_of()).class_counts == [80, 20]
    monkeypatch.setattr(preview_module, "EXAMINED", 40)
    torch.manual_seed(0)
    look = look_at(loader_of(Rows()))
    assert (look.samples, look.counted, look.examined) == (100, 40, 40)
    assert sum(look.class_counts) == 40
    assert "of 40 drawn at random" in str(look)
    assert f"at least {look.near_duplicates:.0%}, from 40 samples drawn at random." in str(look)


def test_labels_of_a_binary_loss_and_of_another_column_are_counted():
    x, y = torch.randn(50, 8), (torch.arange(50) % 5 == 0)
    binary = smdl.DataLoader(
        TensorDataset(x, y.float()), nn.Linear(8, 1), 10, scoring=smdl.Scoring(loss="binary_cross_entropy")
    )
    assert look_at(binary).class_counts == [40, 10]
    first = smdl.DataLoader(TensorDataset(y.long(), x), nn.Linear(8, 2), 10, scoring=smdl.Scoring(targets=0))
    assert look_at(first).class_counts == [40, 10]


def test_near_duplicates_are_samples_with_another_one_next_to_them():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(700, 16, generator=generator)  # more than one block
    assert near_duplicates(rows) == 0
    rows[350:] = rows[:350] + 0.001 * torch.randn(350, 16, generator=generator)
    assert near_duplicates(rows) == 1
    rows[200:350] = torch.randn(150, 16, generator=generator)
    assert near_duplicates(rows) == pytest.approx(400 / 700)
    assert near_duplicates(100 * rows) == pytest.approx(400 / 700), "whatever the scale"
    assert near_duplicates(torch.zeros(1, 3)) == 0


def test_memory_is_that_of_the_state_without_the_model():
    loader = loader_of(method="observed")
    empty = held_bytes(loader.state_dict())
    batches = iter(loader)
    inputs, targets = next(batches)
    nn.functional.cross_entropy(loader.model(inputs), targets)
    assert held_bytes(loader.state_dict()) - empty >= 100 * 8 * 2, "the features in half precision"
    assert held_bytes(loader.state_dict()) < 100 * 8 * 2 + 5000


@pytest.mark.parametrize(
    ("loader", "options", "message"),
    [
        ("loader", {}, "loader must be a smdl.DataLoader, got 'str'"),
        (None, {"methods": ["fesh"]}, "unknown method 'fesh'; did you mean 'fresh'"),
        (None, {"methods": "fresh"}, "methods must be a sequence of names"),
        (None, {"seconds": 0}, "seconds must be a positive number"),
    ],
)
def test_bad_arguments_are_refused(loader, options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        smdl.preview(loader or loader_of(), quiet=True, **options)


@pytest.mark.usefixtures("quick")
def test_a_regression_has_costs_and_no_classes():
    dataset, model = TensorDataset(Rows().inputs, torch.randn(100, 1)), nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))
    loader = smdl.DataLoader(dataset, model, 10, scoring=smdl.Scoring(loss="mean_squared_error"))
    found = smdl.preview(loader, ["observed"], seconds=0.01, quiet=True)
    assert found.data.class_counts == []
    assert "The data: 100 samples.\n" in str(found)


def test_a_sibling_of_a_loader_keeps_its_options():
    loader = loader_of(seed=7, drop_last=True, scoring_dataset=Rows(), method="fresh")
    other = sibling(loader, "observed", loader.model)
    assert (other.seed, other.drop_last, other.batch_size, other.method.name) == (7, True, 10, "observed")


@pytest.mark.usefixtures("quick")
def test_the_command_shows_the_same_for_a_config(capsys):
    command = (
        "preview --config digits --data.train_size 100 --model.name mlp --methods recommended --seconds 0.1 --quiet"
    )
    assert main(command.split()) == 0
    printed = capsys.readouterr().out
    for word in ("uniform", "recommended", "must save", "100 samples, 10 classes", "Near-duplicates", "no accuracy"):
        assert word in printed
    assert main(["preview", "--method", "loss"]) == 2
    assert "use --methods" in capsys.readouterr().err
