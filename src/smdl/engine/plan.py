"""SelectionPlan: how `select` will do its work, how much memory and time that takes, before it starts."""

import time
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from smdl.engine.geometry import EXACT, holds_matrix, keeps
from smdl.engine.greedy.subset import ENTRIES, candidates_for
from smdl.engine.neighbours import PROBES, SEARCHES, cells_of, search_of
from smdl.engine.objective import Objective, as_objective
from smdl.engine.pool import HALVES, LARGE, Pool

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

#: How much more a pair costs within the cells of faiss than in a block.
SCATTERED = 4

ENGINES = {
    "rows": "reads rows as it needs them",
    "dense": "holds the similarities of all pairs",
    "blocks": "computes similarities block by block, again whenever they are needed",
    "graph": "finds the nearest neighbours of every sample, then reads only those",
    "sample": "measures facility_location on random samples of the pool",
}


@dataclass(frozen=True)
class SelectionPlan:
    """How a selection will be done. `objective` has the sample filled in; memory does not include the features."""

    engine: str
    objective: Objective
    optimizer: str
    samples: int
    features: int
    size: int
    memory: int  # bytes beyond the features
    passes: float  # over the features
    seconds: float  # predicted, with torch's number of threads
    search: str | None = None  # of the neighbours: exact, flat or inverted

    @property
    def how(self) -> str:
        """The engine in words."""
        search = f" ({self.search}: {SEARCHES[self.search]})" if self.search else ""
        return f"{ENGINES[self.engine]}{search}"

    def __str__(self) -> str:
        chosen = f"{self.size:,} of {self.samples:,} samples with {self.features:,} features by {self.objective!r}"
        covered = f" ({self.objective.sample:,} of them)" if self.engine == "sample" else ""
        return (
            f"choose {chosen}\n"
            f"engine:    {self.engine}: {self.how}{covered}\n"
            f"optimizer: {self.optimizer}\n"
            f"memory:    {self.memory / 1e9:.2f} GB beyond the features\n"
            f"passes:    about {self.passes:.0f} over the features\n"
            f"time:      about {_duration(self.seconds)} with {torch.get_num_threads()} threads"
        )


def explain(
    pool: Any, objective: Objective | str = "recommended", size: int = 1, *, optimizer: str = "auto"
) -> SelectionPlan:
    """Return the plan of `select(pool, objective, size)`: `print` it. Only the shape of the pool is read."""
    features = pool.features if isinstance(pool, Pool) else pool
    shape = getattr(features, "shape", None) or np.shape(features)
    if len(shape) != 2:
        raise ValueError(f"features must have two dimensions (samples, columns), got shape {tuple(shape)}")
    device = features.device if isinstance(features, torch.Tensor) else torch.device("cpu")
    half = str(features.dtype).removeprefix("torch.") in _HALVES if hasattr(features, "dtype") else False
    return make_plan(as_objective(objective), int(shape[0]), int(shape[1]), size, optimizer, device, half=half)


_HALVES = {str(kind).removeprefix("torch.") for kind in HALVES}


def make_plan(
    objective: Objective, n: int, width: int, size: int, optimizer: str, device: torch.device, *, half: bool = False
) -> SelectionPlan:
    """Decide what to compute from n and size alone, and how to compute it from the memory too."""
    engine, objective = _engine(objective, n, size, device)
    optimizer = resolve_optimizer(optimizer, objective, n, n, size)
    copied = 4 * n * width if half and n * width <= LARGE else 0
    if objective.distance == "correlation" and engine != "rows":
        copied += 4 * n * width
    search = search_of(n, objective.space, device) if engine == "graph" else None
    work = _Work(objective, n, width, size, optimizer, search)
    memory, passes, seconds = getattr(work, engine)()
    base = 3 + (objective.distance == "euclidean") * 2
    seconds += (base + passes) * n * width * ROW
    memory, passes = copied + memory + 48 * n, base + passes
    return SelectionPlan(engine, objective, optimizer, n, width, size, memory, passes, seconds, search)


