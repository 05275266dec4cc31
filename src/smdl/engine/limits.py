"""Which samples may be picked, how many, and at what cost: the arguments of `select` that limit the choice."""

import math
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

import numpy as np
import torch

from smdl.common.messages import choice, number, one_of, positive, whole_number
from smdl.common.names import OptimizerName
from smdl.engine.greedy.maximise import Limits
from smdl.engine.pool import Array
from smdl.engine.shares import quotas_of_shares


def check_size(size: int | tuple[int, int], penalty: float | None, n: int) -> tuple[int, int, float]:
    """Return the least and the greatest number of picks, and the gain below which to stop in between."""
    if isinstance(size, tuple):
        if len(size) != 2 or not all(isinstance(s, int | np.integer) for s in size) or not 1 <= size[0] <= size[1]:
            raise ValueError(choice("size", size, "a number, or (low, high) with 1 ≤ low ≤ high"))
        penalty = number("size_penalty", penalty, "a finite number where size is (low, high)")
        low, high = size
    else:
        if penalty is not None:
            raise ValueError(choice("size", size, "(low, high) where size_penalty is given"))
        low = high = whole_number("size", size)
        penalty = -math.inf
    if high > n:
        raise ValueError(choice("size", high, f"at most the {n} candidates"))
    return int(low), int(high), float(penalty)


def size_of(size: Any, fraction: float | None, limits: Limits | None, candidates: np.ndarray) -> int | tuple[int, int]:
    """Return the size that was asked for: `size`, `fraction` of the candidates, or as many as the limits allow."""
    if size is not None and fraction is not None:
        raise ValueError("size and fraction both say how many samples to pick: pass one of them")
    if fraction is not None:
        return share_of(fraction, len(candidates))
    if size is not None:
        return size
    if limits is None:
        raise TypeError("size is missing: select(pool, objective, size) needs the number of samples to pick")
    return most_picks(limits, candidates)


def share_of(fraction: float, candidates: int) -> int:
    """Return how many of the candidates a fraction of them is, rounded up."""
    share = number("fraction", fraction, "a number in (0, 1]", low=0.0, high=1.0)
    if share == 0.0:
        raise ValueError(choice("fraction", fraction, "a number in (0, 1]"))
    return max(1, math.ceil(share * candidates - 1e-9))


def most_picks(limits: Limits, candidates: np.ndarray) -> int:
    """Return how many candidates the budget and the quotas allow at most."""
    costs, groups = limits.costs[candidates], limits.groups[candidates]
    allowed = np.concatenate([np.sort(costs[groups == g])[: int(q)] for g, q in enumerate(limits.quotas)])
    count = int(np.searchsorted(np.cumsum(np.sort(allowed)), limits.budget * (1 + 1e-12), side="right"))
    if count == 0:
        raise ValueError("costs, budget and per_group leave no candidate that could be picked")
    return count


class Balance(NamedTuple):
    """Which share of `size` picks each group gets; see `quotas_of_shares`."""

    shares: Any
    at_least: Any
    candidates: np.ndarray
    size: int


def balance_of(shares: Any, at_least: Any, size: Any, fraction: float | None, candidates: np.ndarray) -> Balance | None:
    """Check shares and the number of picks that they divide."""
    if shares is None:
        if at_least is not None:
            raise ValueError('at_least needs shares, such as shares="input"')
        return None
    wanted = share_of(fraction, len(candidates)) if size is None and fraction is not None else size
    if isinstance(wanted, tuple) or wanted is None:
        raise ValueError(choice("size", size, "a number where shares are given: they divide it"))
    return Balance(shares, at_least, candidates, whole_number("size", wanted))


def make_limits(
    n: int,
    costs: Array | None,
    budget: float | None,
    groups: Array | None,
    per_group: Any,
    balance: Balance | None = None,
) -> Limits | None:
    """Check costs, budget, groups and quotas of a pool of n samples. With `balance`, per_group is a maximum."""
    if (costs is None) != (budget is None):
        raise ValueError("costs and budget belong together: pass both, or neither")
    if (groups is None) != (per_group is None and balance is None):
        raise ValueError("groups and per_group (or shares) belong together: pass both, or neither")
    if costs is None and groups is None:
        return None
    prices, codes, quotas, limit = np.ones(n), np.zeros(n, np.int64), np.array([n]), math.inf
    if costs is not None:
        prices, limit = _column("costs", costs, n).astype(np.float64), positive("budget", budget)
        wrong = ~(np.isfinite(prices) & (prices > 0))
        if wrong.any():
            raise ValueError(choice("costs", float(prices[wrong][0]), "finite numbers above 0"))
    if groups is not None:
        column = _column("groups", groups, n)
        missing = np.flatnonzero([name is None for name in column]) if column.dtype == object else []
        if len(missing):
            raise TypeError(f"groups must be a name or a number per sample, got None for sample {missing[0]}")
        names, codes = np.unique(column, return_inverse=True)
        if balance is None:
            quotas = _quotas(per_group, names.tolist())
        else:
            counts = np.bincount(codes.reshape(-1)[balance.candidates], minlength=len(names))
            quotas = quotas_of_shares(balance.shares, names.tolist(), counts, balance.size, balance.at_least, per_group)
    return Limits(prices, limit, codes.astype(np.int64).reshape(-1), quotas)


def _quotas(per_group: Any, names: list[Any]) -> np.ndarray:
    if not isinstance(per_group, Mapping):
        return np.full(len(names), whole_number("per_group", per_group))
    unknown = [name for name in per_group if name not in names]
    if unknown:
        raise ValueError(f"per_group names the group {unknown[0]!r}, which no sample has; groups are {names[:10]}")
    return np.array([whole_number(f"per_group[{name!r}]", per_group.get(name, 0), least=0) for name in names])


def _column(name: str, value: Array, n: int) -> np.ndarray:
    array = as_array(value)
    if array.shape != (n,):
        raise ValueError(f"{name} must have one value per sample: {n} samples, shape {array.shape}")
    return array


def as_array(indices: Any) -> np.ndarray:
    """Return a NumPy array of a tensor, an array or a list."""
    return indices.cpu().numpy() if isinstance(indices, torch.Tensor) else np.asarray(indices)


def check_indices(name: str, value: Array, n: int) -> np.ndarray:
    """Return rows of a pool of n samples."""
    array = as_array(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a list of indices, got shape {array.shape} of {array.dtype}")
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < n):
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(choice(name, int(wrong), f"indices in 0..{n - 1}"))
    return array.astype(np.int64)


def candidates_of(n: int, among: Array | None, exclude: Array | None) -> np.ndarray:
    """Return the allowed rows in ascending order."""
    if among is None and exclude is None:
        return np.arange(n, dtype=np.int32)
    allowed = np.full(n, among is None)
    if among is not None:
        allowed[check_indices("among", among, n)] = True
    if exclude is not None:
        allowed[check_indices("exclude", exclude, n)] = False
    if not allowed.any():
        raise ValueError("among and exclude leave no candidate to choose from")
    return np.flatnonzero(allowed).astype(np.int32)


def check_search(optimizer: str, partitions: int, epsilon: float, threads: int | None) -> None:
    """Raise an error unless these are options of `select`."""
    one_of("optimizer", optimizer, get_args(OptimizerName))
    whole_number("partitions", partitions)
    number("epsilon", epsilon, "a number in (0, 1)", low=sys.float_info.min, high=1.0 - 2.0**-53)
    if threads is not None:
        whole_number("threads", threads)
