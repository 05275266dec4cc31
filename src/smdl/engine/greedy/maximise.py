"""Naive, lazy, stochastic, subset and double greedy over one or several disjoint parts of a pool.

The compiled kernels handle one set term on the CPU, with one thread per part. Everything else (mixtures of set terms,
class_balance, normalize="candidates", pools on an accelerator) runs here in torch, all parts at once.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from smdl.engine.arithmetic import FLAT
from smdl.engine.greedy import gains, kernels, subset
from smdl.engine.greedy.bidirectional import from_both_ends
from smdl.engine.objective import Problem
from smdl.engine.pool import widest
from smdl.engine.randomness import below, derive, sample_compiled
from smdl.engine.terms import TERMS
from smdl.engine.terms.term import ModularTerm

#: Gives the key of a random stream.
Key = Callable[[], int]

_NO_KEY = np.empty(0, np.uint64)

#: Bounds that lazy greedy computes again at once, at first. The number doubles until no other bound could win.
BATCH = 64


class Limits(NamedTuple):
    """Costs of the samples with a budget, and the groups of the samples with the most picks per group."""

    costs: np.ndarray  # (N,) float64
    budget: float
    groups: np.ndarray  # (N,) int64
    quotas: np.ndarray  # (G,) int64


class Rule(NamedTuple):
    """How to maximise: pick `low` to `high` samples, and stop early once the best gain is below `penalty`."""

    optimizer: str
    loops: str  # a key of `plan.LOOPS`
    low: int
    high: int
    penalty: float = -math.inf
    epsilon: float = 0.01
    initial: np.ndarray = np.empty(0, np.int32)  # samples that the batch has already
    limits: Limits | None = None

    def whole(self) -> "Rule":
        """Return the same rule without early stop, as the partitions need it."""
        return self._replace(low=self.high, penalty=-math.inf)

    def candidates_per_step(self, n: int) -> int:
        """Return s = ⌈n / b · ln(1/ε)⌉."""
        return max(1, math.ceil(n / self.high * math.log(1 / self.epsilon)))


class Picks(NamedTuple):
    """The result of a maximiser: indices and gains in pick order."""

    indices: np.ndarray
    gains: np.ndarray


def maximise(
    problem: Problem, parts: Sequence[np.ndarray], rule: Rule, keys: Sequence[Key], threads: int
) -> list[Picks]:
    """Maximise over each part (ascending int32 indices). Part p uses the random stream keys[p](), if it needs one."""
    try:
        return _maximise(problem, parts, rule, keys, threads)
    except FloatingPointError:
        raise ValueError(
            f"a gain of {problem.objective!r} is not a number: the inputs of the pool are too large or too small for"
            " it. Scale them"
        ) from None


def _maximise(
    problem: Problem, parts: Sequence[np.ndarray], rule: Rule, keys: Sequence[Key], threads: int
) -> list[Picks]:
    if rule.optimizer == "bidirectional":
        return [Picks(*from_both_ends(problem, part, rule.initial)) for part in parts]
    if rule.optimizer == "subset":
        parts = [subset.draw(part, rule.high, key()) for part, key in zip(parts, keys, strict=True)]
        if rule.loops == "lists" and problem.set_terms["facility_location"].unit > 0:
            pairs = zip(parts, keys, strict=True)
            return [Picks(*subset.Staged(problem, part, rule.initial, key()).run(rule.high)) for part, key in pairs]
        parts, rule = [np.sort(part) for part in parts], rule._replace(optimizer="lazy")
    if rule.loops == "torch":
        return _Torch(problem, parts, rule, [key() for key in keys]).run()
    term = gains.compiled_term(problem, rule.high + len(rule.initial))

    def maximise_part(part: np.ndarray, key: Key) -> Picks:
        # Arrays are filled, not returned: for each array that a compiled loop returns, numba runs Python code.
        given = len(rule.initial)
        picked, found = np.empty(given + rule.high, np.int32), np.empty(rule.high)
        over, into = (term, problem.modular, part, rule.low, rule.penalty), (rule.initial, picked, found)
        if rule.optimizer == "stochastic":
            count = kernels.stochastic(*over, rule.candidates_per_step(len(part)), np.uint64(key()), *into)
        else:
            lazy = rule.optimizer == "lazy"
            count = kernels.exact(*over, lazy, _NO_KEY, *into, rule.limits)
            if count < 0:
                count = kernels.exact(*over, lazy, np.array([key()], np.uint64), *into, rule.limits)
        return Picks(picked[given : given + count], found[:count])

    threads = min(threads, len(parts))
    run = map if threads == 1 else _workers(os.getpid(), threads).map
    return list(run(maximise_part, parts, keys))


@cache
def _workers(process: int, threads: int) -> ThreadPoolExecutor:  # noqa: ARG001
    """Keep the threads: starting them can cost more than a selection. A forked process gets new ones."""
    return ThreadPoolExecutor(threads, thread_name_prefix="smdl")


class _Torch:
    """Maximise all parts at once. Row p of every (P, Q) table belongs to part p; a place is a column of the table."""

    def __init__(self, problem: Problem, parts: Sequence[np.ndarray], rule: Rule, keys: Sequence[int]) -> None:
        self.problem, self.parts, self.rule, self.keys = problem, parts, rule, keys
        longest = max(map(len, parts))
        padded = np.stack([np.pad(part, (0, longest - len(part)), constant_values=part[0]) for part in parts])
        # Some terms look up the samples that the batch has already: they have the same places in every part.
        table = np.concatenate([padded, np.tile(rule.initial, (len(parts), 1))], axis=1)
        gone = np.stack([np.arange(table.shape[1]) >= len(part) for part in parts])
        device = problem.pool.device
        self.table = torch.from_numpy(table.astype(np.int64)).to(device)  # (P, Q) indices
        self.gone = torch.from_numpy(gone).to(device)  # (P, Q) whether a place is picked already, or padding
        self.modular = widest(problem.modular, device)
        self.bounds = torch.full(table.shape, math.inf, dtype=self.modular.dtype, device=device)
        self.orders = [np.arange(len(part), dtype=np.int32) for part in parts]
        self.raw = {}
        if problem.objective.normalize == "candidates":
            modular = [name for name in problem.objective.weights if issubclass(TERMS[name], ModularTerm)]
            self.raw = {name: widest(TERMS[name](problem.geometry).scores(), device) for name in modular}
        self.terms = {name: copy(term) for name, term in problem.set_terms.items()}  # copies, because they keep state
        for term in self.terms.values():
            term.start(self.table)
            for index in torch.from_numpy(rule.initial.astype(np.int64)).to(device):
                term.add(index.expand(len(parts)))
        self.limits = None if rule.limits is None else _Limits(rule.limits, self.table, self.gone)
        self.costly = problem.diminishing and any(term.costly for term in self.terms.values())

    def run(self) -> list[Picks]:
        indices, gains = [], []
        for count in range(self.rule.high):
            if self.limits is not None and bool(self.gone.all()):
                break
            places, best = self._step(count)
            if count >= self.rule.low and float(best[0]) < self.rule.penalty:
                break
            self.gone.scatter_(1, places[:, None], True)
            picks = self.table.gather(1, places[:, None])[:, 0]
            for term in self.terms.values():
                term.add(picks)
            self._remove_from_orders(places, count)
            if self.limits is not None:
                best = best * self.limits.costs[picks]
                self.limits.add(int(picks[0]))
            indices.append(picks)
            gains.append(best)
            self.problem.geometry.report("picks", count + 1, self.rule.high)
        if not indices:
            return [Picks(np.empty(0, np.int32), np.empty(0)) for _ in self.parts]
        rows = torch.stack(indices, 1).cpu().numpy().astype(np.int32)
        values = torch.stack(gains, 1).cpu().numpy().astype(np.float64)
        if np.isnan(values).any():
            raise FloatingPointError("a gain is not a number")
        return [Picks(row, value) for row, value in zip(rows, values, strict=True)]

    def _step(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the best place of each part, and its gain."""
        if self.rule.optimizer == "stochastic":
            places, valid, drawn = self._draw(count)
            gains = self._drawn_gains(places, valid) if self.costly else self._gains(places, valid)
        else:
            places = torch.arange(self.table.shape[1], device=self.table.device).expand_as(self.table)
            valid, drawn = ~self.gone, [0] * len(self.parts)
            gains = self._lazy_gains(count) if self.rule.optimizer == "lazy" else self._gains(places, valid)
        best = gains.max(dim=1).values
        winners = torch.where((gains == best[:, None]) & valid, places, self.table.shape[1]).min(dim=1).values
        if count == 0 and len(self.rule.initial) == 0 and self.limits is None:
            worst = torch.where(valid, gains, math.inf).min(dim=1).values
            for p in torch.nonzero(worst == best)[:, 0].tolist():
                tied = places[p][valid[p]]
                winners[p] = tied[below(derive(self.keys[p], 0), drawn[p], len(tied))]
        return winners.clamp(max=self.table.shape[1] - 1), best  # no winner if a gain is NaN, which `maximise` reports

    def _gains(self, places: Tensor, valid: Tensor) -> Tensor:
        """Return F(a | S_p) of the candidates at `places` (P, K); −∞ where they are not valid."""
        candidates, weights = self.table.gather(1, places), self.problem.objective.weights
        if self.problem.objective.normalize == "candidates":
            total = torch.zeros_like(candidates, dtype=self.modular.dtype)
            for name, weight in weights.items():
                if name in self.terms and self.terms[name].unit == 0:  # all samples are the same point: no gain
                    continue
                raw = self.raw[name][candidates] if name in self.raw else self.terms[name].gains(candidates)
                total = total + weight * _scaled(raw, valid)
        else:
            total = self.modular[candidates]
            for name, term in self.terms.items():
                total = total + self.problem.coefficient(name) * term.gains(candidates)
        if self.limits is not None:
            total = total / self.limits.costs[candidates]
        return torch.where(valid, total, -math.inf)

    def _lazy_gains(self, count: int) -> Tensor:
        """Return a bound for every place. Bounds that could win are computed again."""
        self.bounds[self.gone] = -math.inf
        self.bounds = self._refreshed(
            self.bounds, lambda at: at, self.gone, self.table.shape[1] if count == 0 else BATCH
        )
        return self.bounds

    def _drawn_gains(self, places: Tensor, valid: Tensor) -> Tensor:
        """Return a bound for every drawn place; −∞ where it is not valid. Bounds that could win are computed again."""
        bounds = torch.where(valid, self.bounds.gather(1, places), -math.inf)
        unknown = int((bounds == math.inf).sum(1).max())
        found = self._refreshed(bounds, lambda at: places.gather(1, at), ~valid, max(BATCH, unknown))
        for p, (row, at, ok) in enumerate(zip(self.bounds, places, valid, strict=True)):
            row[at[ok]] = found[p, ok]
        return found

    def _refreshed(self, bounds: Tensor, places: Callable[[Tensor], Tensor], fresh: Tensor, batch: int) -> Tensor:
        """Compute the bounds that could win again, in growing batches, the greatest first. Column k of `bounds` belongs
        to `places(k)`; `fresh` are those that need not be computed."""
        bounds, fresh = bounds.clone(), fresh.clone()
        while True:
            best = torch.where(fresh, bounds, -math.inf).max(dim=1, keepdim=True).values
            if not bool((~fresh & (bounds >= best)).any()):
                return bounds
            stale = torch.where(fresh, -math.inf, bounds)
            at = stale.topk(min(batch, bounds.shape[1]), dim=1).indices
            valid = ~fresh.gather(1, at)
            gains = self._gains(places(at), valid)
            bounds.scatter_(1, at, torch.where(valid, gains, bounds.gather(1, at)))
            fresh.scatter_(1, at, True)
            batch *= 2

    def _draw(self, count: int) -> tuple[Tensor, Tensor, list[int]]:
        """Draw the candidates R of every part. Return places (P, K), which are valid, and how many each part drew."""
        rows, drawn = [], []
        for part, order, key in zip(self.parts, self.orders, self.keys, strict=True):
            remaining = len(part) - count
            drawn.append(min(self.rule.candidates_per_step(len(part)), remaining))
            if drawn[-1] < remaining:
                sample_compiled(order, remaining, drawn[-1], np.uint64(derive(key, count)))
            rows.append(order[: drawn[-1]])
        width = max(drawn)
        places = np.stack([np.pad(row, (0, width - len(row)), mode="edge") for row in rows]).astype(np.int64)
        valid = np.stack([np.arange(width) < length for length in drawn])
        return (torch.from_numpy(places).to(self.table.device), torch.from_numpy(valid).to(self.table.device), drawn)

    def _remove_from_orders(self, places: Tensor, count: int) -> None:
        """Move each pick behind the remaining places of its part."""
        if self.rule.optimizer == "stochastic":
            for part, order, place in zip(self.parts, self.orders, places.tolist(), strict=True):
                drawn = order[: self.rule.candidates_per_step(len(part))]
                where, last = np.flatnonzero(drawn == place), len(part) - count - 1
                if len(where) == 0:  # the pick is one of the drawn
                    raise FloatingPointError("a gain is not a number")
                order[where[0]], order[last] = order[last], order[where[0]]


