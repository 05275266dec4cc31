"""Candidates: where a batch may come from, and the rules about what goes together."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from smdl.errors import choice, unknown
from smdl.objective import Objective
from smdl.strategies.registry import STRATEGIES
from smdl.strategies.strategy import Size, Strategy
from smdl.strategies.submodular import Submodular


@dataclass(frozen=True)
class Full:
    """Candidates are all of V, scored before steps 0, every, 2·every, … of each epoch: the paper."""

    every: int = 5

    def __post_init__(self) -> None:
        if not isinstance(self.every, int) or isinstance(self.every, bool) or self.every < 1:
            raise ValueError(choice("every", self.every, "a whole number of steps ≥ 1"))


@dataclass(frozen=True)
class RandomPool:
    """Candidates are a fresh random pool of factor × batch size, scored and selected from at every step."""

    factor: float = 3.0

    def __post_init__(self) -> None:
        if not isinstance(self.factor, int | float) or not 1 <= self.factor < math.inf:
            raise ValueError(choice("factor", self.factor, "a number ≥ 1"))
        object.__setattr__(self, "factor", float(self.factor))  # 3 and 3.0 are one: states are compared by name


Refresh = Full | RandomPool


def deal(n: int, sizes: Iterator[int], rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Pools of the given sizes (at most n) off a shuffled deck of 0..n-1; a new deck when one runs out, what the
    pool in hand already holds put at its end. So no pool holds a sample twice, and no sample waits for long."""
    deck = rng.permutation(n)
    for size in sizes:
        if size > len(deck):
            fresh = rng.permutation(n)
            held = np.zeros(n, bool)
            held[deck] = True
            deck = np.concatenate([deck, fresh[~held[fresh]], fresh[held[fresh]]])
        yield deck[:size]
        deck = deck[size:]


def pool_sizes(n: int, batch_size: Size, factor: float) -> Iterator[int]:
    """Of the random pools of an epoch, from its first step on; an adaptive epoch takes as many as it needs."""
    _, high = bounds(batch_size)
    left = n
    while left > 0:
        yield min(n, math.ceil(factor * min(high, left)))
        if isinstance(batch_size, int):
            left -= high


def make_strategy(strategy: str | Strategy, objective: str | Objective | None, size_penalty: float | None) -> Strategy:
    """The strategy of that name, with the objective where it has one."""
    if strategy != "smdl" and (objective is not None or size_penalty is not None):
        raise ValueError(f"objective= and size_penalty= belong to strategy smdl, got strategy {strategy!r}")
    if isinstance(strategy, Strategy):
        return strategy
    if not isinstance(strategy, str) or strategy not in STRATEGIES:
        raise ValueError(unknown("strategy", strategy, STRATEGIES) + ", or give a smdl.strategies Strategy")
    if strategy != "smdl":
        return STRATEGIES[strategy]()
    made = Submodular.paper() if objective == "paper" else Submodular(objective or "recommended")
    made.size_penalty = size_penalty
    return made


def check_refresh(strategy: Strategy, objective: Any, refresh: Refresh | None, every: int | None) -> Refresh:
    """Where candidates come from: as told, else as the strategy or the preset wants it."""
    if every is not None:
        if refresh is not None:
            raise ValueError(f"give refresh= or refresh_every=, not both: got {refresh} and {every}")
        refresh = Full(every)
    if refresh is None:
        if strategy.replacement:
            return Full(1)
        if not strategy.scores:
            return RandomPool(1)
        return Full() if objective == "paper" else RandomPool()
    if not isinstance(refresh, Full | RandomPool):
        raise ValueError(choice("refresh", refresh, "Full(every=...) or RandomPool(factor=...)"))
    if strategy.replacement and isinstance(refresh, RandomPool):
        raise ValueError(f"strategy {type(strategy).__name__} draws from all of V: refresh must be Full, got {refresh}")
    return refresh


def check_replacement(strategy: Strategy, refresh: Refresh, replacement: bool) -> bool:
    """Whether a sample may come again within an epoch."""
    if strategy.replacement:
        return True
    if replacement and isinstance(refresh, RandomPool):
        raise ValueError("replacement=True belongs to refresh=Full(...): random pools are drawn anew at every step")
    if replacement and isinstance(strategy, Submodular) and strategy.optimizer != "stochastic":
        raise ValueError(
            'replacement=True needs strategy=Submodular(..., optimizer="stochastic"):'
            f" {strategy.optimizer!r} would choose the same batch again until the next refresh"
        )
    return replacement


def check_count(name: str, value: Any) -> int:
    """A whole number from 1 on."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(choice(name, value, "a whole number ≥ 1"))
    return int(value)


def check_batch_size(batch_size: Any, n: int) -> Size:
    """A number or (fewest, most), no more than there are samples."""
    sizes = batch_size if isinstance(batch_size, tuple) else (batch_size,)
    whole = all(isinstance(size, int | np.integer) and not isinstance(size, bool) and size >= 1 for size in sizes)
    if len(sizes) not in (1, 2) or not whole or sizes[0] > sizes[-1]:
        raise ValueError(choice("batch_size", batch_size, "a whole number ≥ 1, or (fewest, most)"))
    if sizes[-1] > n:
        raise ValueError(choice("batch_size", sizes[-1], f"at most the dataset's {n} samples"))
    return (int(sizes[0]), int(sizes[1])) if len(sizes) == 2 else int(sizes[0])


def check_size_penalty(strategy: Strategy, batch_size: Size) -> None:
    """A size that adapts needs the penalty, and no other size has a use for it."""
    if isinstance(strategy, Submodular) and (strategy.size_penalty is None) == isinstance(batch_size, tuple):
        raise ValueError(
            "batch_size=(fewest, most) and size_penalty= go together,"
            f" got batch_size={batch_size} and size_penalty={strategy.size_penalty}"
        )


def bounds(batch_size: Size) -> tuple[int, int]:
    """(fewest, most)."""
    return batch_size if isinstance(batch_size, tuple) else (batch_size, batch_size)


def at_most(size: Size, n: int) -> Size:
    """The size, where n candidates are left."""
    return min(size, n) if isinstance(size, int) else (min(size[0], n), min(size[1], n))
