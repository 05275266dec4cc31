"""What the report of a selection shows, as files: a map, gains, groups, distances to the nearest chosen row."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.offline.job import Job, Part
from smdl.offline.output import Table
from smdl.training.files import write_bytes, write_json

#: Random rows on the map, that distances are measured from; chosen rows on the map; rows in the table of neighbours.
SAMPLE, SHOWN, PAIRS = 2000, 5000, 8
#: Most groups that the report lists.
GROUPS = 40
#: Streams of random rows.
_SAMPLE, _RANDOM = 0, 1


def write_snapshot(folder: Path, job: Job, part: Part, table: Table, settings: dict[str, Any], seconds: float) -> None:
    """Write selection.json and map.npz. Distances are Euclidean, between rows that were not chosen and chosen ones."""
    source = job.source
    sample = _random_rows(job, _SAMPLE, SAMPLE)
    chosen_rows = np.sort(part.rows)
    points, chosen = _floats(source.take(sample)["features"]), _floats(source.take(chosen_rows)["features"])
    random_rows = _random_rows(job, _RANDOM, len(part.rows))
    others = _floats(source.take(random_rows)["features"])
    outside = ~np.isin(sample, part.rows) & ~np.isin(sample, random_rows)
    distances, nearest = _nearest(points[torch.from_numpy(outside)], chosen)
    by_chance, _ = _nearest(points[torch.from_numpy(outside)], others)
    centre, axes = _axes(points)
    shown = np.argsort(part.rows) < SHOWN  # the first picks
    map_file = io.BytesIO()
    np.savez(
        map_file,
        sample=((points - centre) @ axes).numpy(),
        chosen=((chosen - centre) @ axes).numpy()[shown],
    )
    write_bytes(folder / "map.npz", map_file.getvalue())
    ranks = {int(row): rank for rank, row in enumerate(part.rows, 1)}
    pairs = [
        {
            "row": _place(job, int(sample[outside][i])),
            "nearest": _place(job, int(chosen_rows[nearest[i]])),
            "rank": ranks[int(chosen_rows[nearest[i]])],
            "distance": float(distances[i]),
        }
        for i in _spread(len(distances), PAIRS)
    ]
    write_json(
        folder / "selection.json",
        {
            "title": f"{len(part.rows):,} of {len(source):,} rows",
            "rows": len(source),
            "width": source.width,
            "dtype": source.dtype.name,
            "shards": len(source.shards),
            "left_out": len(job.dropped),
            "plan": job.plan.lines(),
            "settings": settings,
            "seconds": seconds,
            "gains": part.gains.tolist(),
            "recall": None if np.isnan(part.recall) else part.recall,
            "distance": {"chosen": _summary(distances), "random": _summary(by_chance), "rows": int(outside.sum())},
            "groups": _groups(job, table),
            "pairs": pairs,
        },
        checksum=True,
    )


def _groups(job: Job, table: Table) -> list[dict[str, Any]] | None:
    """Return rows and chosen rows per group, the largest groups first."""
    if "group" not in table:
        return None
    names, counts = np.unique(job.source.column("groups"), return_counts=True)
    chosen = dict(zip(*(found.tolist() for found in np.unique(table["group"], return_counts=True)), strict=True))
    order = np.argsort(-counts, kind="stable")[:GROUPS]
    return [
        {"group": str(names[i]), "rows": int(counts[i]), "chosen": int(chosen.get(names[i].item(), 0))} for i in order
    ]


def _random_rows(job: Job, stream: int, count: int) -> np.ndarray:
    """Return up to `count` random rows that are finite, ascending."""
    total = len(job.source)
    drawn = np.random.default_rng([job.seed, stream]).choice(total, min(total, count + len(job.dropped)), replace=False)
    return np.sort(drawn[~np.isin(drawn, job.dropped)][:count])


def _spread(total: int, count: int) -> Sequence[int]:
    """Return up to `count` places, evenly spread."""
    return np.unique(np.linspace(0, total - 1, min(total, count)).round().astype(int)).tolist() if total else []


def _nearest(points: Tensor, chosen: Tensor, step: int = 256) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of each point to its nearest chosen row, and the place of that row."""
    if not len(points):
        return np.empty(0), np.empty(0, np.int64)
    found = [torch.cdist(part, chosen).min(dim=1) for part in points.split(step)]
    return torch.cat([each.values for each in found]).numpy(), torch.cat([each.indices for each in found]).numpy()


def _axes(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return the centre and the first two principal axes, (D,) and (D, 2)."""
    centre = points.mean(dim=0)
    values, vectors = torch.linalg.eigh(torch.cov((points - centre).double().T).reshape(points.shape[1], -1))
    axes = vectors[:, values.argsort(descending=True)[:2]].float()
    axes = axes * torch.sign(axes.gather(0, axes.abs().argmax(dim=0, keepdim=True)))  # an axis has no sign of its own
    return centre, torch.nn.functional.pad(axes, (0, 2 - axes.shape[1]))


def _floats(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.array(values, np.float32))


def _summary(distances: np.ndarray) -> dict[str, float] | None:
    if not len(distances):
        return None
    return {"mean": float(distances.mean()), "p95": float(np.quantile(distances, 0.95)), "max": float(distances.max())}


def _place(job: Job, row: int) -> dict[str, Any]:
    shard, inside = job.source.place(np.array([row]))
    return {"shard": job.source.shards[int(shard[0])].path, "row": int(inside[0])}
