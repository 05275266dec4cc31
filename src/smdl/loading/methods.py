"""METHODS: every method by its name. A method is a strategy with its options and candidates."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from smdl.common.factory import load_object
from smdl.common.messages import choice, names_checked, unknown
from smdl.common.names import MethodName, ObjectiveName
from smdl.engine.objective import PRESETS, Objective, as_objective
from smdl.engine.terms import TERMS
from smdl.loading.candidates.base import Candidates
from smdl.loading.candidates.full import Full
from smdl.loading.candidates.observed import Observed
from smdl.loading.candidates.random_pool import RandomPool
from smdl.loading.strategies.balanced import Balanced
from smdl.loading.strategies.divbs import DivBS
from smdl.loading.strategies.evolved_sampling import EvolvedSampling
from smdl.loading.strategies.importance import Importance
from smdl.loading.strategies.infobatch import InfoBatch
from smdl.loading.strategies.loss_rank import LossRank
from smdl.loading.strategies.progressive import Progressive
from smdl.loading.strategies.recommended import Recommended
from smdl.loading.strategies.released import Released
from smdl.loading.strategies.rho_loss import RhoLoss
from smdl.loading.strategies.selective_backprop import SelectiveBackprop
from smdl.loading.strategies.strategy import Strategy
from smdl.loading.strategies.submodular import Submodular
from smdl.loading.strategies.uniform import Uniform
from smdl.loading.strategies.weighted import Weighted


@names_checked
@dataclass(frozen=True)
class Method:
    """A way to choose batches, under a name.

    Args:
        strategy: a Strategy class, or any callable that returns a Strategy.
        candidates: what to choose from; by default the whole dataset, a scored pool or shuffled samples, as it needs
        options: arguments of `strategy`
        about: one line for tables and help texts
        name: what tables and messages call it.

    Examples:
        >>> import smdl
        >>> class Last(smdl.Strategy):
        ...     def __init__(self, step=1):
        ...         self.step = step
        >>> smdl.Method("every_other", Last, smdl.Full(), options={"step": 2}).candidates
        Full(every=5, replacement=False)
    """

    name: str
    strategy: Callable[..., Strategy]
    candidates: Candidates | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    about: str = ""

    @property
    def objective(self) -> Objective | None:
        """What the method maximises; None if its strategy takes no objective."""
        parameter = (self._parameters() or {}).get("objective")
        if parameter is None:
            return None
        given = self.options.get("objective", parameter.default)
        return None if given is parameter.empty else as_objective(given)

    def changed(
        self,
        objective: Objective | ObjectiveName | None = None,
        candidates: Candidates | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> "Method":
        """Return this method with another objective, other candidates, or some options changed."""
        given = {**self.options, **_mapping(options or {})}
        if objective is not None:
            known = self._parameters()
            if known is not None and "objective" not in known:
                raise ValueError(f"method {self.name} has no objective, got {objective!r}")
            given["objective"] = as_objective(objective)
        return replace(self, options=given, candidates=self.candidates if candidates is None else candidates)

    def make(self) -> tuple[Strategy, Candidates]:
        """Return the strategy and candidates of its own, checked against each other."""
        if not callable(self.strategy):
            raise TypeError(
                choice(f"the strategy of method {self.name}", self.strategy, "a Strategy class or a callable")
            )
        if self.candidates is not None and not isinstance(self.candidates, Candidates):
            raise TypeError(
                choice("candidates", self.candidates, "candidates such as smdl.RandomPool() or smdl.Full()")
            )
        known = self._parameters()
        for name in _mapping(self.options):
            if known is not None and name not in known:
                message = unknown(f"option of method {self.name}", name, known)
                raise ValueError(message if known else f"method {self.name} takes no options, got {name!r}")
        try:
            inspect.signature(self.strategy).bind(**self.options)
        except (TypeError, ValueError) as error:  # some builtins have no signature
            raise TypeError(f"method {self.name} cannot make its strategy: {error}") from None
        strategy = self.strategy(**self.options)
        if not isinstance(strategy, Strategy):
            raise TypeError(choice(f"the strategy of method {self.name}", type(strategy).__name__, "a smdl.Strategy"))
        candidates = copy.deepcopy(self.candidates) if self.candidates is not None else _default_candidates(strategy)
        candidates.check(strategy)
        return strategy, candidates

    def _parameters(self) -> Mapping[str, inspect.Parameter] | None:
        """Return what `strategy` takes; None if it takes any keyword, or does not say."""
        try:
            found = inspect.signature(self.strategy).parameters
        except ValueError:  # some builtins have none
            return None
        kinds = {parameter.kind for parameter in found.values()}
        return None if inspect.Parameter.VAR_KEYWORD in kinds else found


def _mapping(options: Any) -> Mapping[str, Any]:
    if not isinstance(options, Mapping):
        raise TypeError(choice("options", options, "a mapping of names to values"))
    return options


def _default_candidates(strategy: Strategy) -> Candidates:
    if strategy.needs_all:
        return Full(every=None, replacement=True)
    return RandomPool() if strategy.needs_scores else RandomPool(1)


#: How the paper looks for a batch (Algorithm 1): ten random partitions, lazier-than-lazy greedy in each, merge, again.
_ALGORITHM_1 = {"optimizer": "stochastic", "partitions": 10, "epsilon": 0.01}

_TABLE = (
    Method("uniform", Uniform, RandomPool(1), about="plain SGD: batches drawn at random"),
    Method("balanced", Balanced, Full(every=None, replacement=True), about="every class equally often, at random"),
    Method(
        "progressive",
        Progressive,
        Full(every=None, replacement=True),
        about="from uniform to every class equally often, over the run (Kang et al. 2020)",
    ),
    Method("weighted", Weighted, Full(every=None, replacement=True), about="every sample as often as its weight says"),
    Method(
        "loss",
        LossRank,
        Full(every=None, replacement=True),
        about="high losses more often (Loshchilov & Hutter 2015); the pressure decays over the run",
    ),
    Method("infobatch", InfoBatch, about="losses below the mean half as often, weighted (Qin et al. 2024)"),
    Method(
        "evolved_sampling",
        EvolvedSampling,
        RandomPool(4),
        about="by losses and running losses in a pool of four batches (Cheng et al. 2025)",
    ),
    Method("importance", Importance, RandomPool(3), about="by gradient norms, weighted (Katharopoulos & Fleuret 2018)"),
    Method("selective_backprop", SelectiveBackprop, RandomPool(2), about="high losses, late in the run (Composer)"),
    Method("divbs", DivBS, RandomPool(3), about="last-layer gradients that span the pool's (Hong et al. 2024)"),
    Method("rho_loss", RhoLoss, RandomPool(10), about="the highest reducible losses in a large pool (Mindermann 2022)"),
    Method(
        "paper",
        Submodular,
        Full(5),
        {"objective": Objective.paper(), **_ALGORITHM_1},
        about="the paper: 0.2 U + 0.1 R + 0.5 MC + 0.2 FM over the whole dataset, scored every 5 steps",
    ),
    Method(
        "paper_subset",
        Submodular,
        Full(5),
        {"objective": Objective.paper_subset(), **_ALGORITHM_1},
        about="the paper with the weights of its search on a subset: 0.25 U + 0.25 R + 0.4 MC + 0.1 FM",
    ),
    Method(
        "paper_distance",
        Submodular,
        Full(5),
        {
            "objective": Objective(uncertainty=0.2, redundancy=0.1, mean_distance=0.5, feature_match=0.2),
            **_ALGORITHM_1,
        },
        about="the paper with mean closeness as Eq. 6 prints it: the distance to the mean",
    ),
    Method("paper_released", Released, Full(5), about="what the code that the paper's authors published computes"),
    Method(
        "recommended",
        Recommended,
        RandomPool(1),
        about="plain passes without wrong labels, and every class equally often if the test set is like that",
    ),
    Method(
        "observed",
        Submodular,
        Observed(3),
        {"objective": Objective.gradients()},
        about="facility location over last-layer gradients, from features that the training forward computed anyway",
    ),
    Method(
        "fresh",
        Submodular,
        RandomPool(3),
        {"objective": Objective.gradients()},
        about="the same in a random pool of 3 batches, forwarded at every step: best per step, rarely per second",
    ),
)
#: Every method by name. A new one: a file with its strategy, and a line above.
METHODS: dict[str, Method] = {method.name: method for method in _TABLE}

#: Candidates by name, for configs.
CANDIDATES: dict[str, type[Candidates]] = {"full": Full, "observed": Observed, "random_pool": RandomPool}


def methods() -> dict[str, str]:
    """Return every method by name, with a line about it.

    Returns:
        A dict of names and lines.

    Examples:
        >>> import smdl
        >>> smdl.methods()["uniform"]
        'plain SGD: batches drawn at random'
    """
    return {name: method.about for name, method in METHODS.items()}


def _unknown_method(name: str) -> str:
    if name in ("random", "sgd", "shuffle"):
        return f"unknown method {name!r}: plain SGD is method='uniform'"
    if name in TERMS or name in PRESETS:
        return f"unknown method {name!r}: this is an objective. Pass objective={name!r}"
    return unknown("method", name, METHODS) + ", or package.module:name"


def as_method(method: "MethodName | str | Method | Strategy") -> Method:
    """Return a method: one of METHODS by name, `package.module:name`, a Method, or a Strategy."""
    if isinstance(method, str) and ":" in method:
        found = load_object(method, "method")
        if isinstance(found, Method):
            return replace(found, name=method)
        if not callable(found):
            raise TypeError(choice(f"method {method}", type(found).__name__, "a smdl.Method or a Strategy class"))
        return Method(method, found)  # type: ignore[arg-type]
    if isinstance(method, str):
        if method not in METHODS:
            raise ValueError(_unknown_method(method))
        return METHODS[method]
    if isinstance(method, Strategy):
        return Method(type(method).__name__, lambda: method)
    if not isinstance(method, Method):
        raise TypeError(choice("method", method, "a name, a smdl.Method or a smdl.Strategy"))
    return method


def make_candidates(changes: Mapping[str, Any], method: Method) -> Candidates | None:
    """Return the candidates that a config describes: `kind` names it, the rest are its options. Without `kind` the
    options change those of the method's own candidates."""
    options = dict(changes)
    name = options.pop("kind", None)
    if name is None:
        if not options:
            return None
        base = method.make()[1]
        kind, kept = type(base), {key: getattr(base, key) for key in inspect.signature(type(base)).parameters}
    else:
        kind, kept = load_object(name, "candidates.kind") if ":" in str(name) else CANDIDATES.get(str(name)), {}
        if kind is None:
            raise ValueError(unknown("candidates.kind", name, CANDIDATES) + ", or package.module:Class")
        if not (isinstance(kind, type) and issubclass(kind, Candidates)):
            raise ValueError(f"candidates.kind {name} must be a class derived from smdl.Candidates")
    known = inspect.signature(kind).parameters
    for option in options:
        if option not in known:
            raise ValueError(unknown(f"option of candidates {kind.__name__}", option, known))
    return kind(**{**kept, **options})
