"""What the report of a selection shows, as files: a map, gains, groups, distances to the nearest chosen row."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.common.principal import principal_axes
from smdl.common.storage import write_bytes, write_json
from smdl.files.images import ImageRows, thumbnail
from smdl.files.job import ChosenPart, Job, objective_of
from smdl.files.output import Table
from smdl.files.rows import Rows, numbered
from smdl.files.texts import TextRows

#: Random rows on the map, that distances are measured from; chosen rows on the map; rows in the table of neighbours.
SAMPLE, SHOWN, PAIRS = 2000, 5000, 8
#: Most groups that the report lists; letters of a text that it shows.
GROUPS, EXCERPT = 40, 160
#: Streams of random rows.
_SAMPLE, _RANDOM = 0, 1


def write_snapshot(
    folder: Path,
    job: Job,
    part: ChosenPart,
    table: Table,
    settings: dict[str, Any],
    seconds: float,
    sizes: Sequence[int] = (),
) -> None:
    """Write selection.json and map.npz. Distances are Euclidean, between rows that were not chosen and chosen ones.
    `sizes` are numbers of first rows whose distances the page shows too."""
    source = job.source
    sample = _random_rows(job, _SAMPLE, SAMPLE)
    chosen_rows = np.sort(part.rows)
    points, chosen = floats_of(source.features_at(sample)), floats_of(source.features_at(chosen_rows))
    random_rows = _random_rows(job, _RANDOM, len(part.rows))
    others = floats_of(source.features_at(random_rows))
    outside = ~np.isin(sample, part.rows) & ~np.isin(sample, random_rows)
    rest = points[torch.from_numpy(outside)]
    distances, nearest = _nearest(rest, chosen)
    by_chance, _ = _nearest(rest, others)
    first = np.argsort(part.rows) < SHOWN  # of the picks
    held = write_map(folder / "map.npz", points, {"chosen": chosen[torch.from_numpy(first)]})
    some = spread(len(distances), PAIRS)
    shown = zip(places(source, sample[outside][some]), places(source, chosen_rows[nearest[some]]), strict=True)
    ranks = np.argsort(part.rows)[nearest[some]] + 1
    pairs = [
        {"row": row, "nearest": near, "rank": int(rank), "distance": float(distance)}
        for (row, near), rank, distance in zip(shown, ranks, distances[some], strict=True)
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
            "variance_on_map": held,
            "plan": job.plan.lines(),
            "settings": settings,
            "seconds": seconds,
            "gains": part.gains.tolist(),
            "shares": dict(zip(objective_of(job.objective).weights, part.shares.tolist(), strict=False)),
            "recall": None if np.isnan(part.recall) else part.recall,
            "distance": {"chosen": _summary(distances), "random": _summary(by_chance), "rows": int(outside.sum())},
            "sizes": [
                {
                    "size": size,
                    "value": float(part.gains[:size].sum()),
                    **_of_size(size, part.rows, rest, chosen, others),
                }
                for size in sizes
                if size <= len(part.rows)
            ],
            "groups": _groups(job, table, sample[outside], distances),
            "pairs": pairs,
        },
        checksum=True,
    )


def write_map(path: Path, sample: Tensor, others: Mapping[str, Tensor], **more: Any) -> float:
    """Write the first two principal components of a sample, and other rows along them. Return their share of
    variance."""
    centre, axes, held = principal_axes(sample)
    placed = {name: ((rows - centre) @ axes).numpy() for name, rows in {"sample": sample, **others}.items()}
    file = io.BytesIO()
    np.savez(file, **placed, **more)
    write_bytes(path, file.getvalue())
    return held


def _of_size(size: int, order: np.ndarray, rest: Tensor, chosen: Tensor, others: Tensor) -> dict[str, float | None]:
    """Return the mean distance to the first `size` chosen rows, and to as many random ones."""
    if not len(rest):
        return {"chosen": None, "random": None}
    first = torch.from_numpy(np.argsort(np.argsort(order)))[:size]  # chosen rows ascend
    drawn = torch.from_numpy(np.random.default_rng(size).permutation(len(others))[:size])
    found = {"chosen": chosen[first], "random": others[drawn]}
    return {name: float(_nearest(rest, rows)[0].mean()) for name, rows in found.items()}


def _groups(job: Job, table: Table, sample: np.ndarray, distances: np.ndarray) -> list[dict[str, Any]] | None:
    """Return rows, chosen rows and the mean distance of the sample's rows per group, the largest groups first."""
    if "group" not in table:
        return None
    names, numbers = numbered(job.source.column("groups"))
    counts, chosen = (np.bincount(found, minlength=len(names)) for found in (numbers, numbers[table["index"]]))
    order = np.argsort(-counts, kind="stable")[:GROUPS]
    inside = {i: distances[numbers[sample] == i] for i in order.tolist()}
    return [
        {
            "group": "(none)" if names[i] in ("", None) else str(names[i]),
            "rows": int(counts[i]),
            "chosen": int(chosen[i]),
            "distance": float(inside[i].mean()) if len(inside[i]) else None,
        }
        for i in order.tolist()
    ]


def _random_rows(job: Job, stream: int, count: int) -> np.ndarray:
    """Return up to `count` random rows that are finite, ascending."""
    total = len(job.source)
    drawn = np.random.default_rng([job.seed, stream]).choice(total, min(total, count + len(job.dropped)), replace=False)
    return np.sort(drawn[~np.isin(drawn, job.dropped)][:count])


def spread(total: int, count: int) -> np.ndarray:
    """Return up to `count` places, evenly spread."""
    return np.unique(np.linspace(0, total - 1, min(total, count)).round().astype(np.int64))


def _nearest(points: Tensor, chosen: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of each point to its nearest chosen row, and the place of that row."""
    if not len(points):
        return np.empty(0), np.empty(0, np.int64)
    found = [torch.cdist(part, chosen).min(dim=1) for part in points.split(256)]
    return torch.cat([each.values for each in found]).numpy(), torch.cat([each.indices for each in found]).numpy()


def floats_of(values: np.ndarray) -> Tensor:
    """Return a copy as float32."""
    return torch.from_numpy(np.array(values, np.float32))


def _summary(distances: np.ndarray) -> dict[str, float] | None:
    if not len(distances):
        return None
    return {"mean": float(distances.mean()), "p95": float(np.quantile(distances, 0.95)), "max": float(distances.max())}


def places(source: Rows, rows: np.ndarray) -> list[dict[str, Any]]:
    """Describe rows: the file, the row within it, and the beginning of its text, or its image, if it has one."""
    shards, inside = source.place(rows)
    found = [{"shard": source.shards[shard].path, "row": int(row)} for shard, row in zip(shards, inside, strict=True)]
    if isinstance(source, TextRows):
        unique, where = np.unique(rows, return_inverse=True)
        texts = source.texts_at(unique)
        images = [thumbnail(path) for path in source.paths_at(unique)] if isinstance(source, ImageRows) else []
        for entry, place in zip(found, where, strict=True):
            entry["text"] = textwrap.shorten(texts[place], EXCERPT, placeholder=" …")
            if images:
                entry["thumbnail"] = images[place]
    return found
