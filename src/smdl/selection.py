"""select and evaluate: the engine's two verbs."""

import math
import sys
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from smdl.errors import choice, number, one_of, whole_number
from smdl.greedy.maximise import OPTIMIZERS, Rule
from smdl.greedy.partition import get_mini_batch
from smdl.objective import Objective, Problem, as_objective
from smdl.pool import Array, Pool
from smdl.terms import TERMS, FacilityLocation, ModularTerm

#: n × size up to which optimizer="auto" is lazy.
LAZY_UP_TO = 2_000_000_000


@dataclass(frozen=True, eq=False)
class Selection:
    """The picks of a selection: indices and gains in the order picked, and the sum of the gains."""

    indices: Any  # (k,) int64: an array, or a tensor on the features' device if those were a tensor
    gains: np.ndarray  # (k,) float64
    value: float
    _problem: Problem | None = field(default=None, repr=False)
    _rows: np.ndarray | None = field(default=None, repr=False)  # of the pool, if indices are a dataset's

    def __len__(self) -> int:
        return len(self.indices)

    def renumbered(self, numbers: np.ndarray) -> "Selection":
        """Return the same picks with index numbers[i] in place of row i of the pool."""
        rows = self._pool_rows
        return Selection(numbers[rows], self.gains, self.value, self._problem, rows)

    def on_host(self) -> "Selection":
        """Return the same picks with indices as a NumPy array."""
        return Selection(_as_array(self.indices), self.gains, self.value, self._problem, self._rows)

    @cached_property
    def weights(self) -> np.ndarray | None:
        """How many samples of the pool each pick represents, (k,); None unless the objective has facility_location."""
        term = None if self._problem is None else self._problem.set_terms.get("facility_location")
        return _shares(term, self._pool_rows) if isinstance(term, FacilityLocation) else None

    @cached_property
    def terms(self) -> dict[str, float] | None:
        """The share of each term in the value; None if nothing was maximised or the scores have no F(S)."""
        if self._problem is None or not self._problem.objective.diminishing:
            return None
        return _evaluate(self._problem, self._pool_rows).terms

    @property
    def _pool_rows(self) -> np.ndarray:
        return _as_array(self.indices) if self._rows is None else self._rows


@dataclass(frozen=True)
class Evaluation:
    """F of a subset: `value` is the sum of the gains in the given order, which is what the greedy maximises;
    `as_printed` is F(S) as the paper prints it, with R over the whole of S; `terms` splits the value by term."""

    value: float
    as_printed: float
    terms: dict[str, float]

    def __float__(self) -> float:
        return self.value


def select(
    pool: Pool | Array,
    objective: Objective | str = "recommended",
    size: int | tuple[int, int] | None = None,
    *,
    optimizer: str = "auto",
    partitions: int = 1,
    epsilon: float = 0.01,
    seed: int | Sequence[int] = 0,
    exclude: Array | None = None,
    among: Array | None = None,
    size_penalty: float | None = None,
    threads: int | None = None,
) -> Selection:
    """Pick `size` samples of the pool by greedily maximising the objective.

    pool          a Pool, or features alone, (N, D)
    objective     an Objective, or the name of a preset ("paper") or of a term ("facility_location")
    size          how many samples to pick, or (low, high) with size_penalty
    optimizer     naive evaluates every candidate in every step; lazy only those whose bound could win, for the same
                  picks; stochastic ⌈n/size · ln(1/ε)⌉ random ones. auto is lazy while n × size ≤ 2·10⁹ and gains
                  diminish (normalize="pool"), else stochastic.
    partitions    > 1 is the paper's Algorithm 1: maximise random parts in parallel, merge, maximise again
    seed          a whole number, or several such as (seed, epoch, step)
    among         indices that may be picked; `exclude`: indices that may not. Scores are always the whole pool's.
    size_penalty  with size=(low, high): stop, after `low`, once the best gain is below it
    threads       for partitions; torch's number of threads by default. The result does not depend on it.
    """
    pool, objective = as_pool(pool), as_objective(objective)
    if size is None:
        raise TypeError("size is missing: select(pool, objective, size) needs the number of samples to pick")
    candidates = _candidates(len(pool), among, exclude)
    low, high, penalty = _check_size(size, size_penalty, len(candidates))
    check_search(optimizer, partitions, epsilon, threads)
    rule = Rule(_resolve(optimizer, objective, len(candidates), high), low, high, penalty, float(epsilon))
    problem = objective.on(pool)
    picks = get_mini_batch(problem, candidates, rule, partitions, seed, threads or torch.get_num_threads())
    indices: Any = picks.indices.astype(np.int64)
    if pool.is_torch:
        indices = torch.from_numpy(indices).to(pool.device)
    return Selection(indices, picks.gains, float(picks.gains.sum()), problem)


def check_search(optimizer: str, partitions: int, epsilon: float, threads: int | None) -> None:
    """Raise an error unless these are options of `select`."""
    one_of("optimizer", optimizer, (*OPTIMIZERS, "auto"))
    whole_number("partitions", partitions)
    number("epsilon", epsilon, "a number in (0, 1)", low=sys.float_info.min, high=1.0 - 2.0**-53)
    if threads is not None:
        whole_number("threads", threads)


