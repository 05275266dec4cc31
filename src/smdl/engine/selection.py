"""select and evaluate: the engine's two verbs."""

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from smdl.common.messages import callable_or_none, choice, names_checked
from smdl.common.names import ObjectiveName, OptimizerName, SharesName
from smdl.common.units import share_text
from smdl.engine.geometry import DENSE, no_report
from smdl.engine.greedy.partition import Spread, get_mini_batch
from smdl.engine.limits import as_array, check_indices
from smdl.engine.objective import Objective, Problem, as_objective
from smdl.engine.plan import LONG, Task, prepare, shape_of
from smdl.engine.pool import Array, Pool, check_kind, with_others
from smdl.engine.randomness import stream
from smdl.engine.terms import TERMS
from smdl.engine.terms.facility_location import FacilityLocation
from smdl.engine.terms.term import ModularTerm


@dataclass(frozen=True, eq=False)
class Selection:
    """The picks of a selection: indices and gains in the order picked, and the sum of the gains.

    Attributes:
        indices: the picks, (k,) int64, in the order picked: an array, or a tensor on the device of the features if
            those were a tensor.
        gains: what each pick added to the value, (k,) float64.
        value: the sum of the gains.
        weights: factors of the losses of the picks, (k,), for `smdl.weighted_mean`. None: all are one.

    Examples:
        >>> import numpy as np, smdl
        >>> chosen = smdl.select(np.array([[0.0], [0.1], [5.0]]), "facility_location", 2)
        >>> sorted(chosen.indices.tolist()), len(chosen), chosen.term_shares
        ([1, 2], 2, {'facility_location': 1.0})
    """

    indices: Any  # (k,) int64: an array, or a tensor on the features' device if those were a tensor
    gains: np.ndarray  # (k,) float64
    value: float
    _problem: Problem | None = field(default=None, repr=False)
    _rows: np.ndarray | None = field(default=None, repr=False)  # of the pool; None: indices are these rows
    weights: np.ndarray | None = None  # (k,) float64
    _initial: np.ndarray | None = field(default=None, repr=False)  # chosen before

    def __len__(self) -> int:
        return len(self.indices)

    def __str__(self) -> str:
        several = self.objective is not None and len(self.objective.weights) > 1
        shares = f": {_listed(self.term_shares)}" if several and self.term_shares else ""
        return f"{len(self)} picks of value {self.value:.6g}{shares}"

    def renumbered(self, numbers: np.ndarray) -> "Selection":
        """Return the same picks with index numbers[i] in place of row i of the pool."""
        rows = self._pool_rows
        return self._with(indices=numbers[rows], _rows=rows)

    def part(self, rows: slice | np.ndarray) -> "Selection":
        """Return some of the picks."""
        gains, own = self.gains[rows], None if self._rows is None else self._rows[rows]
        weights = None if self.weights is None else self.weights[rows]
        return Selection(self.indices[rows], gains, float(gains.sum()), self._problem, own, weights)

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> "Selection":
        """Return the picks of this pool whose indices, gains and weights `change` makes of these."""
        indices, gains = change(self.indices), change(self.gains)
        weights = None if self.weights is None else change(self.weights)
        return Selection(indices, gains, float(gains.sum()), self._problem, weights=weights)

    def on_host(self) -> "Selection":
        """Return the same picks with indices as a NumPy array."""
        return self._with(indices=self._pool_rows) if isinstance(self.indices, torch.Tensor) else self

    def _with(self, **changes: Any) -> "Selection":
        """Return a copy with other fields. `dataclasses.replace` takes several times as long, which counts per step."""
        twin = object.__new__(Selection)
        twin.__dict__.update(self.__dict__, **changes)
        return twin

    @cached_property
    def shares(self) -> np.ndarray | None:
        """How many samples of the pool each pick represents, (k,); None unless the objective has facility_location."""
        term = None if self._problem is None else self._problem.set_terms.get("facility_location")
        if not isinstance(term, FacilityLocation):
            return None
        return term.shares(torch.from_numpy(self._pool_rows).to(term.pool.device))

    @property
    def objective(self) -> Objective | None:
        """What was maximised; None if nothing was."""
        return None if self._problem is None else self._problem.objective

    @cached_property
    def terms(self) -> dict[str, float] | None:
        """The part of the value that each term has; None if nothing was maximised or the scores have no F(S)."""
        if self._problem is None or not self._problem.objective.has_value:
            return None
        before = np.empty(0, np.int64) if self._initial is None else self._initial
        every, names = np.append(before, self._pool_rows), list(self._problem.objective.weights)
        last = "facility_location" if "facility_location" in names else names[-1]  # the rest: it may be costly
        parts = {}
        for name in names:
            if name != last:
                parts[name] = _value_of(self._problem, name, every)
                parts[name] -= _value_of(self._problem, name, before) if len(before) else 0.0
        parts[last] = self.value - math.fsum(parts.values())
        return {name: parts[name] for name in names}

    @property
    def term_shares(self) -> dict[str, float] | None:
        """The share of each term in the value: numbers that add up to 1."""
        return None if self.terms is None else _shares_of(self.terms)

    @cached_property
    def held_out(self) -> float | None:
        """The value with facility_location measured on other random samples than those that the picks were chosen by:
        an estimate without bias. None unless the objective has a sample that is smaller than the pool."""
        term = None if self._problem is None else self._problem.set_terms.get("facility_location")
        if self._problem is None or not isinstance(term, FacilityLocation) or term.geometry.covered is None:
            return None
        rows = torch.from_numpy(self._pool_rows).to(term.pool.device)
        others = term.geometry.random_rows(term.count, 2 * term.count)
        if len(others) == 0:
            return None
        difference = term.mean_coverage(rows, others) - term.mean_coverage(rows, term.geometry.covered)
        return self.value + self._problem.objective.weights["facility_location"] * difference

    @property
    def recall(self) -> float | None:
        """The share of the nearest neighbours that the graph has, measured on random samples; 1 for an exact search.
        None unless the objective has `neighbours` fewer than the samples."""
        return None if self._problem is None else self._problem.geometry.recall

    @property
    def _pool_rows(self) -> np.ndarray:
        rows = self.indices if self._rows is None else self._rows
        return rows if isinstance(rows, np.ndarray) else as_array(rows)


