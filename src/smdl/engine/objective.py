"""Objective: weighted terms, their normalisation, and the presets.

F(a | S) = Σ weight · term(a | S). Modular scores are min–max scaled to [0, 1] over the whole pool, set terms are
divided by one positive constant per pool. Weights are applied after that, so changing one changes the selection.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from smdl.common.messages import choice, number, one_of, positive, true_or_false, unknown, whole_number
from smdl.common.names import ConcaveName, DistanceName, KernelName, Normalisation, SpaceName
from smdl.engine import arithmetic
from smdl.engine.arithmetic import CONCAVE
from smdl.engine.distances import DISTANCES
from smdl.engine.geometry import Geometry, engine_of
from smdl.engine.pool import Pool
from smdl.engine.terms import TERMS
from smdl.engine.terms.term import ModularTerm, SetTerm

SPACES, NORMALISATIONS, KERNELS = get_args(SpaceName), get_args(Normalisation), get_args(KernelName)
IMPORTANCES = ("uncertainty",)


class Objective:
    """A weighted sum of terms: `Objective(uncertainty=0.5, redundancy=0.5, distance="cosine")`.

    Args:
        weights: a number ≥ 0 per term, by the names in `smdl.engine.terms.TERMS`; at least one above 0.
        distance: φ of redundancy and facility_location: euclidean, cosine, correlation, gaussian
        sigma: bandwidth of gaussian; None takes the median distance of a sample
        space: "features", or "gradients" for last-layer gradients in factored form (redundancy, facility_location and
            log_determinant work there; it needs probabilities and labels, or errors)
        normalize: "pool", or "candidates": min–max over the candidates of each step, the paper read literally
        concave: g of feature_match and feature_coverage: sqrt, log, ratio
        kernel: K of log_determinant: linear, cosine, gaussian.
        noise: σ² of log_determinant.
        neighbours: restrict facility_location and saturated_coverage to the k nearest neighbours; None is dense
        sample: measure facility_location, saturated_coverage and graph_cut on this many random samples of the pool;
            None is all of them
        overlap: λ of graph_cut: how much similarities within the batch count against it; monotone up to 0.5
        saturation: α of saturated_coverage: the share of its similarity to the pool up to which a sample counts
        importance: "uncertainty": facility_location counts each sample as much as the model is unsure of it, by 1 −
            (largest − second largest probability). None: by `Pool(importance=...)`, or all alike

    Raises:
        ValueError: an unknown term or choice, no weight above 0, or options that contradict each other.

    Examples:
        >>> import smdl
        >>> smdl.Objective(facility_location=1.0, uncertainty=0.5, distance="cosine")
        Objective(uncertainty=0.5, facility_location=1.0, distance='cosine')
    """

    def __init__(
        self,
        *,
        distance: DistanceName = "euclidean",
        sigma: float | None = None,
        space: SpaceName = "features",
        normalize: Normalisation = "pool",
        concave: ConcaveName = "sqrt",
        kernel: KernelName = "linear",
        noise: float = 1.0,
        neighbours: int | None = None,
        sample: int | None = None,
        overlap: float = 0.5,
        saturation: float = 0.1,
        importance: Literal["uncertainty"] | None = None,
        **weights: float,
    ) -> None:
        self.weights: Mapping[str, float] = _check_weights(weights)
        self.distance = one_of("distance", distance, DISTANCES)
        self.sigma = None if sigma is None else positive("sigma", sigma, "a positive number, or None for the median")
        self.space = one_of("space", space, SPACES)
        self.normalize = one_of("normalize", normalize, NORMALISATIONS)
        self.concave = one_of("concave", concave, CONCAVE)
        self.kernel = one_of("kernel", kernel, KERNELS)
        self.noise = positive("noise", noise)
        self.neighbours = None if neighbours is None else whole_number("neighbours", neighbours)
        self.sample = None if sample is None else whole_number("sample", sample)
        if self.neighbours is not None and self.sample is not None:
            raise ValueError(
                "neighbours and sample both restrict what similarities are summed over: choose one of them"
            )
        if self.neighbours is not None and "graph_cut" in self.weights:
            raise ValueError(
                "neighbours cannot be set with graph_cut, which reads similarities of all pairs: use sample="
            )
        self.overlap = positive("overlap", overlap)
        self.saturation = number("saturation", saturation, "a number in (0, 1]", low=sys.float_info.min, high=1.0)
        self.importance = None if importance is None else one_of("importance", importance, IMPORTANCES)
        if importance is not None and "facility_location" not in self.weights:
            raise ValueError("importance is about facility_location: give facility_location a weight above 0")

    @classmethod
    def paper(cls, **options: Any) -> "Objective":
        """0.2 U + 0.1 R + 0.5 MC + 0.2 FM: the paper's weights for whole data sets."""
        return cls(uncertainty=0.2, redundancy=0.1, mean_closeness=0.5, feature_match=0.2, **options)

    @classmethod
    def paper_subset(cls, **options: Any) -> "Objective":
        """0.25 U + 0.25 R + 0.4 MC + 0.1 FM: the paper's weights from its search on a subset."""
        return cls(uncertainty=0.25, redundancy=0.25, mean_closeness=0.4, feature_match=0.1, **options)

    @classmethod
    def gradients(cls, **options: Any) -> "Objective":
        """Facility location over last-layer gradients."""
        return cls(**{"facility_location": 1.0, "space": "gradients", **options})

    @classmethod
    def labels(cls, probabilities: bool = False, **options: Any) -> "Objective":
        """Facility location over features: the rows worth a label. With `probabilities`, which the pool must have then,
        each row counts as much as the model is unsure of it."""
        weighted = {"importance": "uncertainty"} if true_or_false("probabilities", probabilities) else {}
        return cls(**{"facility_location": 1.0, **weighted, **options})

    def on(self, pool: Pool, engine: str | None = None) -> "Problem":
        """Return this objective over this pool, scores computed. It is kept with the pool: the next call is free."""
        problem = pool.problems.get(self._key)
        if problem is None:
            problem = Problem(self, pool.without_scores(), engine or self.engine_on(pool))
            pool.problems[self._key] = problem
        return problem

    def engine_on(self, pool: Pool) -> str:
        """Return how facility location gets the similarities of this pool. It is decided once per pool: the matrix that
        is held already may not fit a second time."""
        problem = pool.problems.get(self._key)
        return engine_of(self, len(pool), pool.device, pool) if problem is None else problem.geometry.engine

    @property
    def diminishing(self) -> bool:
        """Whether the gain of a sample never rises as the batch grows: what lazy evaluation rests on."""
        return self.has_value and all(TERMS[name].diminishing for name in self.weights)

    def diminishes(self, asked: bool) -> bool:
        """Whether gains diminish over a pool, `asked` about a query or not."""
        return self.diminishing and not (asked and not all(TERMS[name].diminishing_about for name in self.weights))

    @property
    def has_value(self) -> bool:
        """Whether there is an F(S): scores per step have none."""
        return self.normalize == "pool"

    @cached_property
    def covering(self) -> tuple[str, ...]:
        """The names of its terms that sum similarities over the pool, or over a sample of it."""
        return tuple(name for name in self.weights if TERMS[name].covers)

    @cached_property
    def needs(self) -> frozenset[str]:
        """What it reads from a pool besides features."""
        errors = ("errors",) if self.space == "gradients" else ()
        unsure = ("probabilities",) if self.importance else ()
        return frozenset((*errors, *unsure, *(need for name in self.weights for need in TERMS[name].needs)))

    @cached_property
    def set_terms(self) -> tuple[str, ...]:
        """The names of its terms whose gains depend on the batch so far."""
        return tuple(name for name in self.weights if issubclass(TERMS[name], SetTerm))

    @staticmethod
    def terms() -> tuple[str, ...]:
        """Return the names that weights may have."""
        return tuple(TERMS)

    @cached_property
    def options(self) -> dict[str, Any]:
        """Everything but the weights."""
        return {name: getattr(self, name) for name in OPTIONS}

    def changed(self, **changes: Any) -> "Objective":
        """Return a copy with other options. If weights are among the changes, the changes are the whole objective."""
        if any(name in TERMS for name in changes):
            return Objective(**changes)
        return Objective(**{**self.weights, **self.options, **changes})

    @cached_property
    def _key(self) -> str:
        """All weights and options. A string keeps its hash: pools look problems up at every step."""
        return repr((self.weights, self.options))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Objective) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        changed = {name: value for name, value in self.options.items() if value != OPTIONS[name]}
        return f"Objective({', '.join(f'{k}={v!r}' for k, v in {**self.weights, **changed}.items())})"


