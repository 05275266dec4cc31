"""Small files in the formats of the real data sets."""

import gzip
import pickle
import struct
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from scipy.io import savemat

RNG = np.random.default_rng(0)


Pickler: Any = pickle._Pickler  # type: ignore[attr-defined]


class Python2(Pickler):
    """Writes pickles as Python 2 did: one kind of string for text and bytes, and the old module names of numpy."""

    dispatch: ClassVar[dict[Any, Any]] = dict(Pickler.dispatch)

    def save_string(self, text: str | bytes) -> None:
        data = text.encode("latin1") if isinstance(text, str) else text
        self.write(b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(text)

    def save_global(self, obj: Any, name: str | None = None) -> None:
        home = obj.__module__.replace("numpy._core", "numpy.core")
        self.write(f"c{home}\n{name or obj.__qualname__}\n".encode())
        self.memoize(obj)

    dispatch[str] = dispatch[bytes] = save_string


def pickled(path: Path, content: Any, style: str = "python2") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        if style == "python2":
            Python2(file, 2).dump(content)
        else:
            pickle.dump(content, file, 2)


def images(n: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, 256, (n, *shape), dtype=np.uint8)


def cifar10(folder: Path, n: int = 20, style: str = "python2") -> dict[str, np.ndarray]:
    """Write batches of n images. Classes repeat in order."""
    made = {}
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        made[name] = images(n, 3072)
        labels = [i % 10 for i in range(n)]
        pickled(folder / name, {"batch_label": name, "labels": labels, "data": made[name]}, style)
    pickled(folder / "batches.meta", {"label_names": [f"thing {i}" for i in range(10)]}, style)
    return made


def cifar100(folder: Path, n: int = 200) -> dict[str, np.ndarray]:
    made = {}
    for name in ("train", "test"):
        made[name] = images(n, 3072)
        labels = [i % 100 for i in range(n)]
        content = {b"fine_labels": labels, b"coarse_labels": [0] * n, b"data": made[name]}
        pickled(folder / name, content, "python3")
    pickled(folder / "meta", {b"fine_label_names": [f"thing {i}".encode() for i in range(100)]}, "python3")
    return made


def svhn(folder: Path, n: int = 20) -> dict[str, np.ndarray]:
    """Write labels 1, 2, ..., 10, repeated."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name in ("train", "test"):
        made[name] = images(32, 32, 3, n)
        savemat(folder / f"{name}_32x32.mat", {"X": made[name], "y": (np.arange(n) % 10 + 1).astype(np.uint8)[:, None]})
    return made


def idx(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, values.ndim]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(gzip.compress(header + values.tobytes()))


def fashion_mnist(folder: Path, n: int = 20) -> dict[str, np.ndarray]:
    made = {}
    for name in ("train", "t10k"):
        made[name] = images(n, 28, 28)
        idx(folder / f"{name}-images-idx3-ubyte.gz", made[name])
        idx(folder / f"{name}-labels-idx1-ubyte.gz", (np.arange(n) % 10).astype(np.uint8))
    return made
