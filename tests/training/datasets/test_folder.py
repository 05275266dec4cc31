"""A folder of images by class."""

import numpy as np
import pytest
import torch
from PIL import Image

from smdl.training.datasets.folder import folder
from smdl.training.datasets.problems import DamagedError, DataError


def picture(path, colour=(200, 10, 30), size=(6, 4), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def split_folder(tmp_path):
    """train/ and test/ of two classes, in several formats."""
    for suffix in ("png", "bmp", "gif", "PNG"):
        picture(tmp_path / f"train/cat/a.{suffix}", (200, 10, 30))
    picture(tmp_path / "train/ant/b.png", (0, 0, 255))
    picture(tmp_path / "test/cat/c.png", (1, 2, 3))
    return tmp_path


def test_train_and_test_are_read(split_folder):
    source = folder(split_folder)
    assert source.classes == ["ant", "cat"]
    assert source.train.images.shape == (5, 3, 4, 6)  # 6 wide, 4 high
    assert source.train.labels.tolist() == [0, 1, 1, 1, 1]
    assert source.train.images[0, :, 0, 0].tolist() == [0, 0, 255]
    assert source.test.images[0, :, 3, 5].tolist() == [1, 2, 3]
    assert source.test.labels.tolist() == [1]


def test_val_is_used_if_there_is_no_test(split_folder):
    (split_folder / "test").rename(split_folder / "val")
    assert len(folder(split_folder).test.labels) == 1


def test_jpeg_and_webp_are_images_too(tmp_path):
    for name in ("a.jpg", "b.jpeg", "c.webp"):
        picture(tmp_path / "train/x" / name)
        picture(tmp_path / "test/x" / name)
    assert len(folder(tmp_path).train.labels) == 3


@pytest.fixture
def mixed(tmp_path):
    for number in range(20):
        picture(tmp_path / f"{'cat' if number % 4 else 'train'}/{number}.png", (number, 0, 0))
    return tmp_path


def test_without_a_split_a_fifth_of_each_class_is_the_test(mixed):
    """'train' may be a class like any other: it holds images, not folders."""
    source = folder(mixed)
    assert source.classes == ["cat", "train"]
    assert source.train.labels.bincount().tolist() == [12, 4]
    assert source.test.labels.bincount().tolist() == [3, 1]
    reds = torch.cat([source.train.images, source.test.images])[:, 0, 0, 0]
    assert sorted(reds.tolist()) == list(range(20))


def test_the_split_depends_on_the_seed_alone(mixed):
    assert torch.equal(folder(mixed, seed=1).test.images, folder(mixed, seed=1).test.images)
    assert not torch.equal(folder(mixed, seed=1).test.images, folder(mixed, seed=2).test.images)


def test_hidden_and_other_files_are_ignored(split_folder):
    picture(split_folder / "train/cat/.hidden.png")
    picture(split_folder / "train/.cache/a.png")
    (split_folder / "train/cat/notes.txt").write_text("none")
    (split_folder / "train/README").write_text("none")
    assert len(folder(split_folder).train.labels) == 5


def test_grey_images_stay_grey_only_if_all_are(tmp_path):
    for part in ("train", "test"):
        picture(tmp_path / part / "x/a.png", 77, mode="L")
    assert folder(tmp_path).train.images.shape == (1, 1, 4, 6)
    picture(tmp_path / "test/x/b.png", (1, 2, 3))
    source = folder(tmp_path)
    assert source.train.images[0, :, 0, 0].tolist() == [77, 77, 77]


def test_different_sizes_need_a_resolution(split_folder):
    picture(split_folder / "train/cat/large.png", size=(30, 20))
    with pytest.raises(DataError, match=r"data.resolution must be given; found 6 × 4 \(6\), 30 × 20 \(1\)"):
        folder(split_folder)
    assert folder(split_folder, resolution=8).train.images.shape == (6, 3, 8, 8)


def test_resizing_averages_pixels(tmp_path):
    board = (np.indices((8, 8)).sum(0) % 2 * 255).astype(np.uint8)
    for part in ("train", "test"):
        picture(tmp_path / part / "x/a.png")
        Image.fromarray(board).save(tmp_path / part / "x/a.png")
    images = folder(tmp_path, resolution=2).train.images.float()
    assert float((images - 127.5).abs().max()) < 10


@pytest.mark.parametrize("keep", [0, 20, 80])
def test_a_damaged_image_is_named(split_folder, keep):
    path = split_folder / "train/cat/a.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)).save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DamagedError, match="image was expected") as caught:
        folder(split_folder)
    assert caught.value.path == path


def test_an_empty_class_is_named(split_folder):
    (split_folder / "train/bee").mkdir()
    with pytest.raises(DataError, match="bee has no images"):
        folder(split_folder)


def test_a_class_that_only_the_test_set_has_is_named(split_folder):
    picture(split_folder / "test/bee/a.png")
    with pytest.raises(DataError, match="bee is not one of the classes in train: ant, cat"):
        folder(split_folder)


def test_a_missing_folder_or_test_is_named(split_folder):
    with pytest.raises(DataError, match=r"there is no folder .*nowhere"):
        folder(split_folder / "nowhere")
    with pytest.raises(DataError, match="has no folders"):
        folder(split_folder / "train/cat")
    (split_folder / "test").rename(split_folder / "exam")
    with pytest.raises(DataError, match="has train, but neither test nor val"):
        folder(split_folder)
    (split_folder / "val").mkdir()
    with pytest.raises(DataError, match="val has no folders"):
        folder(split_folder)
