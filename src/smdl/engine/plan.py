"""SelectionPlan: how a selection is done, how much memory and time that takes. `select` carries it out."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from inspect import signature
from typing import Any, NamedTuple

import numpy as np
import torch

from smdl.common.messages import callable_or_none, check_keywords
from smdl.common.names import ObjectiveName
from smdl.common.units import duration, size_text
from smdl.engine.geometry import EXACT, engine_of, keeps
from smdl.engine.greedy.bidirectional import check_bidirectional
from smdl.engine.greedy.maximise import Rule
from smdl.engine.greedy.subset import ENTRIES, candidates_for
from smdl.engine.limits import balance_of, candidates_of, check_indices, check_search, check_size, make_limits, size_of
from smdl.engine.neighbours import PROBES, SEARCHES, cells_of, search_of
from smdl.engine.objective import OTHERS, Objective, as_objective, check_pool
from smdl.engine.pool import HALVES, LARGE, Array, Pool, check_kind, with_others
from smdl.engine.randomness import stream
from smdl.engine.terms import TERMS
from smdl.engine.terms.facility_location import FacilityLocation

#: The least number of random samples, and how many there are for each pick if that is more. With few per pick, the
#: picks fit the sample and not the pool: `value` rises, `held_out` falls.
SAMPLE, PER_PICK = 20_000, 16

#: n × size up to which optimizer="auto" is lazy.
LAZY_UP_TO = 2_000_000_000

#: Seconds above which `select` warns.
LONG = 60.0

#: Seconds per pair to turn a product into a similarity, and to read a similarity; per number to read a row; per sample
#: and pick to look at a bound, or at a row too; per entry of a list. Evaluations per pick that lazy greedy repeats.
#: Rough, from benchmarks/scale.py.
FINISH, READ, ROW, BOUND, LOOK, ENTRY, REPEATED = 1.3e-9, 0.4e-9, 0.6e-9, 8e-9, 10e-9, 100e-9, 500

#: Bytes of an entry of a list, while lists are put together.
BYTES = 20

#: Similarities that "subset" computes for all of its stages, in units of those of the last one.
STAGES = 1.2

#: How much more a pair costs within the cells of faiss than in a block, and a number in one row of distances.
SCATTERED, SINGLE = 4, 6

ENGINES = {
    "rows": "reads rows as it needs them",
    "dense": "holds the similarities of all pairs",
    "blocks": "computes similarities block by block, again whenever they are needed",
    "graph": "finds the nearest neighbours of every sample, then reads only those",
    "sample": "measures facility_location on random samples of the pool",
}
LOOPS = {
    "compiled": "compiled loops",
    "lists": "compiled loops over lists of the samples that each candidate represents better",
    "torch": "torch",
}


class Shape(NamedTuple):
    """What a plan depends on: nothing of it needs the values of the features."""

    samples: int
    features: int
    device: torch.device = torch.device("cpu")
    half: bool = False
    pool: Pool | None = None
    others: int = 0  # rows of the query and of away_from
    asked: bool = False  # whether there is a query


@dataclass(eq=False)  # a frozen one takes several times as long to make, which counts per step
class SelectionPlan:
    """How a selection is done, and what that takes. `str(plan)` says it in words.

    Attributes:
        objective: what is maximised, with the sample filled in.
        engine: how similarities are computed: rows, dense, blocks, graph or sample.
        optimizer: naive, lazy, stochastic, subset or bidirectional.
        loops: what runs the search: compiled, lists or torch.
        shape: the samples, features and device that the plan is for.
        size: how many samples are picked, at most with bidirectional.
        search: of the neighbours: exact, flat or inverted. None: there is none.

    Examples:
        >>> import numpy as np, smdl
        >>> plan = smdl.explain(np.ones((1_000, 16)), "facility_location", 10)
        >>> plan.engine, plan.optimizer
        ('dense', 'lazy')
    """

    objective: Objective
    engine: str  # a key of ENGINES
    optimizer: str
    loops: str  # a key of LOOPS
    shape: Shape
    size: int
    search: str | None = None  # of the neighbours: exact, flat or inverted

    @property
    def samples(self) -> int:
        return self.shape.samples

    @property
    def how(self) -> str:
        """The engine in words."""
        search = f" ({self.search}: {SEARCHES[self.search]})" if self.search else ""
        return f"{ENGINES[self.engine]}{search}"

    @cached_property
    def _costs(self) -> tuple[int, float, float]:
        n, width, half, distance = self.samples, self.shape.features, self.shape.half, self.objective.distance
        copied = 4 * n * width if half and n * width <= LARGE else 0
        copied += 4 * n * width if distance == "correlation" and self.engine != "rows" else 0
        memory, passes, seconds = _costs_of(self)
        if self.engine != "rows":
            seconds += self.shape.others * (self.objective.sample or n) * _pair(width)
        passes += 3 + (distance == "euclidean") * 2
        return copied + memory + 48 * n, passes, seconds + passes * n * width * ROW

    @property
    def memory(self) -> int:
        """Predicted bytes beyond the features."""
        return self._costs[0]

    @property
    def passes(self) -> float:
        """Predicted passes over the features."""
        return self._costs[1]

    @property
    def seconds(self) -> float:
        """Predicted seconds with torch's number of threads."""
        return self._costs[2]

    def __str__(self) -> str:
        n, width = self.shape[:2]
        covered = f" ({self.objective.sample:,} of them)" if self.engine == "sample" else ""
        most = "at most " if self.optimizer == "bidirectional" else ""
        return (
            f"choose {most}{self.size:,} of {n:,} samples with {width:,} features by {self.objective!r}\n"
            f"engine:    {self.engine}: {self.how}{covered}\n"
            f"optimizer: {self.optimizer}, by {LOOPS[self.loops]}\n"
            f"memory:    {size_text(self.memory)} beyond the features\n"
            f"passes:    about {self.passes:.0f} over the features\n"
            f"time:      about {duration(self.seconds)} with {torch.get_num_threads()} threads"
        )


