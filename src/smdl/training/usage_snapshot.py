"""A portrait of what was selected, for pictures that need nothing but files."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from smdl.pool import host
from smdl.scoring import Scorer
from smdl.training.datasets.in_memory import InMemory
from smdl.training.evaluation import batches_of, sample
from smdl.training.files import replacing

#: Samples shown of each kind, and points of the map.
SHOWN, POINTS = 24, 1000


def write_usage_snapshot(path: Path, dataset: Dataset, model: nn.Module, counts: np.ndarray) -> None:
    """An .npz of plain arrays: the most and the least used samples (images, labels, counts), and some features in
    two dimensions with how often each sample was used. Nothing for data that is not held as images."""
    if not isinstance(dataset, InMemory) or dataset.images.ndim != 4:
        return
    order = np.argsort(-counts, kind="stable")
    arrays = {}
    for name, rows in (("most", order[:SHOWN]), ("least", order[::-1][:SHOWN])):
        chosen = torch.from_numpy(rows.copy())
        arrays |= {
            f"{name}_images": dataset.images[chosen].numpy(),
            f"{name}_labels": dataset.labels[chosen].numpy(),
            f"{name}_counts": counts[rows],
        }
    points = sample(dataset, POINTS, 0)
    scores = Scorer(model).all(batches_of(points, 500), len(points))  # type: ignore[arg-type]
    rows = np.asarray(points.indices)  # type: ignore[attr-defined]
    arrays |= {"map": _plane(host(scores.features)), "map_labels": host(scores.labels), "map_counts": counts[rows]}
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


def _plane(features: np.ndarray) -> np.ndarray:
    """The first two principal components, (N, D) -> (N, 2), each with its largest entry's sign made positive."""
    centred = features - features.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    axes = axes * np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    return np.pad(centred @ axes.T, ((0, 0), (0, 2 - len(axes)))).astype(np.float32)
