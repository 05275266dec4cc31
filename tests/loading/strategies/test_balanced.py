from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.utils.data import Dataset, Subset, TensorDataset

import smdl
from smdl.loading.strategies.balanced import Balanced
from smdl.scoring.reading import COMPARED
from tests.toys import Dicts, Net, Strings, Tuples, epoch_of, sgd, train

LABELS = np.array([7, 2, 2, 7, 2, 2, 2, 4, 2, 2, 7, 2])  # 8 of class 2, 3 of class 7, 1 of class 4


def prepared(labels: np.ndarray) -> Balanced:
    strategy = Balanced()
    strategy.set_labels(labels)
    return strategy


def draws(labels: np.ndarray, size: int, seed: int = 0) -> np.ndarray:
    return prepared(labels).select(None, np.arange(len(labels)), size, np.random.default_rng(seed)).indices


def labels_given_to(strategy: smdl.Strategy) -> list[int]:
    """The labels that the strategy of a loader got: the rank of each sample's class."""
    assert isinstance(strategy, Balanced)
    ranks = np.empty(len(strategy._by_class), np.int64)
    ranks[strategy._by_class] = np.repeat(np.arange(len(strategy._sizes)), strategy._sizes)
    return ranks.tolist()


def test_every_class_is_equally_likely_and_so_is_every_sample_of_a_class():
    counts = np.bincount(draws(LABELS, 60_000), minlength=12)
    assert chisquare([counts[label == LABELS].sum() for label in (2, 4, 7)]).pvalue > 1e-3
    for label in (2, 7):
        assert chisquare(counts[label == LABELS]).pvalue > 1e-3


def test_draws_have_the_distribution_of_torchs_weighted_sampler():
    weights = 1 / np.bincount(LABELS)[LABELS]
    counts = np.bincount(draws(LABELS, 60_000, seed=1), minlength=12)
    assert chisquare(counts, 60_000 * weights / weights.sum()).pvalue > 1e-3


def test_draws_are_independent_within_a_batch():
    """With replacement: the pairs of a batch of two are as frequent as the product of their probabilities."""
    labels, pairs = np.array([0, 0, 1]), np.zeros((3, 3))
    for seed in range(4000):
        pairs[tuple(draws(labels, 2, seed))] += 1
    p = np.array([0.25, 0.25, 0.5])
    assert chisquare(pairs.ravel(), 4000 * np.outer(p, p).ravel()).pvalue > 1e-3


def test_the_draw_is_that_of_the_generator():
    assert draws(LABELS, 20, 1).tolist() == draws(LABELS, 20, 1).tolist()
    assert draws(LABELS, 20, 1).tolist() != draws(LABELS, 20, 2).tolist()


def test_an_epoch_is_n_draws_without_forwards():
    x = torch.randn(1000, 4)
    y = (torch.arange(1000) % 50 == 0).long()  # 20 of class 1
    loader = smdl.DataLoader(TensorDataset(x, y), Net(), 30, method="balanced")
    seen = [*chain(*epoch_of(loader))]
    assert len(seen) == 1000
    assert loader.forwards == 0
    assert 430 < int(y[seen].sum()) < 570  # 500 ± 16
    assert set(np.flatnonzero(y)) <= set(seen)
    assert [*chain(*epoch_of(loader))] != seen, "another epoch has other draws"


class Held(Tuples):
    """Holds its labels under the name that is given, so only a few must be read."""

    def __init__(self, name: str, labels: Any, n: int = 200) -> None:
        super().__init__(n)
        setattr(self, name, labels(self.y))


@pytest.mark.parametrize("labels", [torch.Tensor.tolist, torch.Tensor.clone])
@pytest.mark.parametrize("name", ["targets", "labels"])
def test_of_labels_that_the_dataset_holds_a_few_are_read(name, labels):
    data = Held(name, labels)
    loader = smdl.DataLoader(data, Net(), 2, method="balanced")
    assert labels_given_to(loader.strategy) == data.y.tolist()
    assert len(data.reads) <= 2 * COMPARED


def test_of_the_labels_of_torchs_own_datasets_a_few_are_read():
    tensors = TensorDataset(torch.randn(6, 4), torch.tensor([0, 1, 1, 0, 2, 1]))
    assert labels_given_to(smdl.DataLoader(tensors, Net(), 2, method="balanced").strategy) == [0, 1, 1, 0, 2, 1]
    data = Held("targets", torch.Tensor.tolist)
    part = Subset(Subset(data, range(199, 99, -1)), range(0, 100, 2))
    loader = smdl.DataLoader(part, Net(), 2, method="balanced")
    assert labels_given_to(loader.strategy) == data.y.tolist()[199:99:-2]
    assert len(data.reads) <= 2 * COMPARED