class Task(NamedTuple):
    """A plan and what it is carried out on: the rows that may be picked, and how to maximise."""

    plan: SelectionPlan
    candidates: np.ndarray
    rule: Rule
    partitions: int


def explain(
    pool: Pool | Array, objective: Objective | ObjectiveName = "facility_location", size: Any = None, **options: Any
) -> SelectionPlan:
    """Return the plan that `select` with the same arguments carries out: `print` it.

    Args:
        pool: A Pool, or features alone, (N, D). Only the shape of features is read, not their values.
        objective: An Objective, or the name of a preset or of a term.
        size: How many samples to pick, or (low, high).
        options: Every other option of `select`.

    Returns:
        The plan: `engine`, `optimizer`, `objective` (with the sample that is used), `memory`, `passes`, `seconds`.

    Raises:
        ValueError: If `select` would refuse the arguments, whatever the values of the features are.

    Examples:
        >>> import numpy as np, smdl
        >>> smdl.explain(np.zeros((100_000, 64), np.float32), size=50).engine
        'sample'
    """
    idle = ("seed", "spread", "progress")  # they change nothing about the way
    known = {"pool", *signature(prepare).parameters, *OTHERS, *idle} - {"shape"}
    check_keywords("explain", options, known)
    stream(options.pop("seed", 0))
    callable_or_none("progress", options.pop("progress", None))
    options.pop("spread", None)
    shape, wanted = shape_of(pool), as_objective(objective)
    held = shape.pool or Pool(np.zeros((1, shape.features), np.float32))  # features alone, unread
    held = with_others(held, options.pop("query", None), options.pop("away_from", None))
    check_pool(wanted, held)
    others, asked = shape_of(held)[-2:]
    shape = shape._replace(pool=shape.pool and held, others=others, asked=asked)
    return prepare(shape, wanted, size, **options).plan


def shape_of(pool: Any) -> Shape:
    """Return the shape of a pool or of features, whose values are not read."""
    if isinstance(pool, Pool):
        others = sum(len(rows) for rows in (pool.query, pool.away_from) if rows is not None)
        half, asked = pool.features.dtype in HALVES, pool.query is not None
        return Shape(len(pool), pool.features.shape[1], pool.device, half, pool, others, asked)
    check_kind(pool)
    features, shape = pool, getattr(pool, "shape", None) or np.shape(pool)
    if len(shape) != 2:
        raise ValueError(f"features must have two dimensions (samples, columns), got shape {tuple(shape)}")
    device = features.device if isinstance(features, torch.Tensor) else torch.device("cpu")
    half = str(getattr(features, "dtype", "")).removeprefix("torch.") in _HALVES
    return Shape(int(shape[0]), int(shape[1]), device, half)


