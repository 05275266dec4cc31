"""The names that editors complete are those that the tables hold, and public functions say them."""

import inspect
from types import UnionType
from typing import Union, get_args, get_origin

import pytest

import smdl
from smdl.common import names
from smdl.engine.arithmetic import CONCAVE
from smdl.engine.distances import DISTANCES
from smdl.engine.objective import PRESETS
from smdl.engine.terms import TERMS
from smdl.engine.terms.log_determinant import KERNELS
from smdl.loading.methods import METHODS
from smdl.loading.strategies.submodular import Submodular
from smdl.scoring.feature_cache import TYPES
from smdl.scoring.losses import LOSSES, SHORT
from smdl.scoring.taps import POOLING

#: Names that may be those of the user's own things: their parameters take any text besides.
OPEN = {"method", "methods", "targets", "features", "out", "annotator", "metric", "name", "about"}


@pytest.mark.parametrize(
    ("type_of_names", "table"),
    [
        (names.ConcaveName, CONCAVE),
        (names.DistanceName, DISTANCES),
        (names.FeatureType, TYPES),
        (names.KernelName, KERNELS),
        (names.LossName, (*LOSSES, *SHORT)),
        (names.MethodName, METHODS),
        (names.ObjectiveName, (*PRESETS, *TERMS)),
        (names.PoolingName, POOLING),
    ],
)
def test_a_type_has_the_names_of_its_table(type_of_names, table):
    assert sorted(get_args(type_of_names)) == sorted(table)


def takes_any_text(hint):
    return hint is str or (get_origin(hint) in (Union, UnionType) and str in get_args(hint))


@pytest.mark.parametrize("public", sorted({*smdl.__all__} - {"SelectionPlan"}))  # users read a plan, and never make it
def test_a_parameter_that_takes_one_of_several_names_says_which(public):
    parameters = inspect.signature(getattr(smdl, public)).parameters.values()
    assert {parameter.name for parameter in parameters if takes_any_text(parameter.annotation)} - OPEN == set()


@pytest.mark.parametrize("optimizer", get_args(names.OptimizerName))
def test_every_optimizer_that_is_named_exists(optimizer):
    if optimizer == "bidirectional":  # it chooses the size itself, so no loader takes it
        assert len(smdl.select([[0.0], [1.0], [5.0]], "graph_cut", optimizer=optimizer).indices) > 0
        return
    assert Submodular("facility_location", optimizer=optimizer).optimizer == optimizer
    assert len(smdl.select([[0.0], [1.0], [5.0]], size=2, optimizer=optimizer).indices) == 2
