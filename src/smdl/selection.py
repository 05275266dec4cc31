"""select and evaluate: the engine's two verbs."""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import torch

from smdl.errors import choice, unknown
from smdl.greedy.maximise import OPTIMIZERS, Rule
from smdl.greedy.partition import get_mini_batch
from smdl.objective import Objective, Problem
from smdl.pool import Array, Pool
from smdl.terms import TERMS, FacilityLocation, ModularTerm, Redundancy

#: n × size up to which optimizer="auto" is lazy.
LAZY_UP_TO = 2_000_000_000


@dataclass(frozen=True, eq=False)
class Selection:
    """The chosen: indices and gains in the order picked, and their sum."""

    indices: np.ndarray  # (k,) int64
    gains: np.ndarray  # (k,) float64
    value: float
    _problem: Problem | None = field(default=None, repr=False)
    _rows: np.ndarray | None = field(
        default=None, repr=False
    )  # of the problem's pool, where indices are numbers elsewhere

    def __len__(self) -> int:
        return len(self.indices)

    def renumbered(self, numbers: np.ndarray) -> "Selection":
        """The same picks, row i of the pool being called numbers[i]."""
        return replace(self, indices=numbers[self.indices], _rows=self.indices)

    @cached_property
    def weights(self) -> np.ndarray | None:
        """How many samples of the pool each pick stands for, (k,); None unless the objective has facility_location."""
        term = None if self._problem is None else self._problem.set_terms.get("facility_location")
        return _shares(term, self._pool_rows) if isinstance(term, FacilityLocation) else None

    @cached_property
    def terms(self) -> dict[str, float] | None:
        """What each term contributed to the value; None where nothing was maximised, or scores have no F(S)."""
        if self._problem is None or not self._problem.objective.diminishing:
            return None
        return evaluate(self._problem.pool, self._problem.objective, self._pool_rows).terms

    @property
    def _pool_rows(self) -> np.ndarray:
        return self.indices if self._rows is None else self._rows


@dataclass(frozen=True)
class Evaluation:
    """F of a subset: `value` is the sum of the gains in the given order, which is what the greedy maximises;
    `printed` is F(S) as the paper prints it, with R over the whole of S; `terms` splits the value by term."""

    value: float
    printed: float
    terms: dict[str, float]

    def __float__(self) -> float:
        return self.value