_HALVES = {str(kind).removeprefix("torch.") for kind in HALVES}


def prepare(
    shape: Shape,
    objective: Objective,
    size: int | tuple[int, int] | None,
    *,
    fraction: float | None = None,
    initial: Array | None = None,
    costs: Array | None = None,
    budget: float | None = None,
    groups: Array | None = None,
    per_group: int | Mapping[Any, int] | None = None,
    shares: str | Mapping[Any, float] | None = None,
    at_least: int | Mapping[Any, int] | None = None,
    optimizer: str = "auto",
    partitions: int = 1,
    epsilon: float = 0.01,
    exclude: Array | None = None,
    among: Array | None = None,
    size_penalty: float | None = None,
    threads: int | None = None,
) -> Task:
    """Check the arguments of `select`, and plan it."""
    n = shape.samples
    given = np.empty(0, np.int32) if initial is None else check_indices("initial", initial, n).astype(np.int32)
    banned = given if exclude is None else np.concatenate([check_indices("exclude", exclude, n), given])
    candidates = candidates_of(n, among, banned if len(banned) else None)
    check_search(optimizer, partitions, epsilon, threads)
    if optimizer == "bidirectional":
        limited = {"size": size, "fraction": fraction, "budget": budget, "groups": groups, "size_penalty": size_penalty}
        check_bidirectional(objective, {**limited, "partitions": None if partitions == 1 else partitions})
        size = len(candidates)
    balance = balance_of(shares, at_least, size, fraction, candidates)
    limits = make_limits(n, costs, budget, groups, per_group, balance)
    low, high, penalty = check_size(size_of(size, fraction, limits, candidates), size_penalty, len(candidates))
    if limits is not None and (partitions > 1 or optimizer in ("stochastic", "subset")):
        raise ValueError("costs and groups need partitions=1 and the optimizer lazy or naive")
    if size_penalty is not None and optimizer == "subset":
        raise ValueError("size_penalty needs the optimizer lazy, naive or stochastic")
    # with a penalty, every row is a candidate, as in a small pool
    ways = Ways(optimizer, len(candidates), size_penalty is None, len(given), limits is not None)
    plan = make_plan(objective, shape, high, ways)
    rule = Rule(plan.optimizer, plan.loops, low, high, penalty, float(epsilon), given, limits)
    return Task(plan, candidates, rule, partitions)


class Ways(NamedTuple):
    """What else decides how to maximise: the optimizer that was asked for, the number of candidates, whether they may
    be a random subset of the pool, how many samples the batch has already, and whether costs or groups limit it."""

    optimizer: str = "auto"
    candidates: int | None = None
    whole: bool = True
    given: int = 0
    limited: bool = False


def make_plan(objective: Objective, shape: Shape, size: int, ways: Ways) -> SelectionPlan:
    """Decide what to compute from the numbers of samples and picks alone, and how to compute it from the memory too."""
    n, pool = shape.samples, shape.pool
    if pool is None or pool.similarities is None:
        objective = with_sample(objective, n, size)
    engine = engine_of(objective, n, shape.device) if pool is None else objective.engine_on(pool)
    candidates = n if ways.candidates is None else ways.candidates
    if ways.limited and ways.optimizer == "auto":
        optimizer = "lazy" if objective.diminishes(shape.asked) else "naive"
    else:
        optimizer = resolve_optimizer(ways.optimizer, objective, n if ways.whole else 0, candidates, size, shape.asked)
    loops = loops_of(objective, engine, shape, size + ways.given, optimizer)
    search = search_of(n, objective.space, shape.device) if engine == "graph" else None
    return SelectionPlan(objective, engine, optimizer, loops, shape._replace(pool=None), size, search)


def loops_of(objective: Objective, engine: str, shape: Shape, size: int, optimizer: str) -> str:
    """Return which loops maximise the objective: a key of LOOPS."""
    names = objective.set_terms
    if optimizer == "bidirectional" or len(names) > 1 or not objective.diminishes(shape.asked):
        return "torch"
    term = TERMS[names[0]] if names else None
    if term is not None and term.pairwise and shape.pool is not None and shape.pool.similarities is not None:
        return "torch"
    if optimizer == "subset" and term is FacilityLocation and engine in ("blocks", "sample"):
        return "lists"
    compiles = term is None or term.compiles(engine, shape.samples, size)
    return "compiled" if compiles and shape.device.type == "cpu" else "torch"


