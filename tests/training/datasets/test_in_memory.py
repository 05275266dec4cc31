"""InMemory: batches, single samples, normalisation."""

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from smdl.training.datasets.augment import Augmentation
from smdl.training.datasets.in_memory import InMemory, identity_collate, mean_and_std


@pytest.fixture
def memory():
    images = torch.randint(0, 256, (30, 3, 8, 8), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    return InMemory(images, torch.arange(30) % 10, *mean_and_std(images), Augmentation(1, flip=True))


def test_a_batch_equals_its_single_samples(memory):
    plain = memory.plain()
    inputs, labels = plain.__getitems__([3, 29, 3])
    assert inputs.dtype == torch.float32
    assert labels.tolist() == [3, 9, 3]
    for row, index in enumerate([3, 29, 3]):
        single, label = plain[index]
        assert torch.equal(inputs[row], single)
        assert label == labels[row]
        assert type(label) is int


def test_inputs_are_normalised_by_channel(memory):
    inputs, _ = memory.plain().__getitems__(range(30))
    assert torch.allclose(inputs.mean((0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(inputs.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_moments_are_those_of_the_pixels(memory):
    pixels = memory.images.double()
    mean, std = mean_and_std(memory.images)
    assert torch.allclose(mean.double(), pixels.mean((0, 2, 3)))
    assert torch.allclose(std.double(), pixels.std((0, 2, 3), correction=0))


def test_a_constant_channel_gives_zeros():
    images = torch.full((4, 1, 2, 2), 7, dtype=torch.uint8)
    inputs, _ = InMemory(images, torch.zeros(4), *mean_and_std(images)).__getitems__([0, 1])
    assert torch.equal(inputs, torch.zeros(2, 1, 2, 2))


def test_augmentation_comes_before_normalisation(memory):
    """The zeros of the padding are black pixels, as in the images, not the mean."""
    black = (0 - memory.mean) / memory.std
    inputs, _ = InMemory(memory.images, memory.labels, memory.mean, memory.std, Augmentation(9)).__getitems__(range(30))
    gone = inputs.flatten(2).std(2).sum(1) == 0  # the crop contains only padding
    assert bool(gone.any())
    assert torch.allclose(inputs[gone][:, :, 0, 0], black.expand(int(gone.sum()), 3))


def test_plain_shares_the_memory_and_does_not_draw(memory):
    plain = memory.plain()
    assert plain.images.data_ptr() == memory.images.data_ptr()
    state = torch.get_rng_state()
    assert torch.equal(plain.__getitems__(range(30))[0], plain.__getitems__(range(30))[0])
    assert torch.equal(torch.get_rng_state(), state)
    assert memory.augmentation is not None


def test_reading_leaves_the_images_untouched(memory):
    before = memory.images.clone()
    memory.__getitems__(range(30))
    assert torch.equal(memory.images, before)
    vectors = InMemory(torch.ones(3, 5), torch.zeros(3), torch.ones(5), torch.ones(5))
    vectors.__getitems__([0, 1])
    assert torch.equal(vectors.images, torch.ones(3, 5))


def test_vectors_are_inputs_too():
    vectors = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    inputs, labels = InMemory(vectors, torch.arange(6)).__getitems__([5, 0])
    assert torch.equal(inputs, vectors[[5, 0]])
    assert labels.tolist() == [5, 0]


def test_a_labelled_subset_has_its_samples_and_labels(memory):
    taken = memory.labelled_subset(torch.tensor([4, 2]), torch.tensor([8, 9]))
    assert len(taken) == 2
    assert torch.equal(taken.images, memory.images[[4, 2]])
    assert taken.labels.tolist() == [8, 9]
    assert memory.labelled_subset(torch.arange(30), memory.labels).images.data_ptr() == memory.images.data_ptr()


def test_a_torch_loader_returns_the_batches(memory):
    loader = DataLoader(memory.plain(), batch_size=12, collate_fn=identity_collate)
    sizes = [(tuple(inputs.shape), labels.dtype) for inputs, labels in loader]
    assert sizes == [((12, 3, 8, 8), torch.int64), ((12, 3, 8, 8), torch.int64), ((6, 3, 8, 8), torch.int64)]


def test_a_pickled_copy_gives_the_same_batches(memory):
    again = pickle.loads(pickle.dumps(memory))
    torch.manual_seed(0)
    expected = memory.__getitems__([1, 2])[0]
    torch.manual_seed(0)
    assert torch.equal(again.__getitems__([1, 2])[0], expected)


def test_samples_end_at_the_length(memory):
    assert len(list(memory)) == 30
    assert torch.equal(memory.plain()[-1][0], memory.plain()[29][0])
    for index in (30, -31):
        with pytest.raises(IndexError):
            memory[index]


def test_labels_must_be_as_many_as_images():
    with pytest.raises(ValueError, match="3 images, 2 labels"):
        InMemory(torch.zeros(3, 1, 2, 2), torch.zeros(2))
