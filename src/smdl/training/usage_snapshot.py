"""Write which samples a run used, so that a report can show them from files alone."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

from smdl.common.principal import principal_axes
from smdl.common.storage import replacing
from smdl.engine.pool import host
from smdl.scoring.scorer import Scorer
from smdl.training.datasets.in_memory import InMemory
from smdl.training.evaluation import batches_of, fixed_subset

#: Samples shown of each kind, and points on the map.
SHOWN, POINTS = 24, 1000


def write_usage_snapshot(path: Path, dataset: Dataset, model: nn.Module, counts: np.ndarray) -> None:
    """Write an .npz of plain arrays: images, labels and counts of the most and the least used samples, and a map: the
    features of some samples in two dimensions, with their labels and counts. Write nothing unless the dataset holds
    images in memory."""
    if not isinstance(dataset, InMemory) or dataset.images.ndim != 4:
        return
    order = np.argsort(-counts, kind="stable")
    arrays = {}
    for name, rows in (("most", order[:SHOWN]), ("least", order[::-1][:SHOWN])):
        index = torch.from_numpy(rows.copy())
        arrays |= {
            f"{name}_images": dataset.images[index].numpy(),
            f"{name}_labels": dataset.labels[index].numpy(),
            f"{name}_counts": counts[rows],
        }
    points = fixed_subset(dataset, POINTS, 0)
    scores = Scorer(model).all(batches_of(points, 500), len(points))  # type: ignore[arg-type]
    assert scores.labels is not None
    rows = np.asarray(points.indices)  # type: ignore[attr-defined]
    features = host(scores.features)
    centre, axes, _ = principal_axes(torch.from_numpy(features))
    shown = (features - centre.numpy()) @ axes.numpy()
    arrays |= {"map": shown, "map_labels": host(scores.labels), "map_counts": counts[rows]}
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)