def resolve_optimizer(
    optimizer: str, objective: Objective, n: int, candidates: int, size: int, asked: bool = False
) -> str:
    """Return the optimizer that "auto" means for so many candidates in a pool of n samples."""
    if optimizer == "auto":
        if n > EXACT and objective.sample is not None and picks_from_a_subset(objective):
            return "subset"
        if candidates * size > LAZY_UP_TO or not objective.has_value:
            return "stochastic"
        return "lazy" if objective.diminishes(asked) else "naive"
    if optimizer in ("lazy", "subset") and not objective.diminishes(asked):
        rising = [name for name in objective.weights if not TERMS[name].diminishing]
        what = f"those of {rising[0]} do not" if rising else 'with normalize="candidates" they do not'
        if objective.diminishing:
            rising = [name for name in objective.weights if not TERMS[name].diminishing_about]
            what = f"those of {rising[0]} with a query do not"
        raise ValueError(f"{optimizer} needs gains that diminish, and {what}: choose naive or stochastic")
    return optimizer


def picks_from_a_subset(objective: Objective) -> bool:
    """Whether "auto" picks among random candidates if the pool is large: facility location alone, gains diminish."""
    alone = set(objective.weights) == {"facility_location"}
    return alone and objective.diminishing and objective.neighbours is None


def with_sample(objective: Objective, n: int, size: int) -> Objective:
    """Return the objective with sums of similarities over a random sample if the pool is large."""
    chosen = objective.neighbours is not None or objective.sample is not None
    if n <= EXACT or chosen or not objective.covering:
        return objective
    return objective.changed(sample=min(n, max(SAMPLE, PER_PICK * size)))


def _costs_of(plan: SelectionPlan) -> tuple[int, float, float]:
    """Return the memory in bytes, the passes over the features, and the seconds of the engine."""
    (n, width), size, engine, objective = plan.shape[:2], plan.size, plan.engine, plan.objective
    if plan.optimizer == "bidirectional":  # the distances of every row to all, one row at a time
        return 8 * n * width, float(n), n * n * width * SINGLE * ROW
    if engine == "rows":
        return 0, 1 + size / 25, size * n * (LOOK + width * ROW / 3)  # lazy greedy skips most rows
    pair = _pair(width)
    if engine == "graph":
        pairs, held = n**2, 0 if plan.search == "exact" else 4 * n * width
        if plan.search == "inverted":
            pairs = n * (cells_of(n) + SCATTERED * PROBES * n / cells_of(n))
        return 8 * n * (objective.neighbours or 0) + held, 1 + n / 4096, pairs * pair + size * n * READ
    passes = _evaluated(plan)
    if engine == "dense":
        return 4 * n * n + 4 * n * width, 2, n**2 * (pair / 2 + passes * READ)
    covered = n if engine == "blocks" else objective.sample or 0
    memory, seconds = 4 * covered * width if keeps(covered, width) else 0, passes * n * covered * pair
    if plan.optimizer == "subset":
        return memory + BYTES * ENTRIES, (engine == "blocks") + passes, seconds + ENTRIES * ENTRY
    return memory, (engine == "blocks") + passes, seconds + (engine == "sample") * size * n * BOUND


def _pair(width: int) -> float:
    """Return the seconds that the similarity of two samples takes."""
    return 2 * width / multiplications_per_second() + FINISH


def _evaluated(plan: SelectionPlan) -> float:
    """Return how many gains are computed, in units of n."""
    if plan.optimizer == "naive":
        return float(plan.size)
    if plan.optimizer == "subset":
        return STAGES * candidates_for(plan.size, plan.samples) / plan.samples
    return 1 + REPEATED * plan.size / plan.samples


@cache
def multiplications_per_second() -> float:
    """Measure how many multiplications and additions per second matrix products reach."""
    a, b = torch.ones(512, 256), torch.ones(256, 2048)
    best = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        _ = a @ b
        best = min(best, time.perf_counter() - start)
    return 2 * 512 * 256 * 2048 / best