class _Limits:
    """Marks as gone what the budget or the quotas no longer allow. There is one part."""

    def __init__(self, limits: Limits, table: Tensor, gone: Tensor) -> None:
        device = table.device
        self.costs, self.budget = widest(limits.costs, device), limits.budget
        self.groups, self.quotas = torch.from_numpy(limits.groups).to(device), limits.quotas.copy()
        self._table, self._gone = table, gone
        self._mark_gone()

    def add(self, pick: int) -> None:
        self.budget -= float(self.costs[pick])
        self.quotas[int(self.groups[pick])] -= 1
        self._mark_gone()

    def _mark_gone(self) -> None:
        full = torch.from_numpy(self.quotas <= 0).to(self._table.device)
        self._gone |= (self.costs[self._table] > self.budget) | full[self.groups[self._table]]


def _scaled(raw: Tensor, valid: Tensor) -> Tensor:
    """Scale to [0, 1] over the valid candidates of each part; 0 where all are equal."""
    low = torch.where(valid, raw, math.inf).min(dim=1, keepdim=True).values
    high = torch.where(valid, raw, -math.inf).max(dim=1, keepdim=True).values
    spread = high - low > FLAT * torch.maximum(high.abs(), low.abs())
    return torch.where(spread, (raw - low) / torch.where(spread, high - low, 1.0), 0.0)
