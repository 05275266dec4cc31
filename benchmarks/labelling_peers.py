"""Other people's acquisition functions, by their own code, as methods of a simulation.

Each gets the features, the labels so far, and, where it asks for one, the same logistic regression as ours. Those that
need a model begin with the rows of facility location, as ours does; the others too, so that all differ in what comes
after. BALD needs a committee: five regressions on resampled labels.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from smdl.labelling.probe import STRENGTH
from smdl.labelling.simulation import Choose, Pile, facility_location


def _regression() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=STRENGTH, max_iter=500, tol=1e-3)


def _scaled(pile: Pile) -> np.ndarray:
    """Return the features as the probe sees them."""
    if "scaled" not in pile.kept:
        centred = pile.features - pile.features.mean(axis=0)
        pile.kept["scaled"] = centred / np.sqrt((centred**2).sum(axis=1).mean())
    return pile.kept["scaled"]


def _targets(pile: Pile) -> np.ndarray:
    y = np.full(len(pile.features), np.nan)
    y[pile.labelled] = pile.targets
    return y


def skactiveml(make: Callable[[int, int], Any], model: str | None = None, first: bool = True) -> Choose:
    """Return a strategy of scikit-activeml. `first`: it may choose the first rows too."""

    def choose(pile: Pile, size: int) -> np.ndarray:
        from skactiveml.classifier import SklearnClassifier

        if len(np.unique(pile.targets)) < 2 and (model or not first):
            return facility_location(pile, size)
        options: dict[str, Any] = {}
        if model == "clf":
            options["clf"] = SklearnClassifier(_regression(), classes=np.unique(pile.targets))
        x = _scaled(pile)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return make(pile.seed, pile.classes).query(X=x, y=_targets(pile), batch_size=size, **options)

    return choose


def bald(pile: Pile, size: int) -> np.ndarray:
    """The rows that a committee disagrees about most: scikit-activeml's GreedyBALD."""
    from skactiveml.classifier import SklearnClassifier
    from skactiveml.pool import GreedyBALD

    if len(np.unique(pile.targets)) < 2:
        return facility_location(pile, size)
    classes, x, y = np.unique(pile.targets), _scaled(pile), _targets(pile)
    committee = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for member in range(5):
            drawn = np.random.default_rng([pile.seed, member]).integers(len(pile.labelled), size=len(pile.labelled))
            rows = pile.labelled[drawn]
            if len(np.unique(y[rows])) < 2:
                rows = pile.labelled
            committee.append(SklearnClassifier(_regression(), classes=classes).fit(x[rows], y[rows]))
        query = GreedyBALD(random_state=pile.seed)
        return query.query(X=x, y=y, ensemble=committee, fit_ensemble=False, batch_size=size)


def modal_margin(pile: Pile, size: int) -> np.ndarray:
    """modAL's ranked batches: unsure, and unlike those labelled or chosen."""
    from modAL.batch import uncertainty_batch_sampling
    from modAL.models import ActiveLearner

    if len(np.unique(pile.targets)) < 2:
        return facility_location(pile, size)
    x, free = _scaled(pile), pile.free
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = ActiveLearner(_regression(), X_training=x[pile.labelled], y_training=pile.targets)
        found = uncertainty_batch_sampling(learner, x[free], n_instances=size)
    return free[np.asarray(found[0] if isinstance(found, tuple) else found, int)]


def small_text_coreset(pile: Pile, size: int) -> np.ndarray:
    """small-text's greedy coreset; its cosine, the default, takes the arccosine of values above one."""
    from small_text.query_strategies.coresets import greedy_coreset

    if len(pile.labelled) == 0:
        return facility_location(pile, size)
    x, free = _scaled(pile), pile.free
    return np.asarray(greedy_coreset(x, free, pile.labelled, size, distance_metric="euclidean"))


def _pool(name: str) -> Callable[..., Any]:
    from skactiveml import pool

    return getattr(pool, name)


#: The name says whose code it is.
PEERS: dict[str, Choose] = {
    "skactiveml.Badge": skactiveml(lambda seed, _: _pool("Badge")(random_state=seed), "clf"),
    "skactiveml.CoreSet": skactiveml(lambda seed, _: _pool("CoreSet")(random_state=seed), first=False),
    "skactiveml.TypiClust": skactiveml(lambda seed, _: _pool("TypiClust")(random_state=seed)),
    "skactiveml.ProbCover": skactiveml(lambda seed, c: _pool("ProbCover")(n_classes=c, random_state=seed)),
    "skactiveml.Falcun": skactiveml(lambda seed, _: _pool("Falcun")(random_state=seed), "clf"),
    "skactiveml.MaxHerding": skactiveml(lambda seed, _: _pool("MaxHerding")(random_state=seed)),
    "skactiveml.margin": skactiveml(
        lambda seed, _: _pool("UncertaintySampling")("margin_sampling", random_state=seed), "clf"
    ),
    "skactiveml.GreedyBALD": bald,
    "modAL.batch": modal_margin,
    "small_text.greedy_coreset": small_text_coreset,
}
