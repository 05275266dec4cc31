"""Counter-based random numbers: draw t of a stream is a pure function of (key, t).

There is no state between draws, so partitions, threads and resumed runs cannot disturb each other. The Python functions
here (the specification) and their compiled versions below give the same integers.
"""

from collections.abc import Sequence

import numpy as np

from smdl.common.messages import choice
from smdl.engine.jit import compiled

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_A = 0xBF58476D1CE4E5B9
_B = 0x94D049BB133111EB
_WHOLE = (int, np.integer)


def mix(z: int) -> int:
    """Apply the finaliser of SplitMix64: a bijection of 64-bit integers that scrambles every bit."""
    z = ((z ^ (z >> 30)) * _A) & _MASK
    z = ((z ^ (z >> 27)) * _B) & _MASK
    return z ^ (z >> 31)


def derive(key: int, counter: int) -> int:
    """Return the counter-th child of a key, for use as a key or as 64 random bits."""
    return mix((key + (counter + 1) * _GOLDEN) & _MASK)


def below(key: int, counter: int, n: int) -> int:
    """Draw from 0..n-1: the high word of bits × n."""
    return (derive(key, counter) * n) >> 64


def stream(seed: int | Sequence[int], *path: int) -> int:
    """Return the key at `path` below `seed`. A seed is a whole number, or several such as (seed, epoch, step)."""
    parts = tuple(seed) if isinstance(seed, Sequence) else (seed,)
    if not parts or not all(isinstance(part, _WHOLE) and not isinstance(part, bool) and part >= 0 for part in parts):
        raise ValueError(choice("seed", seed, "a whole number ≥ 0, or several of them"))
    key = 0
    for part in (*parts, *path):
        key = derive(key, int(part))
    return key


def sample(order: np.ndarray, remaining: int, count: int, key: int) -> None:
    """Move `count` random elements of order[:remaining] to the front: the first steps of Fisher–Yates."""
    for t in range(count):
        j = t + below(key, t, remaining - t)
        order[t], order[j] = order[j], order[t]


_golden, _a, _b = np.uint64(_GOLDEN), np.uint64(_A), np.uint64(_B)
_one, _low = np.uint64(1), np.uint64(0xFFFFFFFF)
_27, _30, _31, _32 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(32)


@compiled
def derive_compiled(key: np.uint64, counter: int) -> np.uint64:
    """`derive`, for compiled callers."""
    z = key + (np.uint64(counter) + _one) * _golden
    z = (z ^ (z >> _30)) * _a
    z = (z ^ (z >> _27)) * _b
    return z ^ (z >> _31)


@compiled
def below_compiled(key: np.uint64, counter: int, n: int) -> int:
    """`below`, for compiled callers; n < 2³²."""
    bits, size = derive_compiled(key, counter), np.uint64(n)
    high = (bits >> _32) * size + (((bits & _low) * size) >> _32)
    return np.int64(high >> _32)  # type: ignore[return-value]


def draws(key: int, start: int, count: int, n: int) -> np.ndarray:
    """Return `below(key, t, n)` for t = start, start + 1, ..., (count,) int64; n < 2³²."""
    out = np.empty(count, np.int64)
    _fill(np.uint64(key), start, n, out)
    return out


@compiled
def _fill(key: np.uint64, start: int, n: int, out: np.ndarray) -> None:
    for t in range(len(out)):
        out[t] = below_compiled(key, start + t, n)


@compiled
def sample_compiled(order: np.ndarray, remaining: int, count: int, key: np.uint64) -> None:
    """`sample`, for compiled callers."""
    for t in range(count):
        j = t + below_compiled(key, t, remaining - t)
        first = order[t]
        order[t] = order[j]
        order[j] = first