def resolve_optimizer(optimizer: str, objective: Objective, n: int, candidates: int, size: int) -> str:
    """Return the optimizer that "auto" means for so many candidates in a pool of n samples."""
    if optimizer == "auto":
        if n > EXACT and objective.sample is not None and picks_from_a_subset(objective):
            return "subset"
        return "lazy" if objective.diminishing and candidates * size <= LAZY_UP_TO else "stochastic"
    if optimizer in ("lazy", "subset") and not objective.diminishing:
        raise ValueError(
            f'{optimizer} needs gains that diminish; with normalize="candidates" choose naive or stochastic'
        )
    return optimizer


def picks_from_a_subset(objective: Objective) -> bool:
    """Whether "auto" picks among random candidates if the pool is large: facility location alone, gains diminish."""
    alone = set(objective.weights) == {"facility_location"}
    return alone and objective.diminishing and objective.neighbours is None


def with_sample(objective: Objective, n: int, size: int) -> Objective:
    """Return the objective with facility_location measured on a random sample if the pool is large."""
    chosen = objective.neighbours is not None or objective.sample is not None
    if n <= EXACT or chosen or "facility_location" not in objective.weights:
        return objective
    return objective.changed(sample=min(n, max(SAMPLE, PER_PICK * size)))


def _engine(objective: Objective, n: int, size: int, device: torch.device) -> tuple[str, Objective]:
    objective = with_sample(objective, n, size)
    if "facility_location" not in objective.weights:
        return "rows", objective
    if objective.neighbours is not None and objective.neighbours < n:
        return "graph", objective
    if objective.sample is not None and objective.sample < n:
        return "sample", objective
    return "dense" if holds_matrix(n, device) else "blocks", objective


@dataclass(frozen=True)
class _Work:
    """Memory in bytes, passes over the features, and seconds of each engine."""

    objective: Objective
    n: int
    width: int
    size: int
    optimizer: str
    search: str | None

    @property
    def _pair(self) -> float:
        return 2 * self.width / multiplications_per_second() + FINISH

    def _evaluated(self) -> float:
        """How many gains are computed, in units of n."""
        if self.optimizer == "naive":
            return float(self.size)
        if self.optimizer == "subset":
            return STAGES * candidates_for(self.size, self.n) / self.n
        return 1 + REPEATED * self.size / self.n

    def _held(self, covered: int) -> int:
        """The bytes of the samples that are kept ready for blocks."""
        return 4 * covered * self.width if keeps(covered, self.width) else 0

    def _lists(self) -> tuple[int, float]:
        """The bytes and seconds of the lists of "subset"."""
        return (BYTES * ENTRIES, ENTRIES * ENTRY) if self.optimizer == "subset" else (0, 0.0)

    def rows(self) -> tuple[int, float, float]:
        return 0, 1 + self.size / 25, self.size * self.n * (LOOK + self.width * ROW / 3)  # lazy greedy skips most rows

    def dense(self) -> tuple[int, float, float]:
        seconds = self.n**2 * (self._pair / 2 + self._evaluated() * READ)
        return 4 * self.n * self.n + 4 * self.n * self.width, 2, seconds

    def blocks(self) -> tuple[int, float, float]:
        passes = self._evaluated()
        memory, seconds = self._lists()
        return self._held(self.n) + memory, 1 + passes, passes * self.n**2 * self._pair + seconds

    def graph(self) -> tuple[int, float, float]:
        k, held = self.objective.neighbours or 0, 0 if self.search == "exact" else 4 * self.n * self.width
        pairs = self.n**2
        if self.search == "inverted":
            cells = cells_of(self.n)
            pairs = self.n * (cells + SCATTERED * PROBES * self.n / cells)
        return 8 * self.n * k + held, 1 + self.n / 4096, pairs * self._pair + self.size * self.n * READ

    def sample(self) -> tuple[int, float, float]:
        covered, passes = self.objective.sample or 0, self._evaluated()
        seconds, (memory, listing) = passes * self.n * covered * self._pair, self._lists()
        bounds = 0.0 if self.optimizer == "subset" else self.size * self.n * BOUND
        return self._held(covered) + memory, passes, seconds + listing + bounds


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


def _duration(seconds: float) -> str:
    if seconds < 1:
        return "a second"
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