@dataclass(frozen=True)
class Evaluation:
    """F of a subset, as `smdl.evaluate` returns it. `float(evaluation)` is its value.

    Attributes:
        value: the sum of the gains in the given order, which is what greedy maximises.
        as_printed: F(S) as the paper prints it, with R over the whole of S.
        terms: the part of the value that each term has.

    Examples:
        >>> import smdl
        >>> found = smdl.evaluate([[0.0], [5.0], [10.0]], smdl.Objective(redundancy=1.0), [0, 1, 2])
        >>> found.value, found.as_printed
        (2.0, 1.5)
    """

    value: float
    as_printed: float
    terms: dict[str, float]

    def __float__(self) -> float:
        return self.value

    @property
    def term_shares(self) -> dict[str, float]:
        """The share of each term in the value: numbers that add up to 1."""
        return _shares_of(self.terms)

    def __str__(self) -> str:
        return f"{self.value:.6g}: {_listed(self.term_shares)}"


@names_checked
def select(
    pool: Pool | Array,
    objective: Objective | ObjectiveName = "facility_location",
    size: int | tuple[int, int] | None = None,
    *,
    fraction: float | None = None,
    initial: Array | None = None,
    query: Array | None = None,
    away_from: Array | None = None,
    costs: Array | None = None,
    budget: float | None = None,
    groups: Array | None = None,
    per_group: int | Mapping[Any, int] | None = None,
    shares: SharesName | Mapping[Any, float] | None = None,
    at_least: int | Mapping[Any, int] | None = None,
    optimizer: OptimizerName = "auto",
    partitions: int = 1,
    epsilon: float = 0.01,
    seed: int | Sequence[int] = 0,
    exclude: Array | None = None,
    among: Array | None = None,
    size_penalty: float | None = None,
    threads: int | None = None,
    spread: Spread | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Selection:
    """Pick `size` samples of the pool by greedily maximising the objective.

    Above 65,536 samples, facility_location is measured on max(20,000, 16 × size) random samples of the pool (set
    `Objective(sample=...)` or `neighbours=` to decide yourself). `smdl.explain` says beforehand how the work will be
    done and how long it takes; above a minute `select` warns.

    Args:
        pool: a Pool, or features alone, (N, D)
        objective: an Objective, or the name of a preset ("paper") or of a term ("facility_location")
        size: how many samples to pick, or (low, high) with size_penalty.
        initial: indices that are chosen already: gains count from there, and they are not returned
        query: features of samples that the picks are to be about, (Q, D): the mutual information with them
        away_from: features of samples that are there already, (P, D): the gain of the picks beside them
        costs: a number > 0 per sample, see `budget`.
        groups: a group per sample, see `per_group`, `shares` and `at_least`.
        shares: what part of the picks each group gets: "uniform", "input" (as among the candidates), or a number ≥ 0
            per group, of which only the ratios count. A group with too few candidates gives all it has, and the others
            get the rest by their shares.
        optimizer: naive evaluates every candidate in every step; lazy only those whose bound could win, for the same
            picks; stochastic ⌈n/size · ln(1/ε)⌉ random ones; subset is lazy among max(65,536, 16 × size) random
            candidates, the first picks among fewer; bidirectional picks as many samples as graph_cut or sum_redundancy
            wants, without a size. auto is subset for facility_location above 65,536 samples; else
            lazy while n × size ≤ 2·10⁹ and gains diminish (normalize="pool"), else stochastic.
        partitions: > 1 is the paper's Algorithm 1: maximise random parts in parallel, merge, maximise again
        seed: a whole number, or several such as (seed, epoch, step)
        among: indices that may be picked. Scores are always the whole pool's.
        size_penalty: with size=(low, high): stop, after `low`, once the best gain is below it
        threads: for partitions; torch's number of threads by default. The result does not depend on it.
        spread: shares the partitions with other processes, see `smdl.loading.ranks.Ranks`. The result is the same.
        progress: called as progress(what, done, total) during long work
        fraction: a share of the candidates to pick, in place of `size`.
        budget: the most that the picks may cost together: each step picks the greatest gain per cost that still fits.
        per_group: at most that many picks per group: a number, or one per group.
        at_least: at least that many picks per group: a number, or one per group.
        epsilon: ε of optimizer="stochastic": smaller looks at more candidates per step.
        exclude: indices that may not be picked.

    Returns:
        A Selection: `indices`, `gains` and `value`, in the order picked.

    Raises:
        ValueError: a value that cannot work, such as more picks than samples, or features that are not finite.
        TypeError: an argument of the wrong type.

    Examples:
        >>> import numpy as np, smdl
        >>> rows = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 5.0], [5.1, 5.0]])
        >>> np.sort(smdl.select(rows, "facility_location", 2, groups=[0, 0, 1, 1], per_group=1).indices // 2).tolist()
        [0, 1]
    """
    pool = with_others(as_pool(pool), query, away_from)
    callable_or_none("progress", progress)
    task = prepare(
        shape_of(pool), as_objective(objective), size, fraction=fraction, initial=initial, costs=costs, budget=budget,
        groups=groups, per_group=per_group, shares=shares, at_least=at_least, optimizer=optimizer, threads=threads,
        partitions=partitions, epsilon=epsilon, exclude=exclude, among=among, size_penalty=size_penalty,
    )  # fmt: skip
    stream(seed)  # checked here: it is seldom needed
    chosen = carry_out(task, pool, seed, threads, spread, progress)
    if pool.is_torch:
        chosen = chosen._with(indices=torch.from_numpy(chosen.indices).to(pool.device), _rows=chosen.indices)
    _warn_of_idle_terms(chosen)
    return chosen


def carry_out(
    task: Task,
    pool: Pool,
    seed: int | Sequence[int] | Callable[[], int] = 0,
    threads: int | None = None,
    spread: Spread | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Selection:
    """Select from the pool as planned; indices are an array. A `seed` that is a function is called if a random number
    is needed."""
    plan, candidates, rule, partitions = task
    if len(candidates) == len(pool) > DENSE and plan.seconds > LONG:  # small pools never take so long
        warnings.warn(f"this selection takes a while:\n{plan}", stacklevel=4)
    problem = plan.objective.on(pool, plan.engine)
    problem.geometry.report = progress or no_report
    try:
        picks = get_mini_batch(problem, candidates, rule, partitions, seed, threads or torch.get_num_threads(), spread)
    finally:
        problem.geometry.report = no_report
    value = sum(picks.gains.tolist())  # in a step, the first sum by NumPy takes several times as long
    return Selection(picks.indices.astype(np.int64), picks.gains, value, problem, _initial=rule.initial)


#: A term with less than this share of the value hardly counts.
IDLE = 0.01


def idle_terms(weights: Mapping[str, float], shares: Mapping[str, float], count: int) -> list[str]:
    """Name the terms whose weight is too small to count in the value of `count` picks, and a weight that would."""
    found = []
    for name, share in shares.items():
        if len(weights) > 1 and 0 < share < IDLE:
            balanced = weights[name] * (1 - share) / (len(weights) - 1) / share
            found.append(
                f"{name} has {share_text(share)} of the value of these {count} picks, so it hardly counts:"
                f" {name}={balanced:.2g} would give it as much as the other terms have on average"
            )
    return found


def _warn_of_idle_terms(chosen: Selection) -> None:
    objective = chosen.objective
    if objective is not None and len(objective.weights) > 1 and chosen.value > 0:
        for text in idle_terms(objective.weights, chosen.term_shares or {}, len(chosen)):
            warnings.warn(text, stacklevel=4)


def as_pool(pool: Pool | Array) -> Pool:
    """Return a Pool; arrays and tensors become its features."""
    if isinstance(pool, Pool):
        return pool
    check_kind(pool)
    return Pool(pool)


@names_checked
def evaluate(
    pool: Pool | Array,
    objective: Objective | ObjectiveName,
    indices: Array,
    *,
    query: Array | None = None,
    away_from: Array | None = None,
) -> Evaluation:
    """Return F(S) of any subset, by the rules of `select`.

    Args:
        pool: a Pool, or features alone, (N, D).
        objective: an Objective, or the name of a preset or of a term.
        indices: the subset: row numbers of the pool, each once. The order counts for terms that are not submodular.
        query: features of samples that the subset is to be about, (Q, D).
        away_from: features of samples that are there already, (P, D).

    Returns:
        An Evaluation: the value, F(S) as the paper prints it, and the part of each term.

    Raises:
        ValueError: indices that are not in the pool or come twice, or an objective without F(S)
            (normalize="candidates").

    Examples:
        >>> import smdl
        >>> float(smdl.evaluate([[0.0], [5.0], [10.0]], "redundancy", [0, 2]))
        2.0
    """
    pool, objective = with_others(as_pool(pool), query, away_from), as_objective(objective)
    if not objective.has_value:
        raise ValueError(
            choice("normalize", objective.normalize, '"pool" to evaluate a set: per-step scores have no F(S)')
        )
    chosen = check_indices("indices", indices, len(pool))
    if len(np.unique(chosen)) < len(chosen):
        raise ValueError("indices must name each sample once, got duplicates")
    return _evaluate(objective.on(pool), chosen)


def _evaluate(problem: Problem, chosen: np.ndarray) -> Evaluation:
    terms = {name: _value_of(problem, name, chosen) for name in problem.objective.weights}
    as_printed, rows = dict(terms), torch.from_numpy(chosen).to(problem.pool.device)
    for name, term in problem.set_terms.items():
        printed = term.as_printed(rows)
        if printed is not None:
            as_printed[name] = problem.coefficient(name) * printed
    return Evaluation(math.fsum(terms.values()), math.fsum(as_printed.values()), terms)


def _value_of(problem: Problem, name: str, chosen: np.ndarray) -> float:
    """Return the weighted value of one term."""
    if issubclass(TERMS[name], ModularTerm):
        return float(problem.objective.weights[name] * problem.scaled(name, chosen).sum())
    return problem.coefficient(name) * _gain_sum(problem, name, chosen)


def _shares_of(terms: dict[str, float]) -> dict[str, float]:
    value = math.fsum(terms.values())
    return {name: part / value if value else 0.0 for name, part in terms.items()}


def _listed(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share_text(share)}" for name, share in shares.items())


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
