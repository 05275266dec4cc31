"""Small files of each format are read, and damaged files are named."""

import gzip

import numpy as np
import pytest
import torch
from scipy.io import savemat

from smdl.training.datasets import formats
from smdl.training.datasets.problems import DamagedError
from tests.training.datasets import made


def test_fashion_mnist_is_read(tmp_path):
    written = made.fashion_mnist(tmp_path, 20)
    source = formats.fashion_mnist(tmp_path)
    assert source.train.images.shape == (20, 1, 28, 28)
    assert source.train.images.dtype == torch.uint8
    assert np.array_equal(source.train.images[:, 0].numpy(), written["train"])
    assert np.array_equal(source.test.images[:, 0].numpy(), written["t10k"])
    assert source.test.labels.tolist() == [i % 10 for i in range(20)]
    assert source.classes[9] == "Ankle boot"
    assert formats.mnist(tmp_path).classes[9] == "9"


@pytest.mark.parametrize("style", ["python2", "python3"])
def test_cifar10_is_read(tmp_path, style):
    written = made.cifar10(tmp_path, 20, style)
    source = formats.cifar10(tmp_path)
    assert source.train.images.shape == (100, 3, 32, 32)
    assert source.train.images.is_contiguous()
    for number in range(5):
        expected = written[f"data_batch_{number + 1}"]
        assert np.array_equal(source.train.images[20 * number : 20 * number + 20].flatten(1).numpy(), expected)
    assert np.array_equal(source.test.images.flatten(1).numpy(), written["test_batch"])
    assert source.train.labels.dtype == torch.int64
    assert source.train.labels.tolist() == [i % 10 for i in range(20)] * 5
    assert source.classes == [f"thing {i}" for i in range(10)]


def test_cifar100_is_read_with_its_fine_labels(tmp_path):
    written = made.cifar100(tmp_path, 200)
    source = formats.cifar100(tmp_path)
    assert np.array_equal(source.train.images.flatten(1).numpy(), written["train"])
    assert source.test.labels.tolist() == [i % 100 for i in range(200)]
    assert source.classes[42] == "thing 42"


def test_svhn_is_read_and_its_ten_is_a_zero(tmp_path):
    written = made.svhn(tmp_path, 20)
    source = formats.svhn(tmp_path)
    assert source.train.images.shape == (20, 3, 32, 32)
    assert source.train.images.is_contiguous()
    assert np.array_equal(source.train.images[7, 2].numpy(), written["train"][:, :, 2, 7])
    assert source.train.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0] * 2


def test_the_split_of_the_digits_is_fixed():
    source = formats.digits()
    assert source.train.images.shape == (1197, 1, 8, 8)
    assert source.test.images.shape == (600, 1, 8, 8)
    assert int(source.train.images.max()) == 255
    assert int(source.train.labels.bincount().min()) > 110
    assert source.test.labels.bincount().tolist() == [59, 61, 59, 61, 61, 61, 60, 60, 58, 60]
    assert torch.equal(formats.digits().test.images, source.test.images)


def broken(function, folder, path, problem):
    with pytest.raises(DamagedError, match=problem) as caught:
        function(folder)
    assert caught.value.path == path
    assert str(path) in str(caught.value)