def select(
    pool: Pool,
    objective: Objective,
    size: int | tuple[int, int],
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
    """Pick `size` of the pool by greedily maximising the objective.

    optimizer     naive looks at every candidate in every step; lazy at those whose bound could win, for the same
                  picks; stochastic at ⌈n/size · ln(1/ε)⌉ random ones. auto is lazy while n × size ≤ 2·10⁹ and gains
                  diminish (normalize="pool"), else stochastic.
    partitions    > 1 is the paper's Algorithm 1: maximise random parts in parallel, merge, maximise again
    seed          a whole number, or several such as (seed, epoch, step)
    among         indices that may be chosen; `exclude`: indices that may not. Scores are always the whole pool's.
    size_penalty  with size=(low, high): stop, after `low`, once the best gain is below it
    threads       for partitions; torch's number of threads unless given. The result does not depend on it.
    """
    if not isinstance(pool, Pool):
        raise ValueError(choice("pool", type(pool).__name__, "a smdl.Pool"))
    if not isinstance(objective, Objective):
        raise ValueError(choice("objective", objective, "a smdl.Objective"))
    candidates = _candidates(len(pool), among, exclude)
    low, high, penalty = _check_size(size, size_penalty, len(candidates))
    if not (isinstance(epsilon, float | np.floating) and 0 < epsilon < 1):
        raise ValueError(choice("epsilon", epsilon, "in (0, 1)"))
    _check_count("partitions", partitions)
    if threads is not None:
        _check_count("threads", threads)
    rule = Rule(_resolve(optimizer, objective, len(candidates), high), low, high, penalty, float(epsilon))
    problem = objective.on(pool)
    picks = get_mini_batch(problem, candidates, rule, partitions, seed, threads or torch.get_num_threads())
    return Selection(picks.indices.astype(np.int64), picks.gains, float(picks.gains.sum()), problem)


def evaluate(pool: Pool, objective: Objective, indices: Array) -> Evaluation:
    """F(S) of any subset, by the rules of `select`."""
    if not objective.diminishing:
        raise ValueError(
            choice("normalize", objective.normalize, '"pool" to evaluate a set: per-step scores have no F(S)')
        )
    chosen = _indices("indices", indices, len(pool))
    if len(np.unique(chosen)) < len(chosen):
        raise ValueError("indices must name each sample once, got duplicates")
    problem = objective.on(pool)
    terms, printed = {}, 0.0
    for name, weight in objective.weights.items():
        if issubclass(TERMS[name], ModularTerm):
            terms[name] = as_printed = float(weight * problem.scaled(name)[chosen].sum())
        else:
            terms[name] = as_printed = problem.coefficient(name) * _gain_sum(problem, name, chosen)
            if TERMS[name] is Redundancy:
                as_printed = problem.coefficient(name) * _redundancy_as_printed(problem, chosen)
        printed += as_printed
    return Evaluation(math.fsum(terms.values()), printed, terms)


def _gain_sum(problem: Problem, name: str, chosen: np.ndarray) -> float:
    """Σ of the gains of adding the chosen one after the other."""
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
    """Σ_{i ∈ S} min_{j ∈ S, j ≠ i} φ(i, j); D for a sample alone."""
    if len(chosen) < 2:
        return problem.metric.bound * len(chosen)
    who = torch.from_numpy(chosen).to(problem.pool.device)
    gaps = problem.metric.between(who[:, None], who[None, :])
    gaps.fill_diagonal_(math.inf)
    return float(gaps.min(dim=1).values.sum())


def _shares(term: FacilityLocation, chosen: np.ndarray) -> np.ndarray:
    """How many samples each of the chosen is the most similar one to; equals go to the earlier pick."""
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
    if optimizer not in OPTIMIZERS:
        raise ValueError(unknown("optimizer", optimizer, (*OPTIMIZERS, "auto")))
    if optimizer == "lazy" and not objective.diminishing:
        raise ValueError('lazy needs gains that diminish; with normalize="candidates" choose naive or stochastic')
    return optimizer


def _check_count(name: str, value: object) -> int:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise ValueError(choice(name, value, "a whole number ≥ 1"))
    return int(value)


def _check_size(size: int | tuple[int, int], penalty: float | None, n: int) -> tuple[int, int, float]:
    if isinstance(size, tuple):
        if len(size) != 2 or not all(isinstance(s, int | np.integer) for s in size) or not 1 <= size[0] <= size[1]:
            raise ValueError(choice("size", size, "a number, or (low, high) with 1 ≤ low ≤ high"))
        if penalty is None or not math.isfinite(penalty):
            raise ValueError(choice("size_penalty", penalty, "a finite number where size is (low, high)"))
        low, high = size
    else:
        if penalty is not None:
            raise ValueError(choice("size", size, "(low, high) where size_penalty is given"))
        low = high = _check_count("size", size)
        penalty = -math.inf
    if high > n:
        raise ValueError(choice("size", high, f"at most the {n} candidates"))
    return int(low), int(high), float(penalty)


def _indices(name: str, value: Array, n: int) -> np.ndarray:
    array = value.cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise ValueError(f"{name} must be a list of indices, got shape {array.shape} of {array.dtype}")
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < n):
        wrong = array.min() if array.min() < 0 else array.max()
        raise ValueError(choice(name, int(wrong), f"indices in 0..{n - 1}"))
    return array.astype(np.int64)


def _candidates(n: int, among: Array | None, exclude: Array | None) -> np.ndarray:
    """Ascending, as the maximisers want them."""
    if among is None and exclude is None:
        return np.arange(n, dtype=np.int32)
    allowed = np.zeros(n, bool) if among is not None else np.ones(n, bool)
    if among is not None:
        allowed[_indices("among", among, n)] = True
    if exclude is not None:
        allowed[_indices("exclude", exclude, n)] = False
    if not allowed.any():
        raise ValueError("among and exclude leave no candidate to choose from")
    return np.flatnonzero(allowed).astype(np.int32)
