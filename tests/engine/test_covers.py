"""Covers of features, cuts of graphs and distances of pairs: equations, queries, weights of features, bad input."""

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

import smdl
from tests import specification
from tests.conftest import examples
from tests.engine.greedy.test_specification import fast, in_torch

PATHS = pytest.mark.parametrize("path", [fast, in_torch])
WORDS = np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1], [1, 1, 1, 0]], np.float32)


@st.composite
def shares(draw: st.DrawFn) -> smdl.Pool:
    """Features of 0, ¼, …, 1, whose products are exact, with a query, away_from and weights or without."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, width = draw(st.integers(2, 10)), draw(st.integers(1, 5))
    rows = {"query": rng.integers(0, 5, (2, width)) / 4, "away_from": rng.integers(0, 5, (2, width)) / 4}
    given = {name: value.astype(np.float32) for name, value in rows.items() if draw(st.booleans())}
    if draw(st.booleans()):
        given["feature_weights"] = rng.integers(0, 3, width).astype(np.float32)
    return smdl.Pool((rng.integers(0, 5, (n, width)) / 4).astype(np.float32), **given)


@PATHS
@pytest.mark.parametrize("name", ["set_cover", "probabilistic_set_cover"])
@examples(20)
@given(pool=shares(), optimizer=st.sampled_from(["naive", "lazy", "stochastic"]), data=st.data())
def test_covers_pick_what_the_equations_pick(path, name, pool, optimizer, data):
    weights: dict = {name: 1.0}
    objective, size = smdl.Objective(**weights), data.draw(st.integers(1, len(pool)))
    chosen = path(pool, objective, size, optimizer, seed=5)
    indices, gains = specification.select(pool, objective, size, optimizer, seed=5)
    assert chosen.indices.tolist() == indices
    np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)
    assert (chosen.gains >= 0).all()
    if optimizer != "stochastic":
        assert (np.diff(chosen.gains) <= 0).all(), "gains diminish"
    everything = np.arange(len(pool))
    assert smdl.evaluate(pool, objective, everything).value == pytest.approx(
        smdl.evaluate(pool, objective, everything[::-1]).value, abs=1e-9
    )


@PATHS
@examples(20)
@given(data=st.data())
def test_a_graph_cut_with_a_query_or_away_from_picks_what_the_equations_pick(path, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    features = rng.integers(0, 4, (data.draw(st.integers(2, 10)), 2)).astype(np.float32)
    name, overlap = data.draw(st.sampled_from(["query", "away_from"])), data.draw(st.sampled_from([0.25, 0.5, 2.0]))
    pool = smdl.Pool(features, **{name: rng.integers(0, 4, (2, 2)).astype(np.float32)})
    objective, size = smdl.Objective(graph_cut=1.0, overlap=overlap), data.draw(st.integers(1, len(pool)))
    chosen = path(pool, objective, size, "lazy", seed=3)
    indices, gains = specification.select(pool, objective, size, "naive", seed=3)
    assert chosen.indices.tolist() == indices
    np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


@PATHS
@pytest.mark.parametrize("kernel", ["linear", "cosine", "gaussian"])
@pytest.mark.parametrize("names", [("query",), ("away_from",), ("query", "away_from")], ids=str)
@examples(8)
@given(data=st.data())
def test_a_determinant_beside_others_is_within_the_tolerance_of_the_equations(path, kernel, names, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    pool = smdl.Pool(rng.normal(size=(8, 3)), **{name: rng.normal(size=(2, 3)) for name in names})
    objective, size = smdl.Objective(log_determinant=1.0, kernel=kernel), data.draw(st.integers(1, 8))
    chosen = path(pool, objective, size, "naive" if "query" in names else "lazy")
    check, before = specification.Specification(pool, objective), []
    for index, gain in zip(chosen.indices.tolist(), chosen.gains, strict=True):
        rest = [a for a in range(8) if a not in before]
        exact = dict(zip(rest, check.gains(rest, before), strict=True))
        assert exact[index] >= max(exact.values()) - 1e-9
        assert gain == pytest.approx(exact[index], abs=1e-9)
        before.append(index)


def test_the_determinant_beside_others_is_a_difference_of_determinants():
    rng = np.random.default_rng(0)
    rows, query, there = rng.normal(size=(9, 4)), rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    largest, batch = np.log1p((rows**2).sum(1).max()), [4, 1, 6]

    def volume(*parts: np.ndarray) -> float:
        joined = np.concatenate(parts)
        return np.linalg.slogdet(np.eye(len(joined)) + joined @ joined.T)[1]

    def value(**others: np.ndarray) -> float:
        return smdl.evaluate(rows, "log_determinant", batch, **others).value * largest

    chosen = rows[batch]
    assert value(away_from=there) == pytest.approx(volume(chosen, there) - volume(there))
    assert value(query=query) == pytest.approx(volume(chosen) + volume(query) - volume(chosen, query))
    assert value(query=query, away_from=there) == pytest.approx(
        volume(chosen, there) + volume(query, there) - volume(chosen, query, there) - volume(there)
    )
    with pytest.raises(ValueError, match="lazy needs gains that diminish, and those of log_determinant with a query"):
        smdl.select(rows, "log_determinant", 2, query=query, optimizer="lazy")
    assert smdl.explain(rows, "log_determinant", 2, query=query).optimizer == "naive"
    assert smdl.select(rows, "log_determinant", 2, query=query).indices.tolist() != []


@PATHS
@pytest.mark.parametrize(
    "name", ["graph_cut", "saturated_coverage", "sum_redundancy", "disparity_sum", "disparity_min"]
)
@examples(10)
@given(data=st.data())
def test_given_similarities_pick_what_the_equations_pick(path, name, data):
    n, rng = data.draw(st.integers(1, 8)), np.random.default_rng(data.draw(st.integers(0, 99)))
    table, weights = rng.integers(0, 5, (n, n)) / 4.0, {name: 1.0}
    objective, size = smdl.Objective(**weights), data.draw(st.integers(1, n))  # type: ignore[arg-type]
    pools = [smdl.Pool.from_similarities(table)]
    if name == "saturated_coverage":
        pools.append(smdl.Pool.from_similarities(scipy.sparse.csr_matrix(table)))
    indices, gains = specification.select(pools[0], objective, size, "naive", seed=1)
    for pool in pools:
        chosen = path(pool, objective, size, "naive", seed=1)
        assert chosen.indices.tolist() == indices
        np.testing.assert_allclose(chosen.gains, gains, rtol=1e-9, atol=1e-12)


def test_set_cover_is_the_weight_of_the_union():
    pool = smdl.Pool(WORDS, feature_weights=[1.0, 1.0, 1.0, 5.0])
    assert smdl.select(WORDS, "set_cover", 2).indices.tolist() == [3, 2]
    assert smdl.select(pool, "set_cover", 1).indices.tolist() == [2], "the last feature counts five times"
    unions = [smdl.evaluate(pool, "set_cover", batch).value * 5 for batch in ([0], [0, 1], [0, 1, 3], [0, 1, 2])]
    assert unions == pytest.approx([2, 3, 3, 8])


def test_covers_know_what_is_there_and_what_is_asked_for():
    assert smdl.select(WORDS, "set_cover", 1, away_from=WORDS[3:]).indices.tolist() == [2]
    assert smdl.select(WORDS, "probabilistic_set_cover", 1, away_from=WORDS[3:]).indices.tolist() == [2]
    assert smdl.select(WORDS, "set_cover", 1, query=[[0, 0, 0, 1]]).indices.tolist() == [2]
    assert smdl.select(WORDS, "probabilistic_set_cover", 1, query=[[0, 0, 0, 0.5]]).indices.tolist() == [2]


def test_probabilistic_set_cover_is_the_expected_cover():
    rows = np.array([[0.5, 0.0], [0.5, 0.25]])
    chosen = smdl.evaluate(rows, "probabilistic_set_cover", [0, 1]).value * 0.75  # the best single sample
    assert chosen == pytest.approx((1 - 0.5 * 0.5) + 0.25)


def test_a_graph_cut_falls_with_much_overlap_and_never_with_half():
    features = np.random.default_rng(0).random((30, 3))
    rest = smdl.Objective(graph_cut=1.0, overlap=0.5)
    assert (smdl.select(features, rest, 30).gains >= 0).all()
    much = smdl.select(features, smdl.Objective(graph_cut=1.0, overlap=2.0), 30)
    assert much.gains[-1] < 0, "submodular, not monotone"
    assert (np.diff(much.gains) <= 0).all()


def test_disparities_take_the_ends_of_a_line():
    line = np.arange(11.0)[:, None]
    for name in ("disparity_sum", "disparity_min", "sum_redundancy"):
        chosen = smdl.select(line, name, 3, initial=[0]).indices.tolist()
        assert chosen[0] == 10
    assert smdl.select(line, "disparity_min", 2, initial=[0]).indices.tolist() == [10, 5]
    assert smdl.evaluate(line, "disparity_min", [0, 5, 10]).value == pytest.approx(0.5, abs=1e-6)
    assert smdl.evaluate(line, "disparity_sum", [0, 5, 10]).value == pytest.approx(2.0, abs=1e-6)


@pytest.mark.parametrize("name", ["disparity_sum", "disparity_min"])
def test_disparities_are_not_submodular(name):
    """On 0, 4, 10: the gain of 4 rises when 10 is there already."""
    line = np.array([[0.0], [10.0], [4.0]])

    def gain_after(before: list[int]) -> float:
        return smdl.evaluate(line, name, [*before, 2]).value - smdl.evaluate(line, name, before).value

    assert gain_after([0]) > gain_after([]) == 0.0
    with pytest.raises(ValueError, match=f"lazy needs gains that diminish, and those of {name} do not"):
        smdl.select(line, name, 2, optimizer="lazy")
    assert smdl.explain(line, name, 2).optimizer == "naive"


def test_a_sample_estimates_the_cut_and_the_saturated_coverage():
    features = np.random.default_rng(0).normal(size=(400, 3))
    for name in ("graph_cut", "saturated_coverage"):
        weights: dict = {name: 1.0}
        chosen = smdl.select(features, smdl.Objective(**weights, sample=200), 10)
        whole = smdl.select(features, smdl.Objective(**weights), 10)
        reached = smdl.evaluate(features, smdl.Objective(**weights), chosen.indices).value
        assert reached >= 0.95 * whole.value


def test_bad_input_is_refused_with_the_rule_and_the_value():
    def refused(message: str, *arguments: object, **options: object) -> None:
        with pytest.raises(ValueError, match=message):
            smdl.select(*arguments, **options)  # type: ignore[arg-type]

    refused("set_cover needs features ≥ 0, got -1 in features", -WORDS, "set_cover", 1)
    refused("set_cover needs features ≥ 0, got -1 in query", WORDS, "set_cover", 1, query=-WORDS)
    refused(
        "probabilistic_set_cover needs features between 0 and 1, got 2 in features",
        2 * WORDS,
        "probabilistic_set_cover",
        1,
    )
    refused("query must have at least one row", WORDS, "graph_cut", 1, query=WORDS[:0])
    both = smdl.Objective(facility_location=1.0, saturated_coverage=1.0)
    refused("saturated_coverage has no form for a query", WORDS, both, 1, query=WORDS)
    refused(
        "away_from is about facility_location or log_determinant or graph_cut",
        WORDS,
        "disparity_sum",
        1,
        away_from=WORDS,
    )
    sparse = smdl.Pool.from_similarities(scipy.sparse.eye(3))
    refused("graph_cut reads similarities of single pairs: pass a dense matrix", sparse, "graph_cut", 1)
    with pytest.raises(ValueError, match="one number per feature: 4 features, 2 weights"):
        smdl.Pool(WORDS, feature_weights=[1.0, 2.0])
    with pytest.raises(ValueError, match="feature_weights must be ≥ 0, got -1"):
        smdl.Pool(WORDS, feature_weights=[1.0, 2.0, -1.0, 0.0])
    with pytest.raises(ValueError, match="feature_weights are for set_cover and probabilistic_set_cover"):
        smdl.select(smdl.Pool(WORDS, feature_weights=np.ones(4)), "redundancy", 1)
    with pytest.raises(ValueError, match="similarities must be ≥ 0, got -1"):
        smdl.Pool.from_similarities(-np.eye(3))
    for options in ({"overlap": 0.0}, {"overlap": -1.0}, {"saturation": 0.0}, {"saturation": 1.5}):
        with pytest.raises(ValueError, match=f"{next(iter(options))} must be"):
            smdl.Objective(graph_cut=1.0, **options)
    with pytest.raises(ValueError, match="neighbours cannot be set with graph_cut"):
        smdl.Objective(graph_cut=1.0, neighbours=3)