#: The options of an objective with their defaults: all its parameters but the weights.
OPTIONS: dict[str, Any] = {
    parameter.name: parameter.default
    for parameter in inspect.signature(Objective).parameters.values()
    if parameter.kind is inspect.Parameter.KEYWORD_ONLY
}
PRESETS: dict[str, Callable[..., Objective]] = {
    "labels": Objective.labels,
    "paper": Objective.paper,
    "paper_subset": Objective.paper_subset,
    "gradients": Objective.gradients,
}


def as_objective(objective: "Objective | str") -> Objective:
    """Return an objective; a name is that of a preset (paper, …) or of a single term (facility_location, …)."""
    if isinstance(objective, Objective):
        return objective
    if not isinstance(objective, str):
        raise TypeError(choice("objective", objective, "a smdl.Objective, or the name of a preset or a term"))
    if objective in PRESETS:
        return PRESETS[objective]()
    if objective not in TERMS:
        raise ValueError(unknown("objective", objective, (*PRESETS, *TERMS)))
    weights: dict[str, Any] = {objective: 1.0}
    return Objective(**weights)


class Problem:
    """An objective over a pool: scores and scales, computed once."""

    def __init__(self, objective: Objective, pool: Pool, engine: str) -> None:
        self.objective, self.pool = objective, pool
        check_pool(objective, pool)
        self._scores: dict[str, np.ndarray] = {}  # of modular terms
        self.diminishing = objective.diminishes(pool.query is not None)
        self.ranges: dict[str, tuple[float, float]] = {}
        self.geometry = Geometry(objective, pool, engine)
        self.modular = self._modular()  # (N,) float64 on the host: Σ weight · scaled score
        self.set_terms: dict[str, SetTerm] = {name: TERMS[name](self.geometry) for name in objective.set_terms}

    def _modular(self) -> np.ndarray:
        total = np.zeros(len(self.pool))
        for name, weight in self.objective.weights.items():
            if issubclass(TERMS[name], ModularTerm):
                term = TERMS[name](self.geometry)
                term.check()
                scores = term.scores()
                low, high = float(scores.min()), float(scores.max())
                self._scores[name], self.ranges[name] = scores, (low, high)
                arithmetic.add_scaled(total, scores, weight, low, high)
        return total

    def scaled(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Return the scores of a modular term for some rows, min–max scaled over the pool, without its weight."""
        out = np.zeros(len(rows))
        arithmetic.add_scaled(out, self._scores[name][rows], 1.0, *self.ranges[name])
        return out

    def coefficient(self, name: str) -> float:
        """Return the factor of a set term's gains: weight / unit, or 0 if the unit is 0."""
        unit = self.set_terms[name].unit
        return self.objective.weights[name] / unit if unit > 0 else 0.0


#: Features of samples outside of the pool, by their names in `Pool` and `select`.
OTHERS = ("query", "away_from")


def check_pool(objective: Objective, pool: Pool) -> None:
    """Raise an error if an objective needs what a pool does not have, or has no use for what it has. The values of
    features are not read: terms check those."""
    for name in objective.weights:
        _check_evidence(pool, name, TERMS[name].needs)
    if objective.space == "gradients":
        _check_gradients(objective, pool)
    if objective.importance is not None:
        _check_evidence(pool, 'importance="uncertainty"', ("probabilities",))
        if pool.importance is not None:
            raise ValueError('Pool(importance=...) and importance="uncertainty" are both given: choose one of them')
    if pool.similarities is not None:
        _check_similarities(objective, sparse=isinstance(pool.similarities, tuple))
    if pool.feature_weights is not None and not any(TERMS[name].weighted for name in objective.weights):
        users = " and ".join(name for name, term in TERMS.items() if term.weighted)
        raise ValueError(f"feature_weights are for {users}: the objective has {', '.join(objective.weights)}")
    for name in OTHERS:
        if getattr(pool, name) is not None:
            check_others(name, objective, pool.similarities is not None)


def _check_evidence(pool: Pool, who: str, needs: tuple[str, ...]) -> None:
    for need in needs:
        if getattr(pool, need) is None:
            raise ValueError(f"{who} needs {need}: pass them as Pool({need}=...)")


def _check_gradients(objective: Objective, pool: Pool) -> None:
    for name in objective.weights:
        if not TERMS[name].signed:
            raise ValueError(f'{name} needs features ≥ 0, but gradients are signed: use space="features"')
    if pool.given_errors is None:
        _check_evidence(pool, 'space="gradients"', ("probabilities", "labels"))
    elif objective.distance == "correlation":
        raise ValueError(
            'distance="correlation" in space="gradients" needs the errors of cross-entropy, which sum to zero,'
            ' and this pool has others: use distance="cosine"'
        )


def check_others(name: str, objective: Objective, similarities: bool = False) -> None:
    """Raise an error if an objective has no use for a query or for away_from."""
    if not any(TERMS[term].beside for term in objective.weights):
        users = " or ".join(term for term in TERMS if TERMS[term].beside)
        raise ValueError(f"{name} is about {users}: the objective has {', '.join(objective.weights)}")
    if objective.space == "gradients":
        raise ValueError(f'{name} needs space="features": its samples have no gradients')
    if name == "query" and "saturated_coverage" in objective.weights:
        raise ValueError("saturated_coverage has no form for a query: use facility_location")
    if similarities:
        raise ValueError(f"{name} needs features, and this pool has similarities alone")


#: Terms that need no features.
_WITHOUT_FEATURES = [name for name, term in TERMS.items() if term.featureless or term.covers or term.pairwise]


def _check_similarities(objective: Objective, sparse: bool) -> None:
    """Raise an error if the objective needs more than the similarities of Pool.from_similarities."""
    wrong = [name for name in objective.weights if name not in _WITHOUT_FEATURES]
    if wrong:
        raise ValueError(f"{wrong[0]} needs features; a pool of similarities has {', '.join(_WITHOUT_FEATURES)}")
    pairs = [name for name in objective.weights if sparse and TERMS[name].pairwise]
    if pairs:
        raise ValueError(f"{pairs[0]} reads similarities of single pairs: pass a dense matrix, such as S.toarray()")
    if objective.neighbours is not None or objective.sample is not None or objective.space == "gradients":
        raise ValueError("similarities are given: neighbours, sample and space cannot be set")


def _check_weights(weights: Mapping[str, float]) -> dict[str, float]:
    for name, weight in weights.items():
        if name not in TERMS:
            is_option = any(near in OPTIONS for near in get_close_matches(name, (*TERMS, *OPTIONS), n=1))
            raise ValueError(unknown("option", name, OPTIONS) if is_option else unknown("term", name, TERMS))
        number(f"the weight of {name}", weight, "a finite number ≥ 0", low=0.0)
    kept = {name: float(weights[name]) for name in TERMS if weights.get(name, 0) > 0}
    if not kept:
        raise ValueError(f"an objective needs at least one weight above 0; the terms are {', '.join(TERMS)}")
    return kept
