"""Selector: `select` in the style of scikit-learn, which it neither needs nor imports."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np
import torch

from smdl.common.messages import choice, names_checked, unknown
from smdl.common.names import ObjectiveName, OptimizerName, SharesName
from smdl.engine.objective import Objective, as_objective
from smdl.engine.pool import Array, Pool
from smdl.engine.selection import Selection, as_pool, select


@names_checked
class Selector:
    """Pick rows: `Selector("facility_location", 100).fit(X).transform(X)` returns 100 rows of X.

    The arguments are those of `smdl.select`, which says more about them. By row (costs, groups, initial, among,
    exclude) they are about the rows that `fit` gets.

    After `fit`: `indices_` (size,) and `gains_` (size,) in the order picked, `selection_` (the Selection, with
    `shares` and `value`), and `n_features_in_`. A value that cannot work raises an error in `fit`, as scikit-learn
    wants it.

    Args:
        objective: an Objective, or the name of a preset or of a term.
        size: how many rows to pick, or (low, high) with size_penalty.
        fraction: a share of the candidates to pick, in place of `size`.
        initial: rows that are chosen already.
        query: features that the picks are to be about, (Q, D).
        away_from: features that are there already, (P, D).
        costs: a number > 0 per row.
        budget: the most that the picks may cost together.
        groups: a group per row.
        per_group: at most that many picks per group.
        shares: what part of the picks each group gets: "uniform", "input", or a number per group.
        at_least: at least that many picks per group.
        optimizer: auto, naive, lazy, stochastic or subset.
        partitions: > 1 maximises random parts first, and then among their picks.
        epsilon: ε of optimizer="stochastic".
        seed: a whole number, or several.
        exclude: rows that may not be picked.
        among: rows that may be picked.
        size_penalty: with size=(low, high): stop, after `low`, once the best gain is below it.
        threads: for partitions.
        progress: called as progress(what, done, total) during long work.

    Raises:
        ValueError: by `fit`, for a value that cannot work.

    Examples:
        >>> import numpy as np, smdl
        >>> smdl.Selector("facility_location", 2).fit_transform(np.random.default_rng(0).normal(size=(30, 4))).shape
        (2, 4)
    """

    indices_: np.ndarray
    gains_: np.ndarray
    selection_: Selection
    n_features_in_: int

    def __init__(
        self,
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
        progress: Callable[[str, int, int], None] | None = None,
    ) -> None:
        given = locals()
        for name in inspect.signature(type(self)).parameters:
            setattr(self, name, given[name])

    def fit(self, X: Any, y: Array | None = None) -> "Selector":  # noqa: N803
        """Select rows of X: an array, a tensor, a data frame or a Pool. Only objectives that need labels read y; its
        classes may have any names."""
        params = self.get_params()
        objective = as_objective(params.pop("objective"))
        pool = X if isinstance(X, Pool) else as_pool(_matrix(X))
        if y is not None and pool.labels is None and "class_balance" in objective.weights:
            pool = Pool(pool.features, labels=_class_numbers(y).to(pool.device))
        self.selection_ = select(pool, objective, **params).on_host()
        self.indices_, self.gains_ = self.selection_.indices, self.selection_.gains
        self._rows, self.n_features_in_ = pool.features.shape
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return the picked rows of X, in the order picked and in the type of X. X has one row per row of `fit`: the
        same matrix, or something that belongs to it, such as labels or texts."""
        if not hasattr(self, "indices_"):
            raise ValueError("this Selector has picked nothing yet: call fit first")
        if len(X) != self._rows:
            raise ValueError(
                f"transform returns the rows that fit picked, so X must have the {self._rows} rows of fit, got {len(X)}"
            )
        if hasattr(X, "iloc"):
            return X.iloc[self.indices_]
        if isinstance(X, list | tuple):
            return type(X)([X[row] for row in self.indices_])
        return X[torch.from_numpy(self.indices_).to(X.device)] if isinstance(X, torch.Tensor) else X[self.indices_]

    def fit_transform(self, X: Any, y: Array | None = None) -> Any:  # noqa: N803
        """Select rows of X and return them."""
        return self.fit(X, y).transform(X)

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the arguments of `__init__`."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **changes: Any) -> "Selector":
        """Change arguments of `__init__`. They count from the next `fit` on."""
        known = self.get_params()
        for name, value in changes.items():
            if name not in known:
                raise ValueError(unknown("argument of Selector", name, known))
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn asks each step of a pipeline. Nothing else calls this, so it is installed."""
        tags: Any = import_module("sklearn.utils")
        return tags.Tags(None, tags.TargetTags(required=False), transformer_tags=tags.TransformerTags())

    def __repr__(self) -> str:
        return f"Selector({', '.join(f'{name}={value!r}' for name, value in self.get_params().items())})"


def _matrix(features: Any) -> Any:
    if hasattr(features, "toarray"):
        raise TypeError(choice("X", type(features).__name__, "a dense matrix, such as X.toarray()"))
    return (
        np.asarray(features) if hasattr(features, "__array__") and not isinstance(features, torch.Tensor) else features
    )


def _class_numbers(labels: Array) -> torch.Tensor:
    """Return class numbers 0..C-1 in place of the names of the classes."""
    values = labels.numpy(force=True) if isinstance(labels, torch.Tensor) else np.asarray(labels)
    return torch.from_numpy(np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(values.shape))
