"""Similarities of one sample to all that are to be covered, and their sums, as `Geometry` holds them."""

import torch
from torch import Tensor

from smdl.engine import arithmetic
from smdl.engine.blocks import ROWS, BlockSide, tiles
from smdl.engine.geometry import Geometry
from smdl.engine.pool import real


def count_of(geometry: Geometry) -> int:
    """Return the number of samples that are to be covered."""
    return len(geometry.pool) if geometry.covered is None else len(geometry.covered)


def all_alike(geometry: Geometry) -> bool:
    """Whether all samples are the same point, so that no similarity says anything."""
    return geometry.pool.similarities is None and geometry.metric.bound == 0.0


def to_covered(geometry: Geometry, rows: Tensor) -> Tensor:
    """Return the similarities of some samples to every sample that is to be covered, (..., N) float32."""
    pool, count = geometry.pool, count_of(geometry)
    if all_alike(geometry):
        return torch.zeros(*rows.shape, count, device=pool.device)
    if geometry.graph is not None:
        near, values = geometry.on_device("graph.neighbours"), geometry.on_device("graph.similarities")
        zeros = torch.zeros(*rows.shape, len(pool), device=pool.device)
        return zeros.scatter_reduce(-1, near[rows].long(), values[rows], "amax")  # short rows repeat a column
    if geometry.similarities is not None:
        return geometry.similarities[rows]
    side, caps, parts = geometry.blocks.side(rows.reshape(-1)), geometry.caps, []
    for columns, covered in geometry.covered_blocks():
        found = geometry.blocks.similarities(side, covered)
        parts.append(found if caps is None else found.clamp_(max=caps[columns]))
    return torch.cat(parts, 1).reshape(*rows.shape, count)


def between(geometry: Geometry, i: Tensor, j: Tensor) -> Tensor:
    """Return s_ij + s_ji of the samples i and j, broadcast against each other."""
    wide, given = real(geometry.pool.device), geometry.pool.similarities
    if given is not None:
        return given[i, j].to(wide) + given[j, i].to(wide)
    if all_alike(geometry):
        return torch.zeros(torch.broadcast_shapes(i.shape, j.shape), dtype=wide, device=i.device)
    shares = (geometry.metric.between(i, j) * (1.0 / geometry.metric.bound)).clamp(max=1.0)
    return 2.0 * (1.0 - shares.to(torch.float32)).to(wide)


def row_sums(geometry: Geometry) -> Tensor:
    """Return Σ_j s_ij of every sample i over the samples j that are to be covered, (N,)."""
    if geometry.pool.similarities is not None:
        return geometry.pool.similarities.sum(1, dtype=real(geometry.pool.device))
    return _sums(geometry, [side for _, side in geometry.covered_blocks()], "row sums")


def sums_to_others(geometry: Geometry, name: str) -> Tensor:
    """Return Σ_q s_iq of every sample i over the rows of the query or of away_from, (N,)."""
    rows = geometry.others(name).split(ROWS)
    return _sums(geometry, [geometry.blocks.side_of(some) for some in rows], name)


def _sums(geometry: Geometry, others: list[BlockSide], what: str) -> Tensor:
    n, device = len(geometry.pool), geometry.pool.device
    out = torch.zeros(n, dtype=real(device), device=device)
    if all_alike(geometry):
        return out
    for part in tiles(n, ROWS):
        side = geometry.blocks.side(part)
        for other in others:
            nothing = torch.zeros(len(other.rows), device=device)
            geometry.blocks.add_rises(side, other, nothing, None, None, out[part])
        geometry.report(what, part.stop, n)
    return out


def column_sums(geometry: Geometry) -> Tensor:
    """Return Σ_i s_ij over all samples i, of every sample j that is to be covered, (N,)."""
    wide, device = real(geometry.pool.device), geometry.pool.device
    if geometry.similarities is not None and geometry.similarities.is_cpu:  # torch would first copy it as float64
        return torch.from_numpy(arithmetic.column_sums(geometry.similarities.numpy()))
    if geometry.similarities is not None:
        return geometry.similarities.sum(0, dtype=wide)
    out = torch.zeros(count_of(geometry), dtype=wide, device=device)
    if geometry.graph is not None:
        near, values = geometry.on_device("graph.neighbours"), geometry.on_device("graph.similarities")
        return out.scatter_add(0, near.reshape(-1).long(), values.reshape(-1).to(wide))
    every = torch.arange(len(geometry.pool), device=device)
    for rows in every.split(ROWS):
        out += to_covered(geometry, rows).sum(0, dtype=wide)
    return out
