"""The form of saved states: SavedState checks value by value, check_form compares with a state that is known."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.common.messages import choice, number, true_or_false, whole_number


class SavedState:
    """A dict with these keys and no others. Every method returns the value of a key as a copy, or raises an error that
    names the key, what its value must be, and the value."""

    def __init__(self, what: str, state: Any, keys: Iterable[str]) -> None:
        check_keys(what, state, keys)
        self._state, self._what = state, what

    def __getitem__(self, key: str) -> Any:
        """Return a value as it is."""
        return self._state[key]

    def count(self, key: str, least: int = 0) -> int:
        return whole_number(self._name(key), self._state[key], least)

    def flag(self, key: str) -> bool:
        return true_or_false(self._name(key), self._state[key])

    def number(self, key: str, low: float) -> float:
        return number(self._name(key), self._state[key], f"a number ≥ {low:g}", low=low)

    def flags(self, key: str, length: int) -> np.ndarray:
        found = self._array(key)
        return self._checked(key, found, found.dtype == bool and found.shape == (length,), f"{length} flags")

    def numbers(
        self, key: str, length: int | None = None, low: float = -math.inf, finite: bool = False, unknown: bool = False
    ) -> np.ndarray:
        """Return `length` numbers ≥ low, or as many as there are. With `unknown`, NaN is allowed."""
        found = self._array(key)
        fits = found.dtype.kind in "fi" and found.ndim == 1 and length in (None, len(found))
        fits = fits and bool(((found >= low) | (unknown & np.isnan(found))).all())
        fits = fits and not (finite and np.isinf(found).any())
        rule = "numbers" if length is None else f"{length} numbers"
        rule = f"{rule} ≥ {low:g}" if low > -math.inf else rule
        return self._checked(key, found, fits, f"{rule}, finite" if finite else rule)

    def whole(self, key: str, length: int, least: int) -> np.ndarray:
        """Return `length` whole numbers ≥ least, int64."""
        found = self._array(key)
        fits = found.dtype == np.int64 and found.shape == (length,) and bool((found >= least).all())
        return self._checked(key, found, fits, f"{length} whole numbers ≥ {least}")

    def rows(self, key: str, samples: int, once: bool = False) -> np.ndarray:
        """Return indices of samples, int64; with `once`, none of them twice."""
        found = self._array(key)
        fits = found.dtype == np.int64 and found.ndim == 1 and bool(((found >= 0) & (found < samples)).all())
        fits = fits and not (once and len(np.unique(found)) < len(found))
        return self._checked(key, found, fits, f"indices in 0..{samples - 1}{', each at most once' if once else ''}")

    def tensor(self, key: str, dtype: torch.dtype, dimensions: int, rows: int) -> Tensor:
        value = self._state[key]
        shape = tuple(value.shape) if isinstance(value, Tensor) else None
        if shape is None or value.dtype != dtype or len(shape) != dimensions or shape[0] != rows:
            got = type(value).__name__ if shape is None else f"{value.dtype} of shape {shape}"
            raise ValueError(f"{self._name(key)} must be {dtype} with {rows} rows, got {got}")
        return value.clone()

    def _name(self, key: str) -> str:
        return f"{self._what}: {key}"

    def _array(self, key: str) -> np.ndarray:
        value = self._state[key]
        if isinstance(value, Tensor):
            return value.numpy(force=True).copy()
        return np.array(value, np.int64 if value == [] else None)

    def _checked(self, key: str, found: np.ndarray, fits: bool, rule: str) -> np.ndarray:
        if fits:
            return found
        shown = f": {found}" if found.ndim == 1 and len(found) < 10 else ""
        raise ValueError(f"{self._name(key)} must be {rule}, got {found.dtype} of shape {found.shape}{shown}")


def check_keys(what: str, state: Any, keys: Iterable[str]) -> None:
    """Raise a ValueError unless `state` is a dict with exactly these keys."""
    if not isinstance(state, dict):
        raise TypeError(choice(what, type(state).__name__, "a dict that state_dict returned"))
    missing, extra = sorted(set(keys) - set(state)), sorted(map(str, set(state) - set(keys)))
    if missing or extra:
        problem = f"{', '.join(missing)} missing" if missing else f"{', '.join(extra)} not known"
        raise ValueError(f"{what} was not made by state_dict of this version: {problem}")


def check_form(name: str, value: Any, like: Any) -> None:
    """Raise unless a value has the keys, types, lengths and shapes of another one. Where the other is empty or None,
    any value of its type will do."""
    if isinstance(like, Tensor) and isinstance(value, Tensor):
        found, expected = (f"{each.dtype} of shape {tuple(each.shape)}" for each in (value, like))
        if found != expected:
            raise ValueError(f"{name} must be {expected}, got {found}")
    elif isinstance(like, dict) and like:
        check_keys(name, value, like)
        for key in like:
            check_form(f"{name}.{key}", value[key], like[key])
    elif like is not None and not isinstance(value, (int, float) if type(like) is float else type(like)):
        raise TypeError(choice(name, type(value).__name__, f"of type {type(like).__name__}"))
    elif isinstance(like, list) and like:
        for place, (one, other) in enumerate(zip(value, like, strict=True)):
            check_form(f"{name}.{place}", one, other)
