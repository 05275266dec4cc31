"""Finite input of any size, type and layout gives a selection or an error that names the problem."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from smdl.engine.greedy import gains, kernels
from tests.conftest import examples

RNG = np.random.default_rng(0)
FEATURES = RNG.normal(size=(60, 8))
ERRORS = RNG.dirichlet(np.ones(3), 60), RNG.integers(0, 3, 60)
OBJECTIVES = {
    "redundancy": {"redundancy": 1.0},
    "redundancy, cosine": {"redundancy": 1.0, "distance": "cosine"},
    "redundancy, correlation": {"redundancy": 1.0, "distance": "correlation"},
    "facility location": {"facility_location": 1.0},
    "facility location, gaussian": {"facility_location": 1.0, "distance": "gaussian"},
    "neighbours": {"facility_location": 1.0, "neighbours": 5},
    "mean closeness": {"mean_closeness": 1.0},
    "determinant, gaussian": {"log_determinant": 1.0, "kernel": "gaussian"},
    "mixture": {"facility_location": 0.5, "redundancy": 0.5, "mean_closeness": 0.1},
    "gradients without bias": {"facility_location": 1.0, "space": "gradients"},
}


def picks(features: np.ndarray, options: dict, **more) -> list[int]:
    pool = smdl.Pool(features, *ERRORS, bias=False)
    return smdl.select(pool, smdl.Objective(**options), 20, **more).indices.tolist()


@pytest.mark.parametrize("optimizer", ["naive", "lazy", "stochastic"])
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(
    ("kind", "exponents"), [("f4", (60, 120, -60, -110)), ("f8", (500, 1015, -500, -1000))], ids=["float32", "float64"]
)
def test_a_power_of_two_changes_no_pick(kind, exponents, name, optimizer):
    features = FEATURES.astype(kind)
    wanted = picks(features, OBJECTIVES[name], optimizer=optimizer)
    assert wanted != sorted(wanted)
    for exponent in exponents:
        scaled = np.ldexp(features, exponent)
        assert np.isfinite(scaled).all()
        assert picks(scaled, OBJECTIVES[name], optimizer=optimizer) == wanted


def test_a_given_bandwidth_is_scaled_with_the_features():
    options = {"redundancy": 1.0, "distance": "gaussian"}
    wanted = picks(FEATURES, {**options, "sigma": 0.5})
    assert picks(np.ldexp(FEATURES, 500), {**options, "sigma": float(np.ldexp(0.5, 500))}) == wanted
    for sigma in (1e-300, 1e300):
        assert len(set(picks(FEATURES, {**options, "sigma": sigma}))) == 20


def test_last_layer_gradients_of_huge_features_ignore_the_bias():
    huge = smdl.Pool(np.ldexp(FEATURES, 500), *ERRORS, bias=True)
    plain = smdl.Pool(FEATURES, *ERRORS, bias=False)
    assert smdl.select(huge, size=9).indices.tolist() == smdl.select(plain, size=9).indices.tolist()


class Poisoned(smdl.Objective):
    """Its modular scores contain NaN, as a bug in a term would make them."""

    def on(self, pool: smdl.Pool, engine: str | None = None):
        problem = super().on(pool, engine)
        problem.modular[self.bad] = np.nan
        return problem

    bad: slice | int = 3


@pytest.mark.parametrize("bad", [3, slice(None)], ids=["one", "all"])
@pytest.mark.parametrize("options", [{"redundancy": 1.0}, {"facility_location": 1.0}, {"class_balance": 1.0}])
@pytest.mark.parametrize("optimizer", ["naive", "lazy", "stochastic"])
def test_a_gain_that_is_not_a_number_is_an_error_by_name(optimizer, options, bad):
    objective = Poisoned(uncertainty=0.5, **options)
    objective.bad = bad
    pool = smdl.Pool(FEATURES, *ERRORS)
    with pytest.raises(ValueError, match=r"a gain of Objective\(uncertainty=0.5.* is not a number"):
        smdl.select(pool, objective, 55, optimizer=optimizer, epsilon=0.001)


def test_kernels_never_index_by_what_they_did_not_find():
    term, modular, members = gains.ModularOnly(0.0), np.full(5, np.nan), np.arange(5, dtype=np.int32)
    none, picked, found = members[:0], np.empty(3, np.int32), np.empty(3)
    for lazy in (True, False):
        with pytest.raises(FloatingPointError, match="not a number"):
            kernels.exact(term, modular, members, 3, -np.inf, lazy, np.array([1], np.uint64), none, picked, found, None)
    with pytest.raises(FloatingPointError, match="not a number"):
        kernels.stochastic(term, modular, members, 3, -np.inf, 2, np.uint64(1), none, picked, found)


def test_a_spread_within_rounding_is_a_constant():
    multiples = np.outer(RNG.random(40) + 0.1, RNG.random(7))  # cosines to their mean are 1 but for rounding
    problem = smdl.Objective(mean_closeness=1.0).on(smdl.Pool(multiples))
    low, high = problem.ranges["mean_closeness"]
    assert low < high, "rounding does show"
    assert (problem.modular == 0).all()
    mixed = smdl.Objective(mean_closeness=0.9, class_balance=0.1, normalize="candidates")
    assert len(smdl.select(smdl.Pool(multiples, labels=np.arange(40)), mixed, 5, optimizer="naive")) == 5


def test_noise_far_below_the_scale_of_the_data_is_refused():
    with pytest.raises(ValueError, match=r"log_determinant needs noise of at least 2.2e-09 .* got 1e-12: K/noise reac"):
        picks(FEATURES, {"log_determinant": 1.0, "noise": 1e-12})
    for scale in (1e300, 1e160):
        with pytest.raises(ValueError, match="log_determinant needs noise of at least"):
            picks(FEATURES * scale, {"log_determinant": 1.0})
    assert len(picks(FEATURES * 1e-300, {"log_determinant": 1.0})) == 20


def test_features_whose_sum_overflows_are_refused_by_coverage():
    with pytest.raises(ValueError, match="feature_coverage needs features with a finite sum"):
        picks(np.full((60, 8), 1e307), {"feature_coverage": 1.0})


@pytest.mark.parametrize(
    ("features", "error", "message"),
    [
        (
            np.array([[2**53 + 2], [1]]),
            ValueError,
            r"features must be below 2\^53 to be exact as floats, got 9007199",
        ),
        (np.array([[2**64 - 1], [1]], np.uint64), ValueError, r"features must be below 2\^53"),
        (np.array([[-(2**63)], [1]]), ValueError, r"features must be below 2\^53"),
        (np.ma.masked_array(FEATURES, FEATURES > 1), TypeError, "features must be a plain array, got a masked one"),
    ],
)
def test_input_that_would_lose_something_is_refused(features, error, message):
    with pytest.raises(error, match=message):
        smdl.Pool(features)


def test_whole_numbers_keep_their_value():
    pool = smdl.Pool(np.array([[2**24 + 1, 0], [2**24, 0], [0, 0]]))
    assert pool.features[0, 0].item() == 2**24 + 1
    assert smdl.Pool(np.array([[3], [4]])).features.dtype == torch.float32


@st.composite
def arrays(draw: st.DrawFn) -> np.ndarray:
    """Features of any scale, type, layout and stride, with zeros, ties and single outliers."""
    n, width = draw(st.integers(1, 12)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    base = rng.integers(-3, 4, (n, width)) if draw(st.booleans()) else rng.normal(size=(n, width))
    kind = draw(
        st.sampled_from(
            ["f2", "f4", "f8", ">f4", ">f8", "i1", "i4", "i8", "u1", "u2", "u4", "u8", "bool", "longdouble"]
        )
    )
    if kind.lstrip(">")[0] == "f":
        limits = {"f2": (-7, 4), "f4": (-44, 38), ">f4": (-44, 38)}.get(kind, (-307, 307))
        with np.errstate(over="ignore"):
            base = base * 10.0 ** draw(st.integers(*limits))
            if draw(st.booleans()):
                base[rng.integers(n)] *= 10.0 ** draw(st.integers(-20, 20))
    with np.errstate(over="ignore", invalid="ignore"):
        array = base.astype(kind)
    array[~np.isfinite(array)] = 0
    layout = draw(st.sampled_from(["plain", "fortran", "reversed", "strided", "readonly"]))
    if layout == "fortran":
        array = np.asfortranarray(array)
    elif layout == "reversed":
        array = array[::-1, ::-1]
    elif layout == "strided":
        array = np.repeat(np.repeat(array, 2, 0), 3, 1)[::2, ::3]
    array.flags.writeable = layout != "readonly"
    return array


def check_any_array(features: np.ndarray, options: dict, optimizer: str) -> None:
    n = len(features)
    labels, probabilities = np.arange(n) % 2, np.full((n, 2), 0.5)
    size = max(1, n // 2)
    try:
        pool = smdl.Pool(features, probabilities, labels)
        chosen = smdl.select(pool, smdl.Objective(**options), size, optimizer=optimizer).indices
    except ValueError:
        return
    assert len(set(chosen.tolist())) == size
    assert set(chosen.tolist()) <= set(range(n))


EVERY_OBJECTIVE = [
    *OBJECTIVES.values(),
    {"log_determinant": 1.0},
    {"log_determinant": 1.0, "kernel": "cosine"},
    {"feature_coverage": 1.0},
    {"feature_coverage": 1.0, "concave": "log"},
    {"uncertainty": 1.0, "redundancy": 0.1, "normalize": "candidates"},
]
OPTIMIZERS = ["naive", "stochastic", "auto"]


@given(arrays(), st.sampled_from(EVERY_OBJECTIVE), st.sampled_from(OPTIMIZERS))
def test_any_array_is_selected_from_or_refused(features, options, optimizer):
    check_any_array(features, options, optimizer)


@pytest.mark.slow
@examples(4000)
@given(arrays(), st.sampled_from(EVERY_OBJECTIVE), st.sampled_from(OPTIMIZERS))
def test_thousands_of_arrays_are_selected_from_or_refused(features, options, optimizer):
    check_any_array(features, options, optimizer)
