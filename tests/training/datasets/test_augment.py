"""Crops and flips of whole batches, compared with the definition for each image."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from smdl.training.datasets.augment import Augmentation


def crops(image: Tensor, padding: int) -> dict[tuple[int, int], Tensor]:
    """Return every crop of a padded image (C, H, W) by its position."""
    padded = F.pad(image, [padding] * 4)
    _, height, width = image.shape
    places = [(top, left) for top in range(2 * padding + 1) for left in range(2 * padding + 1)]
    return {(top, left): padded[:, top : top + height, left : left + width] for top, left in places}


def batch(*shape: int, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Return images without zeros, so that zeros can only come from the padding."""
    return torch.randint(1, 256, shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@given(
    st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    st.integers(0, 7),
    st.booleans(),
    st.sampled_from([torch.uint8, torch.float32, torch.float64]),
    st.integers(0, 1000),
)
def test_every_image_becomes_a_crop_of_its_own_padded_self(shape, padding, mirror, dtype, seed):
    images = batch(*shape, dtype=dtype)
    torch.manual_seed(seed)
    augmented = Augmentation(padding, mirror)(images)
    assert augmented.shape == images.shape
    assert augmented.dtype == images.dtype
    for image, result in zip(images, augmented, strict=True):
        allowed = list(crops(image, padding).values())
        allowed += list(crops(image.flip(2), padding).values()) if mirror else []
        assert any(torch.equal(result, crop) for crop in allowed)


def test_crop_positions_are_uniform():
    image = batch(1, 3, 8, 8)
    found = dict.fromkeys(crops(image[0], 2), 0)
    torch.manual_seed(0)
    for result in Augmentation(2)(image.expand(5000, -1, -1, -1)):
        place = next(place for place, crop in crops(image[0], 2).items() if torch.equal(crop, result))
        found[place] += 1
    assert min(found.values()) > 140  # of 200
    assert max(found.values()) < 260


def test_half_of_the_images_are_flipped_each_on_its_own():
    images = batch(4000, 1, 2, 3)
    torch.manual_seed(0)
    flipped = Augmentation(flip=True)(images)
    turned = (flipped == images.flip(3)).flatten(1).all(1)
    stayed = (flipped == images).flatten(1).all(1)
    assert bool((turned | stayed).all())
    assert 1850 < int(turned.sum()) < 2150


def test_the_given_images_are_not_changed():
    images = batch(4, 3, 8, 8)
    before = images.clone()
    for augmentation in (Augmentation(), Augmentation(2), Augmentation(2, flip=True)):
        augmentation(images).zero_()
        assert torch.equal(images, before)


def test_images_out_of_order_in_memory_are_cropped_like_others():
    images = batch(4, 3, 8, 8)
    strided = images.to(memory_format=torch.channels_last)
    torch.manual_seed(1)
    expected = Augmentation(2, flip=True)(images)
    torch.manual_seed(1)
    assert torch.equal(Augmentation(2, flip=True)(strided), expected)


def test_the_global_generator_decides():
    images = batch(64, 3, 8, 8)
    augment = Augmentation(2, flip=True)
    torch.manual_seed(3)
    first, state = augment(images), torch.get_rng_state()
    second = augment(images)
    assert not torch.equal(first, second)
    torch.set_rng_state(state)
    assert torch.equal(augment(images), second)
    torch.manual_seed(3)
    assert torch.equal(augment(images), first)


def test_a_negative_padding_is_refused():
    with pytest.raises(ValueError, match="padding must be a whole number ≥ 0, got -1"):
        Augmentation(-1)(batch(1, 1, 2, 2))