def idx_file(magic=b"\0\0\x08\x03", shape=(2, 28, 28), data=2 * 784):
    return gzip.compress(magic + b"".join(size.to_bytes(4, "big") for size in shape) + bytes(data))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "begins with nothing"),
        (b"no gzip", "complete gzip file"),
        (idx_file()[:-10], "complete gzip file"),
        (idx_file(magic=b"\0\0\x08\x01"), "of 00000803 was expected, it begins with 00000801"),
        (idx_file(shape=(2, 28)), "found .* bytes for"),
        (gzip.compress(b"\0\0\x08\x03\0\0"), "begins with 00000803"),
        (idx_file(shape=(3, 28, 28)), r"found 1568 bytes for \[3, 28, 28\]"),
        (idx_file(data=2000), r"found 2000 bytes for \[2, 28, 28\]"),
        (idx_file(shape=(2, 14, 56)), r"shape \(28, 28\) were expected"),
        (idx_file(shape=(2**32 - 1,) * 3), "found 1568 bytes"),
    ],
    ids=["empty", "plain", "truncated", "magic", "header", "short", "fewer", "more", "size", "huge"],
)
def test_a_broken_idx_file_is_named(tmp_path, content, problem):
    made.fashion_mnist(tmp_path, 2)
    path = tmp_path / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(content)
    broken(formats.fashion_mnist, tmp_path, path, problem)


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([0, 10], "labels from 0 to 9 were expected, found 0 to 10"),
        ([0, 1, 2], r"2 whole labels .* found uint8 \(3,\)"),
    ],
)
def test_labels_that_do_not_fit_are_named(tmp_path, labels, problem):
    made.fashion_mnist(tmp_path, 2)
    path = tmp_path / "train-labels-idx1-ubyte.gz"
    made.idx(path, np.array(labels, np.uint8))
    broken(formats.fashion_mnist, tmp_path, path, problem)


def test_a_file_without_images_is_named(tmp_path):
    made.fashion_mnist(tmp_path, 0)
    broken(formats.fashion_mnist, tmp_path, tmp_path / "train-labels-idx1-ubyte.gz", r"found uint8 \(0, 1, 28, 28\)")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"labels": [0, 1]}, "'data' of shape .* found NoneType"),
        ({"data": made.images(2, 3000), "labels": [0, 1]}, r"found uint8 \(2, 3000\)"),
        ({"data": made.images(2, 3072).astype(np.float64), "labels": [0, 1]}, "found float64"),
        ({"data": made.images(2, 3072), "labels": [0]}, "2 whole labels"),
        ({"data": made.images(2, 3072), "labels": [[0], [1, 2]]}, "2 whole labels"),
        ({"data": made.images(2, 3072), "labels": ["a", "b"]}, "2 whole labels"),
        ({"data": made.images(2, 3072)}, "2 whole labels"),
        ({"data": made.images(2, 3072), "labels": [0, -1]}, "found -1 to 0"),
    ],
)
def test_a_wrong_cifar_batch_is_named(tmp_path, content, problem):
    made.cifar10(tmp_path, 2)
    made.pickled(tmp_path / "data_batch_4", content)
    broken(formats.cifar10, tmp_path, tmp_path / "data_batch_4", problem)


def test_missing_class_names_are_reported(tmp_path):
    made.cifar10(tmp_path, 2)
    made.pickled(tmp_path / "batches.meta", {"label_names": []})
    broken(formats.cifar10, tmp_path, tmp_path / "batches.meta", "list of names under 'label_names'")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"X": made.images(32, 32, 3, 4)}, "with X and y"),
        ({"X": made.images(32, 32, 3), "y": np.ones(1, np.uint8)}, "X of shape"),
        ({"X": made.images(16, 16, 3, 4), "y": np.ones(4, np.uint8)}, r"\(3, 32, 32\) were expected"),
        ({"X": made.images(32, 32, 3, 4), "y": np.ones(5, np.uint8)}, "4 whole labels"),
        ({"X": made.images(32, 32, 3, 4), "y": np.full(4, 11, np.uint8)}, "from 1 to 10"),
        ({"X": made.images(32, 32, 3, 4), "y": np.zeros(4, np.uint8)}, "from 1 to 10"),
        ({"X": made.images(32, 32, 3, 4), "y": np.full(4, 0.5)}, "from 1 to 10"),
    ],
)
def test_a_wrong_mat_file_is_named(tmp_path, content, problem):
    made.svhn(tmp_path, 4)
    savemat(tmp_path / "test_32x32.mat", content)
    broken(formats.svhn, tmp_path, tmp_path / "test_32x32.mat", problem)


@pytest.mark.parametrize("keep", [0, 10, 200, 3000])
def test_a_truncated_mat_file_is_named(tmp_path, keep):
    made.svhn(tmp_path, 4)
    path = tmp_path / "train_32x32.mat"
    path.write_bytes(path.read_bytes()[:keep])
    broken(formats.svhn, tmp_path, path, "a MATLAB file")
