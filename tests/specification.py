"""The equations as plain loops: the executable specification. Slow on purpose; only the tests use it.

Nothing here is incremental, cached or vectorised. The fast paths share only what belongs to the specification: the
random generator (`randomness`) and the grid to which set terms are rounded (`arithmetic.GRID`).
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add

import numpy as np
import torch

from smdl.engine.arithmetic import FLAT, GRID, ROUNDING
from smdl.engine.distances import doubled_square
from smdl.engine.objective import Objective
from smdl.engine.pool import Pool
from smdl.engine.randomness import below, derive, sample, stream

Vector = list[float]
Score = Callable[[int, list[int]], float]


def total(values: Iterable[float]) -> float:
    """Add from left to right, as the compiled loops do. The built-in sum does not, from Python 3.12 on."""
    return reduce(add, values, 0.0)


def euclidean_distance(u: Sequence[float], v: Sequence[float]) -> float:
    return math.sqrt(squared(u, v))


def squared(u: Sequence[float], v: Sequence[float]) -> float:
    return total((float(a) - float(b)) * (float(a) - float(b)) for a, b in zip(u, v, strict=True))


def cosine_distance(u: Sequence[float], v: Sequence[float]) -> float:
    """Return 1 − cos, the cosine rounded to a multiple of 1/GRID; 1 for a zero vector."""
    return max(0.0, 1.0 - round(cosine(u, v) * GRID) / GRID)


def correlation_distance(u: Sequence[float], v: Sequence[float]) -> float:
    return cosine_distance(centred(u), centred(v))


def centred(u: Sequence[float]) -> Vector:
    mean = total(map(float, u)) / len(u)
    noise = len(u) * ROUNDING * abs(mean)
    return [gap if abs(gap) > noise else 0.0 for gap in (float(a) - mean for a in u)]


def gaussian_distance(u: Sequence[float], v: Sequence[float], sigma: float = 1.0) -> float:
    return -math.expm1(-squared(u, v) / doubled_square(sigma))


DISTANCES: dict[str, Callable[..., float]] = {
    "euclidean": euclidean_distance,
    "cosine": cosine_distance,
    "correlation": correlation_distance,
    "gaussian": gaussian_distance,
}


def entropy(p: Vector) -> float:
    """Return U (Eq. 4)."""
    return total(-q * math.log(q) for q in p if q > 0)


def cosine(u: Sequence[float], v: Sequence[float]) -> float:
    dot = total(float(a) * float(b) for a, b in zip(u, v, strict=True))
    norm = math.sqrt(total(float(a) * float(a) for a in u)) * math.sqrt(total(float(b) * float(b) for b in v))
    return dot / norm if norm > 0 else 0.0


def scaled(score: float, low: float, high: float) -> float:
    """Scale a score to [0, 1]; 0 if the scores are equal but for rounding."""
    return (score - low) / (high - low) if high - low > FLAT * max(abs(low), abs(high)) else 0.0


CONCAVE: dict[str, Callable[[float], float]] = {"sqrt": math.sqrt, "log": math.log1p, "ratio": lambda m: m / (1 + m)}


def rise(g: str, mass: float, x: float) -> float:
    """Return g(mass + x) − g(mass). In this form rounding never makes it grow with the mass."""
    if x == 0:
        return 0.0
    if g == "sqrt":
        return x / (math.sqrt(mass + x) + math.sqrt(mass))
    if g == "log":
        return math.log1p(x / (1 + mass))
    return x / ((1 + mass) * (1 + mass + x))


def gradient(pool: Pool, i: int) -> Vector:
    """Return g_i = e_i ⊗ [f_i, 1] with errors e_i = p_i − onehot(y_i), unless the pool holds others; written out."""
    if pool.given_errors is not None:
        errors = pool.given_errors[i].tolist()
    else:
        assert pool.probabilities is not None
        assert pool.labels is not None
        errors = [p - (c == int(pool.labels[i])) for c, p in enumerate(pool.probabilities[i].tolist())]
    features = pool.features[i].tolist() + ([1.0] if pool.bias else [])
    return [e * f for e in errors for f in features]


class Specification:
    """An objective over a pool: `raw[name](a, S)` of every term, and how they combine into F(a | S)."""

    def __init__(self, pool: Pool, objective: Objective) -> None:
        self.pool, self.objective, self.n = pool, objective, len(pool)
        self.features: list[Vector] = pool.features.double().tolist()
        in_gradients = objective.space == "gradients"
        self.points = [gradient(pool, i) for i in range(self.n)] if in_gradients else self.features
        self.pair = DISTANCES[objective.distance]
        if in_gradients and objective.distance == "correlation":
            self.pair = DISTANCES["cosine"]  # errors sum to zero except for rounding, so gradients are centred
        if objective.distance == "gaussian":
            self.pair = lambda u, v: DISTANCES["gaussian"](u, v, objective.sigma or self._median())
        self.units: dict[str, float] = {}
        self.raw: dict[str, Score] = {name: getattr(self, f"_{name}")() for name in objective.weights}

    def gains(self, candidates: Sequence[int], selected: list[int]) -> list[float]:
        """Return F(a | S) of every candidate."""
        totals, over_candidates = [0.0] * len(candidates), self.objective.normalize == "candidates"
        for name, weight in self.objective.weights.items():
            scores = [self.raw[name](a, selected) for a in candidates]
            if name in self.units and not over_candidates:
                unit = self.units[name]
                coefficient = weight / unit if unit > 0 else 0.0
                parts = [coefficient * score for score in scores]
            else:
                others = scores if over_candidates else [self.raw[name](a, selected) for a in range(self.n)]
                low, high = min(others), max(others)
                parts = [weight * scaled(score, low, high) for score in scores]
            totals = [sum_ + part for sum_, part in zip(totals, parts, strict=True)]
        return totals

    def _uncertainty(self) -> Score:
        assert self.pool.probabilities is not None
        rows = self.pool.probabilities.double().tolist()
        return lambda a, _: entropy(rows[a])

    def _mean_closeness(self) -> Score:
        towards_mean = [total(column) for column in zip(*self.features, strict=True)]
        return lambda a, _: cosine(self.features[a], towards_mean)

    def _mean_distance(self) -> Score:
        mean = [total(column) / self.n for column in zip(*self.features, strict=True)]
        return lambda a, _: DISTANCES["euclidean"](self.features[a], mean)

    def _feature_match(self) -> Score:
        assert self.pool.reference is not None
        rows, g = self.pool.reference.double().tolist(), CONCAVE[self.objective.concave]
        return lambda a, _: total(g(max(m, 0.0)) for m in rows[a])

    def _utility(self) -> Score:
        assert self.pool.utility is not None
        values = self.pool.utility.double().tolist()
        return lambda a, _: values[a]

    def _redundancy(self) -> Score:
        bound = self.units["redundancy"] = self._bound()

        def score(a: int, selected: list[int]) -> float:
            return min([bound] + [self.pair(self.points[a], self.points[j]) for j in selected])

        return score

    def _facility_location(self) -> Score:
        weights = self._importance()
        covered = self._covered(weights)
        self.covered = len(covered)
        unit = self.units["facility_location"] = math.fsum(weights[j] for j in covered)
        grid = 2.0 ** (52 - math.frexp(unit)[1])  # weighted rises are rounded to multiples of 1/grid
        bound = self._bound()

        def nearest_of(others: torch.Tensor | None, nothing: float) -> Vector:
            if others is None or bound == 0:
                return [nothing] * self.n
            return [max(self._similarity_to(q, x) for q in others.double().tolist()) for x in self.points]

        caps, floors = nearest_of(self.pool.query, 1.0), nearest_of(self.pool.away_from, 0.0)
        table = [[min(s, cap) for s, cap in zip(row, caps, strict=True)] for row in self._similarities()]
        self._keep_neighbours(table)

        def rises(a: int, selected: list[int]) -> list[float]:
            best = {j: max([floors[j]] + [table[i][j] for i in selected]) for j in covered}
            return [round(weights[j] * grid * (table[a][j] - best[j])) / grid for j in covered if table[a][j] > best[j]]

        self.rises = rises
        return lambda a, selected: total(rises(a, selected))

    def _similarity_to(self, u: Vector, v: Vector) -> float:
        """Return 1 − φ/D in float32."""
        share = min(self.pair(u, v) * (1.0 / self._bound()), 1.0)
        return float(np.float32(1.0) - np.float32(share))

    def _similarities(self) -> list[Vector]:
        """Return s: those that the pool was given, or 1 − φ/D; 0 if all samples are the same point."""
        if self.pool.similarities is not None:
            return self.pool.similarities.double().tolist()
        if self._bound() == 0:
            return [[0.0] * self.n for _ in range(self.n)]
        return [[self._similarity_to(u, v) for v in self.points] for u in self.points]

    def _keep_neighbours(self, table: list[Vector]) -> None:
        """Set the similarities of a sample to all but its k − 1 nearest others to 0."""
        k = self.objective.neighbours
        if k is not None and k < self.n:
            for i in range(self.n):
                others = [j for j in range(self.n) if j != i]
                others.sort(key=lambda j: (self.pair(self.points[i], self.points[j]), j))
                for j in others[k - 1 :]:
                    table[i][j] = 0.0

    def _alike(self) -> bool:
        """Whether all samples are the same point."""
        return self.pool.similarities is None and self._bound() == 0

    def _sums_to(self, others: torch.Tensor | None) -> Vector:
        """Return Σ_q s_iq of every sample."""
        if others is None or self._alike():
            return [0.0] * self.n
        return [total(self._similarity_to(x, q) for q in others.double().tolist()) for x in self.points]

    def _graph_cut(self) -> Score:
        rate, table, covered = self.objective.overlap, self._similarities(), self._covered(self._importance())
        scale = self.n / len(covered)
        sums = [total(table[i][j] for j in covered) * scale for i in range(self.n)]
        self.units["graph_cut"] = 0.0 if self._alike() else max(sums)
        first = [
            sums[i] - rate * table[i][i] - 2.0 * rate * x for i, x in enumerate(self._sums_to(self.pool.away_from))
        ]
        if self.pool.query is not None:
            first, rate = [2.0 * rate * x for x in self._sums_to(self.pool.query)], 0.0
            self.units["graph_cut"] = max(first)
        return lambda a, selected: first[a] - rate * total(table[a][j] + table[j][a] for j in selected)

    def _sum_redundancy(self) -> Score:
        table = self._similarities()
        self.units["sum_redundancy"] = 0.0 if self._alike() else 1.0
        return lambda a, selected: -table[a][a] - total(table[a][j] + table[j][a] for j in selected)

    def _gap(self) -> Callable[[int, int], float]:
        table = self._similarities()
        return lambda i, j: 1.0 - (table[i][j] + table[j][i]) / 2.0

    def _disparity_sum(self) -> Score:
        gap = self._gap()
        self.units["disparity_sum"] = 0.0 if self._alike() else 1.0
        return lambda a, selected: total(gap(a, j) for j in selected)

    def _disparity_min(self) -> Score:
        gap = self._gap()
        self.units["disparity_min"] = 0.0 if self._alike() else 1.0

        def value(batch: list[int]) -> float:
            pairs = [gap(i, j) for place, i in enumerate(batch) for j in batch[:place]]
            return min(pairs, default=0.0)

        return lambda a, selected: value([*selected, a]) - value(selected)

    def _saturated_coverage(self) -> Score:
        table, covered, alpha = self._similarities(), self._covered(self._importance()), self.objective.saturation
        self._keep_neighbours(table)
        sums = {j: total(table[i][j] for i in range(self.n)) for j in covered}
        limits = {j: math.floor(sums[j] * (alpha * 2.0**24)) / 2.0**24 for j in covered}
        self.units["saturated_coverage"] = 0.0 if self._alike() else total(limits.values())

        def value(j: int, batch: list[int]) -> float:
            return min(total(table[i][j] for i in batch), limits[j])

        return lambda a, selected: total(value(j, [*selected, a]) - value(j, selected) for j in covered)

    def _set_cover(self) -> Score:
        return self._cover("set_cover", lambda left, x: min(x, left), lambda left, x: max(left - x, 0.0))

    def _probabilistic_set_cover(self) -> Score:
        return self._cover("probabilistic_set_cover", lambda left, x: left * x, lambda left, x: left * (1.0 - x))

    def _cover(self, name: str, rise: Callable, taken: Callable) -> Score:
        """`rise(left, x)` is what a sample adds of a feature, `taken(left, x)` what it leaves of it."""
        self.units[name] = 1.0
        pool, every = self.pool, range(len(self.features[0]))

        def left_by(rows: Iterable[Vector], start: float) -> Vector:
            left = [start] * len(every)
            for row in rows:
                left = [taken(one, x) for one, x in zip(left, row, strict=True)]
            return left

        weights = [1.0 for _ in every] if pool.feature_weights is None else pool.feature_weights.double().tolist()
        if pool.query is not None:
            weights = [
                w * (1.0 - one) for w, one in zip(weights, left_by(pool.query.double().tolist(), 1.0), strict=True)
            ]
        before = [] if pool.away_from is None else pool.away_from.double().tolist()
        scale = max(total(weights[u] * rise(1.0, row[u]) for u in every) for row in self.features)
        factor = GRID * (1.0 / scale) if scale > 0 else 0.0

        def score(a: int, selected: list[int]) -> float:
            left = left_by([*before, *(self.features[i] for i in selected)], 1.0)
            return total(round(weights[u] * factor * rise(left[u], self.features[a][u])) for u in every) / GRID

        return score

    def _importance(self) -> Vector:
        """Return w: what the pool says, or 1 − (largest − second largest probability); 1 where all are 0."""
        weights = [1.0] * self.n if self.pool.importance is None else self.pool.importance.double().tolist()
        if self.objective.importance == "uncertainty":
            assert self.pool.probabilities is not None
            ordered = [sorted([0.0, *row])[-2:] for row in self.pool.probabilities.double().tolist()]
            weights = [max(0.0, 1.0 - (largest - second)) for second, largest in ordered]
        return weights if any(weights) else [1.0] * self.n

    def _covered(self, weights: Vector) -> list[int]:
        """Return W: every sample, or the first `sample` with a weight above 0 of a fixed random order."""
        if self.objective.sample is None or self.objective.sample >= self.n:
            return list(range(self.n))
        order = np.array([j for j in range(self.n) if weights[j] > 0])
        count = min(self.objective.sample, len(order))
        sample(order, len(order), count, stream(0, len(order)))
        return order[:count].tolist()

    def _feature_coverage(self) -> Score:
        self.units["feature_coverage"] = 1.0
        g = self.objective.concave
        scale = max(total(CONCAVE[g](x) for x in row) for row in self.features)
        factor = GRID * (1.0 / scale) if scale > 0 else 0.0

        def score(a: int, selected: list[int]) -> float:
            mass = [total(self.features[i][u] for i in selected) for u in range(len(self.features[a]))]
            return total(round(rise(g, m, x) * factor) for m, x in zip(mass, self.features[a], strict=True)) / GRID

        return score

    def _log_determinant(self) -> Score:
        self.units["log_determinant"] = 1.0
        points = self.points
        sigma = self.objective.sigma or (self._median() if self.objective.kernel == "gaussian" else 1.0)

        def entry(u: Vector, v: Vector) -> float:
            if self.objective.kernel == "linear":
                value = total(a * b for a, b in zip(u, v, strict=True))
            elif self.objective.kernel == "cosine":
                value = 1.0 - DISTANCES["cosine"](u, v)
            else:
                value = 1.0 - DISTANCES["gaussian"](u, v, sigma)
            return value / self.objective.noise

        scale = math.log1p(max(entry(u, u) for u in points))
        factor = GRID * (1.0 / scale) if scale > 0 else 0.0

        def rise(a: Vector, batch: list[Vector]) -> float:
            rows: list[Vector] = []  # the Cholesky factor of I + K over the batch and, last, a
            left = 0.0
            for u in [*batch, a]:
                row: Vector = []
                for v, other in zip(batch[: len(rows)], rows, strict=True):
                    row.append((entry(u, v) - total(x * y for x, y in zip(row, other, strict=False))) / other[-1])
                left = max(entry(u, u) - total(x * x for x in row), 0.0)
                rows.append([*row, math.sqrt(1.0 + left)])
            return math.log1p(left)

        before = [] if self.pool.away_from is None else self.pool.away_from.double().tolist()
        query = [] if self.pool.query is None else self.pool.query.double().tolist()

        def score(a: int, selected: list[int]) -> float:
            batch = [points[i] for i in selected]
            found = rise(points[a], before + batch)
            if query:
                found = max(found - rise(points[a], before + query + batch), 0.0)
            return round(found * factor) / GRID

        return score

    def _class_balance(self) -> Score:
        self.units["class_balance"] = 1.0
        assert self.pool.labels is not None
        labels = self.pool.labels.tolist()

        def score(a: int, selected: list[int]) -> float:
            count = total(labels[i] == labels[a] for i in selected)
            return 1.0 / (math.sqrt(count + 1) + math.sqrt(count))  # √(count + 1) − √count

        return score

    def _bound(self) -> float:
        """Return D."""
        if self.objective.distance == "euclidean":
            if self.objective.space == "gradients":
                return 2 * max(math.sqrt(total(x * x for x in g)) for g in self.points)
            mean = [total(column) / self.n for column in zip(*self.points, strict=True)]
            return 2 * max(DISTANCES["euclidean"](point, mean) for point in self.points)
        return 1.0 if self.objective.distance == "gaussian" else 2.0

    def _median(self) -> float:
        points = [self.points[i] for i in range(0, self.n, max(1, self.n // 64))][:64]
        gaps = sorted(DISTANCES["euclidean"](u, v) for i, u in enumerate(points) for v in points[i + 1 :])
        gaps = [gap for gap in gaps if gap > 0]
        return gaps[len(gaps) // 2] if gaps else 1.0


def greedy(
    problem: Specification,
    members: Sequence[int],
    size: int,
    key: int,
    candidates_per_step: int | None = None,
    initial: Sequence[int] = (),
) -> tuple[list[int], list[float]]:
    """Maximise greedily over ascending `members`: exactly, or by lazier-than-lazy greedy with candidates_per_step.
    The samples `initial` are chosen already: S = initial ∪ selected."""
    selected: list[int] = []
    gains: list[float] = []
    order = np.array(members)
    for step in range(size):
        remaining, bits = len(members) - step, derive(key, step)
        drawn = remaining if candidates_per_step is None else min(candidates_per_step, remaining)
        if drawn < remaining:
            sample(order, remaining, drawn, bits)
        candidates = order[:drawn].tolist()
        if candidates_per_step is None:
            candidates.sort()
        scores = problem.gains(candidates, [*initial, *selected])
        best = max(scores)
        winner = min(a for a, score in zip(candidates, scores, strict=True) if score == best)
        if step == 0 and not initial and min(scores) == best:  # all tie: pick at random
            winner = candidates[below(bits, 0 if candidates_per_step is None else drawn, drawn)]
        selected.append(winner)
        gains.append(best)
        where = order.tolist().index(winner)
        order[where], order[remaining - 1] = order[remaining - 1], order[where]
    return selected, gains


def from_both_ends(
    problem: Specification, members: Sequence[int], initial: Sequence[int] = ()
) -> tuple[list[int], list[float]]:
    """Let each member join the batch, or leave the batch of all that are left, whichever gains more."""
    low, high = list(initial), [*initial, *members]
    gains: list[float] = []
    for a in members:
        high.remove(a)
        rise, loss = problem.gains([a], low)[0], -problem.gains([a], high)[0]
        if rise >= loss:
            low.append(a)
            high.append(a)
            gains.append(rise)
    return low[len(initial) :], gains


def staged(
    problem: Specification,
    order: Sequence[int],
    size: int,
    key: int,
    entries: int,
    per_pick: int,
    initial: Sequence[int],
) -> tuple[list[int], list[float]]:
    """Maximise facility location greedily over candidates in random order. A stage considers the first candidates whose
    lists of better covered samples have at most `entries` entries together; unless it considers all that are left, it
    picks one sample of `per_pick` candidates."""
    selected: list[int] = []
    gains: list[float] = []
    left = list(order)
    room = max(entries, problem.covered)
    while len(selected) < size:
        lengths = np.cumsum([len(problem.rises(a, [*initial, *selected])) for a in left])
        members = [a for a, length in zip(left, lengths, strict=True) if length <= room]
        picks = size if len(members) == len(left) else max(1, len(members) // per_pick)
        for _ in range(min(picks, size - len(selected))):
            scores = problem.gains(members, [*initial, *selected])
            winner = members[scores.index(max(scores))]
            if not selected and not initial and min(scores) == max(scores):  # all tie: pick at random
                winner = members[below(derive(key, 0), 0, len(members))]
            selected.append(winner)
            gains.append(max(scores))
            members.remove(winner)
            left.remove(winner)
    return selected, gains


def limited(
    problem: Specification, costs: Vector, budget: float, groups: Sequence[int], quotas: Sequence[int]
) -> tuple[list[int], list[float]]:
    """Pick the greatest F(a | S) / cost(a) among the samples that the budget and the quota of their group allow."""
    selected: list[int] = []
    gains: list[float] = []
    while True:
        left = budget
        for i in selected:
            left -= costs[i]
        full = [sum(groups[i] == g for i in selected) >= quota for g, quota in enumerate(quotas)]
        allowed = [a for a in range(problem.n) if a not in selected and costs[a] <= left and not full[groups[a]]]
        if not allowed:
            return selected, gains
        scores = problem.gains(allowed, selected)
        ratios = [score / costs[a] for a, score in zip(allowed, scores, strict=True)]
        best = max(ratios)
        selected.append(min(a for a, ratio in zip(allowed, ratios, strict=True) if ratio == best))
        gains.append(best * costs[selected[-1]])


def select(
    pool: Pool,
    objective: Objective,
    size: int,
    optimizer: str = "naive",
    partitions: int = 1,
    epsilon: float = 0.01,
    seed: int = 0,
    initial: Sequence[int] = (),
) -> tuple[list[int], list[float]]:
    """Run Algorithm 1: partition, maximise each part, merge, maximise again."""
    problem = Specification(pool, objective)

    def maximise(members: list[int], key: int) -> tuple[list[int], list[float]]:
        per_step = max(1, math.ceil(len(members) / size * math.log(1 / epsilon)))
        return greedy(problem, members, size, key, per_step if optimizer == "stochastic" else None, initial)

    members = [a for a in range(len(pool)) if a not in initial]
    partitions = max(1, min(partitions, len(members) // size))
    if partitions > 1:
        shuffled = np.array(members)
        sample(shuffled, len(shuffled), len(shuffled), stream(seed, 0))
        parts = [sorted(part.tolist()) for part in np.array_split(shuffled, partitions)]
        members = sorted(a for i, part in enumerate(parts) for a in maximise(part, stream(seed, 1, i))[0])
    return maximise(members, stream(seed, 2))


class Released:
    """A batch as the code that the paper's authors published chooses it (VamshiTeja/SMDL, lib/samplers/submodular.py).

    Each score is divided by its sum over the candidates, after its λ, so that λ cancels. The score of closeness to the
    mean is −φ(x, μ), which this division turns into φ(x, μ) / Σ φ: the farthest wins. The score of redundancy is 0
    while the batch is empty, and 0 / 0 is NaN, so the first candidate is taken. R is drawn once per call. One thing
    differs: R has at least `size` members, because the original yields shorter batches otherwise.
    """

    def __init__(self, pool: Pool, size: int, rng: np.random.Generator, partitions: int = 10, log_epsilon: int = 5):
        assert pool.probabilities is not None
        self.features: list[Vector] = pool.features.double().tolist()
        self.entropies = [entropy(row) for row in pool.probabilities.double().tolist()]
        self.mean = [total(column) / len(pool) for column in zip(*self.features, strict=True)]
        self.size, self.rng, self.partitions, self.log_epsilon = size, rng, partitions, log_epsilon

    def batch(self, members: Sequence[int]) -> list[int]:
        """Choose within each part, join, choose again."""
        union = list(members)
        if len(members) >= self.partitions * self.size:
            length = len(members) // self.partitions
            shuffled = self.rng.permutation(members).tolist()
            parts = [shuffled[start : start + length] for start in range(0, len(members), length)]
            union = [a for part in parts for a in self.maximise(part, length * self.log_epsilon // self.size)]
        return self.maximise(union, len(union) // self.size * self.log_epsilon)

    def maximise(self, members: list[int], drawn: int) -> list[int]:
        drawn = max(drawn, self.size)
        candidates = self.rng.choice(members, drawn, replace=False).tolist() if drawn < len(members) else list(members)
        selected: list[int] = []
        for _ in range(min(self.size, len(candidates))):
            selected.append(candidates.pop(self.best(candidates, selected)))
        return selected

    def best(self, candidates: list[int], selected: list[int]) -> int:
        """Return the place of the highest sum of shares; a NaN counts as the highest."""
        columns = (
            [self.entropies[a] for a in candidates],
            [self.redundancy(a, selected) for a in candidates],
            [-DISTANCES["euclidean"](self.features[a], self.mean) for a in candidates],
            [self.coverage(a, selected) for a in candidates],
        )
        sums = [total(column) for column in columns]
        if any(sum_ == 0 for sum_ in sums):
            return 0
        scores = [total(s / sum_ for s, sum_ in zip(row, sums, strict=True)) for row in zip(*columns, strict=True)]
        return scores.index(max(scores))

    def redundancy(self, a: int, selected: list[int]) -> float:
        return min([DISTANCES["euclidean"](self.features[a], self.features[j]) for j in selected], default=0.0)

    def coverage(self, a: int, selected: list[int]) -> float:
        """Return Σ_u √(mass of u in S + a), where a sample's masses are the softmax of its features, clamped at 0."""
        masses = [self.masses(i) for i in [*selected, a]]
        return total(math.sqrt(total(column)) for column in zip(*masses, strict=True))

    def masses(self, i: int) -> Vector:
        powers = [math.exp(max(x, 0.0)) for x in self.features[i]]
        return [power / total(powers) for power in powers]