class Reordered(Dataset):
    """Samples of another dataset in another order. Its attributes are those of that dataset."""

    def __init__(self, inner: Dataset, order: list[int]) -> None:
        self.inner, self.order = inner, order

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, row: int) -> Any:
        return self.inner[self.order[row]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_labels_that_are_not_those_of_the_samples_are_noticed():
    data = Held("targets", torch.Tensor.tolist)
    order = np.random.default_rng(0).permutation(200).tolist()
    loader = smdl.DataLoader(Reordered(data, order), Net(), 2, method="balanced")
    assert labels_given_to(loader.strategy) == data.y[order].tolist()


def test_labels_that_batches_do_not_show_are_those_of_the_dataset():
    class Indexed(Held):
        def __getitem__(self, row: int) -> Any:
            return *super().__getitem__(row), row

    data = Indexed("targets", torch.Tensor.tolist)
    loader = smdl.DataLoader(data, Net(), 2, method="balanced")
    assert labels_given_to(loader.strategy) == data.y.tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_other_labels_are_read_once_and_leave_the_generator_alone(workers):
    class Noisy(Tuples):
        def __getitem__(self, row: int) -> Any:
            torch.rand(1)
            return super().__getitem__(row)

    data, state = Noisy(30), torch.get_rng_state()
    loader = smdl.DataLoader(data, Net(), 4, method="balanced", num_workers=workers, scoring_batch_size=7)
    assert labels_given_to(loader.strategy) == data.y.tolist()
    assert data.reads == ([] if workers else list(range(30)))
    assert torch.equal(torch.get_rng_state(), state)
    assert len(epoch_of(loader)) == 8


def test_other_forms_of_batches_say_where_their_labels_are():
    data: Dataset = Strings(12)
    assert labels_given_to(smdl.DataLoader(data, Net(), 4, method="balanced").strategy) == Tuples(12).y.tolist()
    with pytest.raises(ValueError, match="a batch that is a dict of pixels, meta needs targets="):
        smdl.DataLoader(Dicts(12), Net(), 4, method="balanced")
    loader = smdl.DataLoader(
        Dicts(12), Net(), 4, method="balanced", scoring=smdl.Scoring(targets=lambda batch: batch["meta"]["label"])
    )
    assert labels_given_to(loader.strategy) == Tuples(12).y.tolist()


def test_targets_come_before_what_the_dataset_holds():
    data = Held("labels", lambda y: [f"class {label}" for label in y])
    with pytest.raises(ValueError, match=r"labels of the dataset must be one whole number .*; pass targets= to say"):
        smdl.DataLoader(data, Net(), 2, method="balanced")
    loader = smdl.DataLoader(data, Net(), 2, method="balanced", scoring=smdl.Scoring(targets=lambda batch: batch[1]))
    assert labels_given_to(loader.strategy) == data.y.tolist()


def test_a_transform_of_the_targets_is_applied():
    class Transformed(Held):
        target_transform = staticmethod(lambda label: 0 if label == 2 else 1)

        def __getitem__(self, row: int) -> Any:
            return self.x[row], self.target_transform(self.y[row])

    data = Transformed("targets", torch.Tensor.tolist)
    loader = smdl.DataLoader(data, Net(), 2, method="balanced")
    assert labels_given_to(loader.strategy) == [0 if label == 2 else 1 for label in data.y]


def test_a_resumed_epoch_has_the_identical_tail():
    data = Tuples(30)
    runs = []
    for stop in (0, 3, 8, 11):
        model = Net()
        loader, optimizer = smdl.DataLoader(data, model, 4, method="balanced", seed=5), sgd(model)
        seen = train(loader, model, optimizer, stop)
        state, loader = loader.state_dict(), smdl.DataLoader(data, model, 4, method="balanced", seed=5)
        loader.load_state_dict(state)
        runs.append(seen + train(loader, model, optimizer, 20 - stop))
    assert runs[1:] == runs[:1] * 3


def test_a_stream_and_a_random_pool_are_refused():
    with pytest.raises(ValueError, match="Balanced tracks each sample of a dataset; a stream has no such samples"):
        smdl.SelectiveLoader([], Net(), method="balanced")
    with pytest.raises(ValueError, match="Balanced draws from the whole dataset"):
        smdl.DataLoader(Tuples(30), Net(), 4, method="balanced", candidates=smdl.RandomPool(3))


def test_class_numbers_are_taken_with_a_loss_of_ones_own():
    def smooth(outputs, targets):
        return torch.nn.functional.cross_entropy(outputs, targets, reduction="none", label_smoothing=0.1)

    loader = smdl.DataLoader(Tuples(12), Net(), 4, method="balanced", scoring=smdl.Scoring(loss=smooth))
    same = smdl.DataLoader(Tuples(12), Net(), 4, method="balanced")
    assert labels_given_to(loader.strategy) == labels_given_to(same.strategy)
    with pytest.raises(ValueError, match=r"one class number per sample, got torch\.float32"):
        smdl.DataLoader(Tuples(12), Net(), 4, method="balanced", scoring=smdl.Scoring(loss=smooth, targets=0))
