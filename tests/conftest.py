"""Hypothesis strategies: pools on a dyadic grid, where float arithmetic is exact, and pools of arbitrary floats."""

import os
import signal
import sys
from functools import cache, partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st

import smdl
from smdl.common import environment
from smdl.engine import compile_notice
from tests import one_compiler

torch.set_num_threads(1)  # pytest-xdist has one worker per core
# A shell starts what runs in the background with Ctrl-C ignored, and programs that the tests start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Threads of the processes that tests start sleep while they wait: spinning ones take the cores from each other.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# The first test that needs a loop compiles it: on a busy machine that line would stand among the messages of any test.
compile_notice.PATIENCE = 1e6
if "PYTEST_XDIST_WORKER" in os.environ:
    one_compiler.share_compiled_loops()
# Every run asks git for the commit and reads the versions of all packages: a quarter of the time of a short run.
environment.commit, environment.installed = cache(environment.commit), cache(environment.installed)

EXAMPLES = 60
#: A fixed choice of examples, the same in every run. `make fuzz` draws others, and more of them.
settings.register_profile(
    "fixed", deadline=None, max_examples=EXAMPLES, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "fuzz", settings.get_profile("fixed"), max_examples=10 * EXAMPLES, derandomize=False, print_blob=True
)
settings.load_profile("fixed")
# Newer versions of hypothesis also draw constants of the modules that are loaded, and those depend on the tests before.
PROVIDERS = vars(sys.modules.get("hypothesis.internal.conjecture.providers", object))
if "_local_constants" in PROVIDERS:
    PROVIDERS["_get_local_constants"] = partial(PROVIDERS.get, "_local_constants")


def examples(count: int) -> settings:
    """Return settings for this many examples, in `make fuzz` for ten times as many."""
    return settings(max_examples=count * settings().max_examples // EXAMPLES)


@pytest.fixture(autouse=True)
def same_weights():
    """Models start with the same weights in every run of a test."""
    torch.manual_seed(0)


SET_TERMS = (
    "redundancy",
    "facility_location",
    "feature_coverage",
    "log_determinant",
    "class_balance",
    "graph_cut",
    "saturated_coverage",
    "set_cover",
    "sum_redundancy",
    "disparity_sum",
    "disparity_min",
)
#: Terms that need features between 0 and 1: `tests/engine/test_covers.py` has pools for them.
UNIT_TERMS = ("probabilistic_set_cover",)
#: Terms that are not monotone submodular.
OTHER_TERMS = ("redundancy", "sum_redundancy", "disparity_sum", "disparity_min")
MODULAR_TERMS = ("uncertainty", "mean_closeness", "mean_distance", "feature_match", "utility")
DISTANCES = ("euclidean", "cosine", "correlation", "gaussian")


@st.composite
def pools(
    draw: st.DrawFn, grid: bool = True, smallest: int = 1, largest: int = 14, dtypes: tuple = (np.float32, np.float64)
) -> smdl.Pool:
    """Pools with all kinds of scores. On the grid there are few distinct values, so duplicates, zero vectors, constant
    columns and ties are frequent; widths are powers of two, so that even the row means of `correlation` are exact."""
    n = draw(st.integers(smallest, largest))
    width, classes = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([2, 4]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    if grid:
        levels = draw(st.integers(0, 6))
        features = rng.integers(0, levels + 1, (n, width)) * draw(st.sampled_from([0.25, 1.0, 2.0]))
        counts = rng.multinomial(8, np.full(classes, 1 / classes), n)
        probabilities, reference = counts / 8, rng.integers(0, 5, (n, 4)) / 4
    else:
        features = np.abs(rng.normal(size=(n, width))) * 10.0 ** draw(st.integers(-3, 3))
        probabilities, reference = rng.dirichlet(np.full(classes, 0.4), n), rng.random((n, 4))
    dtype, labels, bias = draw(st.sampled_from(dtypes)), rng.integers(0, classes, n), draw(st.booleans())
    arrays = [array.astype(dtype) for array in (features, probabilities, reference)]
    utility = (rng.integers(-2, 3, n) if grid else rng.normal(size=n)).astype(dtype)
    values = ", ".join(str(array.tolist()) for array in (*arrays[:2], labels))
    others = f"reference={arrays[2].tolist()}, utility={utility.tolist()}, bias={bias}"
    note(f"smdl.Pool({values}, {others}) as {dtype.__name__}")
    return smdl.Pool(arrays[0], arrays[1], labels, reference=arrays[2], utility=utility, bias=bias)


@st.composite
def objectives(
    draw: st.DrawFn,
    set_terms: tuple[str, ...] = SET_TERMS,
    fewest: int = 0,
    normalize: str | None = None,
    neighbours: tuple[int | None, ...] = (None, 1, 2, 5),
) -> smdl.Objective:
    """Any valid mixture of terms, distances, spaces and normalisations."""
    terms = draw(st.lists(st.sampled_from(set_terms), min_size=fewest, max_size=2, unique=True))
    terms += draw(st.lists(st.sampled_from(MODULAR_TERMS), min_size=0 if terms else 1, unique=True))
    weights = {name: draw(st.sampled_from([0.1, 0.2, 0.25, 0.5, 1.0])) for name in terms}
    signed = not {"feature_coverage", "set_cover"} & set(weights)
    space = draw(st.sampled_from(["features", "gradients"])) if signed else "features"
    near = None if "graph_cut" in weights else draw(st.sampled_from(neighbours))
    return smdl.Objective(
        distance=draw(st.sampled_from(DISTANCES)),
        space=space,
        normalize=normalize or draw(st.sampled_from(["pool", "candidates"])),
        concave=draw(st.sampled_from(["sqrt", "log", "ratio"])),
        kernel=draw(st.sampled_from(["linear", "cosine", "gaussian"])),
        noise=draw(st.sampled_from([0.5, 1.0])),
        neighbours=near,
        sample=None if near else draw(st.sampled_from([None, None, 3])),
        **weights,
    )
