"""Data sets of the user, from package.module:factory."""

import textwrap
from typing import Any

import pytest
import torch

from smdl.training.config import DataConfig
from smdl.training.datasets.in_memory import InMemory
from smdl.training.datasets.load import load
from smdl.training.datasets.problems import DataError

HEAD = """
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset
from smdl.training.datasets.in_memory import InMemory

def pairs(n, classes=4):
    return TensorDataset(torch.arange(n, dtype=torch.float32)[:, None].repeat(1, 3), torch.arange(n) % classes)
"""


@pytest.fixture
def write(tmp_path, monkeypatch, request):
    """A function that writes a module to the working folder and returns data.name for its factory `make`."""
    monkeypatch.chdir(tmp_path)
    name = f"mine_{abs(hash(request.node.nodeid))}"

    def written(body: str) -> str:
        (tmp_path / f"{name}.py").write_text(HEAD + textwrap.dedent(body))
        return f"{name}:make"

    return written


def test_a_factory_of_the_working_folder_is_called(write):
    splits = load(DataConfig(name=write("def make(): return pairs(40), pairs(8)")))
    assert (len(splits.train), len(splits.test)) == (40, 8)
    assert splits.shape == (3,)
    assert splits.classes == ["0", "1", "2", "3"]
    assert splits.validation is None
    inputs, label = splits.train[5]
    assert inputs.tolist() == [5, 5, 5]
    assert label == 1


def test_a_factory_that_takes_an_argument_gets_the_config(write):
    name = write("def make(config): return pairs(config.seed), pairs(4)")
    assert len(load(DataConfig(name=name, seed=12)).train) == 12


def test_subsets_splits_imbalance_and_noise_work(write):
    name = write("def make(): return pairs(400), pairs(80)")
    config = DataConfig(name=name, train_size=200, test_size=20, validation=0.2, imbalance=4, label_noise=0.1)
    splits: Any = load(config)
    assert (len(splits.validation), len(splits.test)) == (40, 20)
    truth = torch.tensor([int(splits.train[i][0][0]) % 4 for i in range(len(splits.train))])
    assert truth.bincount().tolist() == [40, 25, 16, 10]
    assert int((splits.train.labels != truth).sum()) == 9
    assert [splits.train[i][1] for i in range(len(splits.train))] == splits.train.labels.tolist()
    held = {int(splits.validation[i][0][0]) for i in range(40)}
    assert not held & {int(splits.train[i][0][0]) for i in range(len(splits.train))}


def test_a_hidden_tail_and_exact_duplicates_work(write):
    name = write("def make(): return pairs(400, 5), pairs(80, 5)")
    splits: Any = load(DataConfig(name=name, hidden_imbalance=4, duplicates=0.5))
    assert splits.classes == ["0/1", "2/3", "4"]
    numbers = [int(splits.train[i][0][0]) for i in range(len(splits.train))]
    assert len(numbers) == 240
    assert len(set(numbers)) == 120, "a data set that is not in memory has exact copies"
    assert [splits.train[i][1] for i in range(240)] == [number % 5 // 2 for number in numbers]
    assert splits.train.labels.bincount().tolist() == [80, 80, 80]
    assert [splits.test[i][1] for i in range(5)] == [0, 0, 1, 1, 2]


def test_of_the_labels_that_a_data_set_holds_a_few_are_read(write):
    name = write(
        """
        class Costly(Dataset):
            classes = ["ant", "bee"]
            targets = [0, 1, 1, 0] * 100
            read = 0
            def __len__(self): return 400
            def __getitem__(self, index):
                Costly.read += 1
                return torch.zeros(2), self.targets[index]

        def make(): return Costly(), Costly()
        """
    )
    splits: Any = load(DataConfig(name=name, train_size=2))
    assert splits.classes == ["ant", "bee"]
    assert sorted(splits.train.labels.tolist()) == [0, 1]
    assert type(splits.train.dataset).read < 50  # of 800


def test_reading_labels_leaves_the_generator_alone(write):
    name = write(
        """
        class Noisy(Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return torch.rand(2), index % 2

        def make(): return Noisy(), Noisy()
        """
    )
    state = torch.get_rng_state()
    load(DataConfig(name=name))
    assert torch.equal(torch.get_rng_state(), state)


def test_an_in_memory_data_set_stays_in_memory(write):
    name = write(
        """
        from smdl.training.datasets.augment import Augmentation

        def make():
            images = torch.arange(8, dtype=torch.uint8)[:, None, None, None].repeat(1, 1, 2, 2)
            train = InMemory(images, torch.arange(8) % 2, augmentation=Augmentation(1), classes=["a", "b"])
            return train, train.plain()
        """
    )
    splits: Any = load(DataConfig(name=name, train_size=6, validation=0.3))
    assert all(isinstance(part, InMemory) for part in (splits.train, splits.test, splits.validation))
    inputs, labels = splits.train.plain().__getitems__([0, 1, 2, 3])
    assert ((inputs[:, 0, 0, 0] % 2) == labels).all()
    assert splits.classes == ["a", "b"]
    assert splits.train.augmentation is not None
    assert splits.validation.augmentation is None


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("made = 1", "unknown .* in .*'make'; did you mean 'made'"),
        ("make = 1", "must be a function, got 'int'"),
        ("def make(): return pairs(4)", r"must be \(train, test\).* got 'TensorDataset'"),
        ("def make(): return pairs(4), pairs(4), pairs(4)", "got '.TensorDataset, TensorDataset, TensorDataset.'"),
        ("def make(): return 1, 2", "got '.int, int.'"),
        (
            "class Stream(IterableDataset):\n  __iter__ = __len__ = id\ndef make(): return Stream(), Stream()",
            r"got '\(Stream, Stream\)'",
        ),
        ("def make(): return pairs(4), []", "the test set of .* is empty"),
        ("def make(): return pairs(0), pairs(4)", "the train set of .* is empty"),
        ("def make(): return [1, 2], [3]", "an item of .* must be .input, class number., got 'int'"),
        ("def make(): return [(torch.zeros(2), 0.5)], [(torch.zeros(2), 0)]", "a target of .* a class number, got 0.5"),
        ("def make(): return [('text', 0)], [('text', 0)]", "an input of .* a tensor or array, got 'str'"),
        ("def make(): return pairs(4), [(torch.zeros(3), -1)]", "must be from 0 to 3, found -1 to 3"),
        ("def make():\n  d = pairs(4); d.classes = ['a', 'b']\n  return d, d", "must be from 0 to 1, found 0 to 3"),
        ("def make():\n  d = pairs(4); d.targets = torch.rand(4)\n  return d, d", "one whole number per sample"),
    ],
)
def test_a_bad_factory_is_explained(write, body, problem):
    with pytest.raises(ValueError, match=problem):
        load(DataConfig(name=write(body)))


def test_a_missing_module_is_named(write):
    write("")
    with pytest.raises(ValueError, match="no module 'nowhere_at_all'"):
        load(DataConfig(name="nowhere_at_all:make"))


def test_an_error_inside_the_factory_is_raised(write):
    with pytest.raises(ZeroDivisionError):
        load(DataConfig(name=write("def make(): return 1 / 0")))


@pytest.mark.parametrize("option", [{"resolution": 8}, {"augment": True}, {"augment": False}])
def test_options_of_built_in_sets_are_refused(write, option):
    name = write("def make(): return pairs(4), pairs(4)")
    with pytest.raises(DataError, match=f"data.{next(iter(option))} works with the built-in sets"):
        load(DataConfig(name=name, **option))
