"""Read the files of the built-in sets as uint8 images (N, C, H, W) and class numbers, and check them."""

import gzip
import math
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.training.datasets.problems import DamagedError
from smdl.training.datasets.subsets import generator, stratified_split
from smdl.training.datasets.unpickle import unpickle

FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
TEN = [str(digit) for digit in range(10)]


class ArrayPart(NamedTuple):
    """Images (N, C, H, W) uint8 and labels (N,) int64."""

    images: Tensor
    labels: Tensor


class DataSource(NamedTuple):
    """A data set as it is in its files."""

    train: ArrayPart
    test: ArrayPart
    classes: list[str]


def fashion_mnist(folder: Path) -> DataSource:
    """Read four gzipped idx files."""
    return _idx_files(folder, FASHION)


def mnist(folder: Path) -> DataSource:
    """Read four gzipped idx files of the same names."""
    return _idx_files(folder, TEN)


def _idx_files(folder: Path, classes: list[str]) -> DataSource:
    parts = []
    for start in ("train", "t10k"):
        path = folder / f"{start}-labels-idx1-ubyte.gz"
        images = idx(folder / f"{start}-images-idx3-ubyte.gz", 28, 28)
        parts.append(_part(path, images[:, None], idx(path), (1, 28, 28), len(classes)))
    return DataSource(parts[0], parts[1], classes)


def cifar10(folder: Path) -> DataSource:
    """Read five pickled training batches and one test batch."""
    classes = _names(folder / "batches.meta", "label_names")
    batches = [_cifar(folder / f"data_batch_{number}", "labels", classes) for number in range(1, 6)]
    train = ArrayPart(torch.cat([batch.images for batch in batches]), torch.cat([batch.labels for batch in batches]))
    return DataSource(train, _cifar(folder / "test_batch", "labels", classes), classes)


def cifar100(folder: Path) -> DataSource:
    """Read two pickles, with the hundred fine classes."""
    classes = _names(folder / "meta", "fine_label_names")
    train, test = (_cifar(folder / name, "fine_labels", classes) for name in ("train", "test"))
    return DataSource(train, test, classes)


def svhn(folder: Path) -> DataSource:
    """Read two MATLAB files, in which class 10 is the digit 0."""
    from scipy.io import loadmat

    parts = []
    for path in (folder / "train_32x32.mat", folder / "test_32x32.mat"):
        try:
            content = loadmat(path, variable_names=("X", "y"))
            images, labels = np.asarray(content["X"]), np.asarray(content["y"]).ravel()
        except PermissionError:
            raise
        except Exception as error:  # scipy's reader fails in many ways
            raise DamagedError(path, f"a MATLAB file with X and y was expected, reading it gave {error!r}") from error
        if images.ndim != 4:
            raise DamagedError(path, f"X of shape (32, 32, 3, N) was expected, found {_kind(images)}")
        if labels.dtype.kind not in "iu" or (len(labels) and not 1 <= labels.min() <= labels.max() <= 10):
            raise DamagedError(path, "y was expected to hold whole numbers from 1 to 10 (the digit 0)")
        parts.append(_part(path, images.transpose(3, 2, 0, 1), labels % 10, (3, 32, 32), 10))
    return DataSource(parts[0], parts[1], TEN)


def digits() -> DataSource:
    """Return the 1,797 digits of 8 × 8 pixels of scikit-learn, with a fixed split: 1,197 for training, 600 for test."""
    from sklearn.datasets import load_digits

    found: Any = load_digits()
    images, labels = np.round(found.images * (255 / 16)).astype(np.uint8)[:, None], found.target
    train, test = stratified_split(labels, 600 / 1797, generator(0, "digits"))
    train, test = (_part(Path("load_digits()"), images[rows], labels[rows], (1, 8, 8), 10) for rows in (train, test))
    return DataSource(train, test, TEN)


def idx(path: Path, *shape: int) -> np.ndarray:
    """Read N items of this shape from a gzipped idx file: 0, 0, 8 (uint8), number of dimensions, sizes, data."""
    magic = bytes([0, 0, 8, 1 + len(shape)])
    try:
        with gzip.open(path) as file:
            content = file.read()
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DamagedError(path, f"a complete gzip file was expected, reading it gave {error!r}") from error
    start = 4 * (2 + len(shape))
    if content[:4] != magic or len(content) < start:
        raise DamagedError(
            path, f"an idx file of {magic.hex()} was expected, it begins with {content[:4].hex() or 'nothing'}"
        )
    sizes = np.frombuffer(content[4:start], ">u4").tolist()
    if sizes[1:] != list(shape) or len(content) - start != math.prod(sizes):
        raise DamagedError(
            path, f"N items of shape {shape} were expected, found {len(content) - start} bytes for {sizes}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(sizes)


def _cifar(path: Path, key: str, classes: list[str]) -> ArrayPart:
    """Read one pickle: `data` (N, 3072), the red plane first, and labels."""
    content = unpickle(path)
    images, labels = content.get("data"), content.get(key)
    if not isinstance(images, np.ndarray) or images.ndim != 2 or images.shape[1] != 3072:
        raise DamagedError(path, f"'data' of shape (N, 3072) was expected, found {_kind(images)}")
    return _part(path, images.reshape(-1, 3, 32, 32), labels, (3, 32, 32), len(classes))


def _names(path: Path, key: str) -> list[str]:
    names = unpickle(path).get(key)
    if not isinstance(names, list) or not names:
        raise DamagedError(path, f"a list of names under {key!r} was expected, found {_kind(names)}")
    return [name.decode("latin1") if isinstance(name, bytes) else str(name) for name in names]


def _part(path: Path, images: np.ndarray, labels: Any, shape: tuple[int, ...], classes: int) -> ArrayPart:
    """Check images and labels: images of this shape, with one whole number below `classes` per image."""
    if images.dtype != np.uint8 or images.shape[1:] != shape or not len(images):
        raise DamagedError(path, f"uint8 images of shape {shape} were expected, found {_kind(images)}")
    try:
        labels = np.asarray(labels)
    except ValueError:  # lists of different lengths
        labels = np.empty(0, object)
    if labels.dtype.kind not in "iu" or labels.shape != (len(images),):
        raise DamagedError(path, f"{len(images)} whole labels were expected, found {_kind(labels)}")
    if not 0 <= labels.min() <= labels.max() < classes:
        raise DamagedError(
            path, f"labels from 0 to {classes - 1} were expected, found {labels.min()} to {labels.max()}"
        )
    # A copy where memory is not in order, or not ours to write to: torch wants both.
    return ArrayPart(torch.from_numpy(np.require(images, None, ["C", "W"])), torch.from_numpy(labels.astype(np.int64)))


def _kind(value: Any) -> str:
    return f"{value.dtype} {value.shape}" if isinstance(value, np.ndarray) else type(value).__name__