def as_pool(pool: Pool | Array) -> Pool:
    """Return a Pool; arrays and tensors become its features."""
    if isinstance(pool, Pool):
        return pool
    if not isinstance(pool, np.ndarray | torch.Tensor | list | tuple):
        raise TypeError(choice("pool", type(pool).__name__, "a smdl.Pool, or features as an array or a tensor"))
    return Pool(pool)


def evaluate(pool: Pool | Array, objective: Objective | str, indices: Array) -> Evaluation:
    """Return F(S) of any subset, by the rules of `select`."""
    pool, objective = as_pool(pool), as_objective(objective)
    if not objective.diminishing:
        raise ValueError(
            choice("normalize", objective.normalize, '"pool" to evaluate a set: per-step scores have no F(S)')
        )
    chosen = _indices("indices", indices, len(pool))
    if len(np.unique(chosen)) < len(chosen):
        raise ValueError("indices must name each sample once, got duplicates")
    return _evaluate(objective.on(pool), chosen)


def _evaluate(problem: Problem, chosen: np.ndarray) -> Evaluation:
    terms: dict[str, float] = {}
    for name, weight in problem.objective.weights.items():
        if issubclass(TERMS[name], ModularTerm):
            terms[name] = float(weight * problem.scaled(name)[chosen].sum())
        else:
            terms[name] = problem.coefficient(name) * _gain_sum(problem, name, chosen)
    as_printed = dict(terms)
    if "redundancy" in terms:
        as_printed["redundancy"] = problem.coefficient("redundancy") * _redundancy_as_printed(problem, chosen)
    return Evaluation(math.fsum(terms.values()), math.fsum(as_printed.values()), terms)


def _gain_sum(problem: Problem, name: str, chosen: np.ndarray) -> float:
    """Return the sum of the gains of adding the samples one after the other."""
    term, total = copy(problem.set_terms[name]), 0.0
    if len(chosen) == 0:
        return total
    table = torch.from_numpy(chosen).to(problem.pool.device)[None, :]
    term.start(table)
    for k in range(len(chosen)):
        total += float(term.gains(table[:, k : k + 1])[0, 0])
        term.add(table[:, k])
    return total


def _redundancy_as_printed(problem: Problem, chosen: np.ndarray) -> float:
    """Return Σ_{i ∈ S} min_{j ∈ S, j ≠ i} φ(i, j); D if S has one sample."""
    if len(chosen) < 2:
        return problem.geometry.metric.bound * len(chosen)
    rows = torch.from_numpy(chosen).to(problem.pool.device)
    distances = problem.geometry.metric.between(rows[:, None], rows[None, :])
    distances.fill_diagonal_(math.inf)
    return float(distances.min(dim=1).values.sum())


def _shares(term: FacilityLocation, chosen: np.ndarray) -> np.ndarray:
    """Count for each pick the samples to which it is the most similar pick; ties go to the earlier pick."""
    device, n = term.pool.device, len(term.pool)
    best, owner = torch.zeros(n, device=device), torch.full((n,), -1, device=device)
    for k, index in enumerate(torch.from_numpy(chosen).to(device)):
        similarities = term.similarities(index)
        owner[similarities > best] = k
        best = torch.maximum(best, similarities)
    counts = torch.bincount(owner[owner >= 0], minlength=len(chosen))
    return counts.cpu().numpy().astype(np.float64)


def _resolve(optimizer: str, objective: Objective, n: int, size: int) -> str:
    if optimizer == "auto":
        return "lazy" if objective.diminishing and n * size <= LAZY_UP_TO else "stochastic"
    if optimizer == "lazy" and not objective.diminishing:
        raise ValueError('lazy needs gains that diminish; with normalize="candidates" choose naive or stochastic')
    return optimizer


def _check_size(size: int | tuple[int, int], penalty: float | None, n: int) -> tuple[int, int, float]:
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


def _as_array(indices: Any) -> np.ndarray:
    return indices.cpu().numpy() if isinstance(indices, torch.Tensor) else np.asarray(indices)


def _indices(name: str, value: Array, n: int) -> np.ndarray:
    array = _as_array(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a list of indices, got shape {array.shape} of {array.dtype}")
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < n):
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(choice(name, int(wrong), f"indices in 0..{n - 1}"))
    return array.astype(np.int64)


def _candidates(n: int, among: Array | None, exclude: Array | None) -> np.ndarray:
    """Return the allowed rows in ascending order."""
    if among is None and exclude is None:
        return np.arange(n, dtype=np.int32)
    allowed = np.full(n, among is None)
    if among is not None:
        allowed[_indices("among", among, n)] = True
    if exclude is not None:
        allowed[_indices("exclude", exclude, n)] = False
    if not allowed.any():
        raise ValueError("among and exclude leave no candidate to choose from")
    return np.flatnonzero(allowed).astype(np.int32)
