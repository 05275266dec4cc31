"""What the options of `smdl select` must have in common: columns that a term reads, limits that fit together."""

import numpy as np

from smdl.common.messages import positive
from smdl.files.checks import numbers_of
from smdl.files.job import objective_of
from smdl.files.request import SelectRequest
from smdl.files.rows import Rows


def check_columns_are_read(request: SelectRequest) -> None:
    """Raise an error if a column is given that no term of the objective reads, or is not given and needed."""
    objective = objective_of(request.objective)
    needs = objective.needs | ({"probabilities", "labels"} if "errors" in objective.needs else set())
    for role in ("probabilities", "labels"):
        if getattr(request, role) is not None and role not in needs:
            raise ValueError(f"--{role}: no term of the objective reads them. Leave them out, or see --objective")
    if request.utility is not None and "utility" not in objective.needs:
        weights = " ".join(f"--objective.{name} {weight:g}" for name, weight in objective.weights.items())
        share = 1 / request.sizes[-1] if request.sizes else 0.01
        raise ValueError(
            f"--utility: no term of the objective reads it. Give it a weight: {weights} --objective.utility {share:.2g}"
        )
    if request.importance is not None and "facility_location" not in objective.weights:
        raise ValueError("--importance is about facility_location: give it a weight, --objective.facility_location 1")
    if request.importance is not None and objective.importance is not None:
        raise ValueError("--importance and --objective.importance are both given: choose one of them")
    for role in ("probabilities", "labels", "utility"):
        if getattr(request, role) is None and role in needs:
            raise ValueError(f"the objective needs {role}: name them by --{role} COLUMN")


def check_limits(request: SelectRequest, source: Rows) -> None:
    """Check that costs, budget and quotas fit together."""
    columns = source.columns
    if (request.budget is None) != ("costs" not in columns):
        raise ValueError("--costs and --budget belong together: give both, or neither")
    for name in ("per_group", "shares"):
        if getattr(request, name) is not None and "groups" not in columns:
            raise ValueError(f"--{name} needs --groups: the column that says which group a row belongs to")
    if request.at_least is not None and request.shares is None:
        raise ValueError("--at_least needs --shares, such as --shares input")
    if request.shares is not None and len(request.sizes) > 1:
        raise ValueError("--shares needs one --size: the beginning of a choice has other shares")
    if "utility" in columns:
        numbers_of(source, "utility")
    rule = "a column of finite numbers ≥ 0, not all of them 0"
    if "importance" in columns and not numbers_of(source, "importance", rule, least=0).any():
        raise ValueError(f"--importance must be {rule}")
    if request.budget is not None:
        positive("budget", request.budget)
        if request.sizes or request.fraction is not None:
            raise ValueError("--budget says how many rows to choose: leave out --size and --fraction")
        numbers_of(source, "costs", "finite numbers above 0", least=np.nextafter(0, 1))
