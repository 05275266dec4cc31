"""Read a folder of images with one subfolder per class."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smdl.common.progress_bar import progress_bar
from smdl.training.datasets.formats import ArrayPart, DataSource
from smdl.training.datasets.problems import DamagedError, DataError
from smdl.training.datasets.subsets import generator, stratified_split

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".webp")
LAYOUT = "data.root must hold train/<class>/*.png and test/<class>/*.png, or <class>/*.png"


def folder(root: Path, resolution: int | None = None, seed: int = 0) -> DataSource:
    """Read root/train/<class>/* and root/test (or val)/<class>/*, or split root/<class>/*: a fifth is the test set.

    Images are greyscale if all files are, RGB otherwise, and are resized to `resolution` pixels per side if given.
    """
    if not root.is_dir():
        raise DataError(f"{LAYOUT}; there is no folder {root}")
    base = root / "train" if _folders(root / "train") else root
    classes = [path.name for path in _folders(base)]
    files, labels = _list_images(base, classes)
    if base == root:
        parts = stratified_split(labels, 0.2, generator(seed, "folder"))
    else:
        other = next((root / name for name in ("test", "val") if (root / name).is_dir()), None)
        if other is None:
            raise DataError(f"{LAYOUT}; {root} has train, but neither test nor val")
        parts = slice(len(files)), slice(len(files), None)
        more_files, more_labels = _list_images(other, classes)
        files, labels = files + more_files, np.concatenate([labels, more_labels])
    images, targets = _read(files, labels, resolution)
    train, test = (ArrayPart(images[rows], targets[rows]) for rows in parts)
    return DataSource(train, test, classes)


def _folders(path: Path) -> list[Path]:
    """Return the subfolders in order, without hidden ones."""
    found = path.iterdir() if path.is_dir() else ()
    return sorted(entry for entry in found if entry.is_dir() and not entry.name.startswith("."))


def _list_images(root: Path, classes: list[str]) -> tuple[list[Path], np.ndarray]:
    """Return (image files below root in order, class number of each file)."""
    files: list[Path] = []
    labels: list[int] = []
    for path in _folders(root):
        if path.name not in classes:
            raise DataError(f"{path} is not one of the classes in train: {', '.join(classes)}")
        images = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
        if not images:
            raise DataError(f"{path} has no images ({', '.join(SUFFIXES)}); add some, or remove the folder")
        files += images
        labels += [classes.index(path.name)] * len(images)
    if not files:
        raise DataError(f"{LAYOUT}; {root} has no folders")
    return files, np.array(labels, dtype=np.int64)


def _read(files: list[Path], labels: np.ndarray, resolution: int | None) -> ArrayPart:
    """Read all headers first, for the mode and the size of the images, then the pixels."""
    modes, sizes = set(), Counter()
    for path in files:
        with _open_image(path) as image:
            modes.add(image.mode)
            sizes[image.size] += 1
    if resolution is None and len(sizes) > 1:
        some = ", ".join(f"{width} × {height} ({count})" for (width, height), count in sizes.most_common(3))
        raise DataError(f"images must have one size, or data.resolution must be given; found {some}, ...")
    mode, channels = ("L", 1) if modes == {"L"} else ("RGB", 3)
    width, height = (resolution, resolution) if resolution else next(iter(sizes))
    images = torch.empty(len(files), channels, height, width, dtype=torch.uint8)
    with progress_bar(f"reading {len(files)} images", len(files)) as advance:
        for row, path in zip(images, files, strict=True):
            with _open_image(path) as image:
                pixels = image.convert(mode).resize((width, height), 2)  # bilinear, and antialiased
            row.copy_(torch.from_numpy(np.array(pixels).reshape(height, width, channels)).permute(2, 0, 1))
            advance(1)
    return ArrayPart(images, torch.from_numpy(labels))


@contextmanager
def _open_image(path: Path) -> Iterator[Any]:
    from PIL import Image

    try:
        with Image.open(path) as image:
            yield image
    except Exception as error:  # a damaged image can fail in any way
        raise DamagedError(path, f"an image was expected, reading it gave {error!r}") from error
