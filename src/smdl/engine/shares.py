"""Quotas from shares: how many picks each group gets, between a least and a most number per group."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, get_args

import numpy as np

from smdl.common.messages import choice, number, whole_number
from smdl.common.names import SharesName

SHARES = get_args(SharesName)
#: Most groups that a message names.
NAMED = 5


def quotas_of_shares(
    shares: Any, names: list[Any], counts: np.ndarray, size: int, at_least: Any = None, at_most: Any = None
) -> np.ndarray:
    """Return how many picks each group gets, (G,): `size` in all, as near to the shares as the limits allow.

    shares     "uniform", "input" (the group's share of the candidates), or group -> number ≥ 0 (0 if it is missing)
    counts     candidates per group, (G,): a group gets no more
    at_least   picks of every group, or group -> number; a group with fewer candidates gives all it has
    """
    wanted = _wanted(shares, names, counts)
    least = _per_name("at_least", at_least, names, 0)
    low = np.minimum(least, counts)
    high = np.minimum(_per_name("per_group", at_most, names, int(counts.max(initial=0))), counts)
    if (crossed := low > high).any():
        name = names[int(crossed.argmax())]
        raise ValueError(
            f"at_least must not be above per_group: group {name!r} has {low[crossed][0]} and {high[crossed][0]}"
        )
    high = np.where(wanted > 0, high, low)
    if low.sum() > size:
        raise ValueError(choice("size", size, f"at least {low.sum()}, what at_least asks for in all groups"))
    if high.sum() < size:
        raise ValueError(choice("size", size, f"at most {high.sum()}: the groups with a share may give no more"))
    quotas = _filled(wanted, low, high, size)
    asked = np.maximum(least, _filled(wanted, low, np.full(len(names), size), size))
    _warn_of_small_groups(names, counts, quotas, asked)
    return quotas


def _wanted(shares: Any, names: list[Any], counts: np.ndarray) -> np.ndarray:
    """Return the shares of the groups; only their ratios matter."""
    if isinstance(shares, str):
        if shares not in SHARES:
            raise ValueError(choice("shares", shares, f"{', '.join(SHARES)}, or a share per group"))
        return counts.astype(np.float64) if shares == "input" else np.ones(len(names))
    if not isinstance(shares, Mapping):
        raise TypeError(choice("shares", shares, f"{', '.join(SHARES)}, or a share per group"))
    found = _by_name("shares", shares, names, 0.0, partial(number, allowed="a number ≥ 0", low=0.0))
    if not found.any():
        raise ValueError("shares must give at least one group more than 0")
    return found


def _per_name(option: str, value: Any, names: list[Any], missing: int) -> np.ndarray:
    if value is None:
        return np.full(len(names), missing, np.int64)
    if not isinstance(value, Mapping):
        return np.full(len(names), whole_number(option, value, least=0), np.int64)
    return _by_name(option, value, names, missing, partial(whole_number, least=0))


def _by_name(option: str, given: Mapping[Any, Any], names: list[Any], missing: Any, check: Callable) -> np.ndarray:
    unknown = [name for name in given if name not in names]
    if unknown:
        raise ValueError(f"{option} names the group {unknown[0]!r}, which no candidate has; groups are {names[:10]}")
    return np.array([check(f"{option}[{name!r}]", given.get(name, missing)) for name in names])


def _filled(wanted: np.ndarray, low: np.ndarray, high: np.ndarray, size: int) -> np.ndarray:
    """Return whole numbers between low and high that sum to `size`: a common factor times the shares, limited, then
    rounded down, and the rest to the groups with the largest remainders (the first of equal ones)."""
    least, most = 0.0, 2.0 * size / wanted[wanted > 0].min()
    for _ in range(200):  # until the two meet
        factor = (least + most) / 2
        if np.clip(factor * wanted, low, high).sum() < size:
            least = factor
        else:
            most = factor
    exact = np.clip(most * wanted, low, high)
    quotas = np.clip(np.floor(exact + 1e-9).astype(np.int64), low, high)
    order = np.argsort(-(exact - quotas), kind="stable")
    while quotas.sum() < size:  # rounding takes less than one pick from each group
        for group in order:
            if quotas[group] < high[group] and wanted[group] > 0 and quotas.sum() < size:
                quotas[group] += 1
    return quotas


def _warn_of_small_groups(names: list[Any], counts: np.ndarray, quotas: np.ndarray, asked: np.ndarray) -> None:
    """Warn of groups that have fewer candidates than their share or their minimum asks for."""
    small = np.flatnonzero((quotas == counts) & (asked > quotas))
    if len(small):
        shown = ", ".join(f"{names[g]!r} ({counts[g]} of {asked[g]})" for g in small[:NAMED].tolist())
        counted = "1 group has" if len(small) == 1 else f"{len(small)} groups have"
        more = f" and {len(small) - NAMED} more" if len(small) > NAMED else ""
        warnings.warn(
            f"{counted} fewer candidates than asked for: {shown}{more}. All of these may be picked,"
            " and the other groups get the rest by their shares",
            stacklevel=4,
        )
