"""The plan says how a selection will be done, and `select` does it that way."""

import inspect
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import smdl
from smdl.common import memory
from smdl.engine import geometry, plan
from smdl.engine.greedy import kernels, maximise, subset
from smdl.engine.objective import OTHERS, Objective, Problem
from smdl.engine.terms import TERMS
from smdl.engine.terms.pair_sums import PairSums
from tests.conftest import objectives, pools

LOCATION = Objective(facility_location=1.0)


def engine(objective: Objective, n: int, size: int = 10, width: int = 8) -> str:
    return plan.make_plan(objective, plan.Shape(n, width), size, plan.Ways()).engine


def test_the_engine_follows_from_the_number_of_samples_and_the_memory(monkeypatch):
    assert engine(Objective(redundancy=1.0), 10**9) == "rows"
    assert engine(LOCATION, 5000) == "dense"
    assert engine(Objective(facility_location=1.0, neighbours=50), 10**6) == "graph"
    assert engine(LOCATION, 10**6) == "sample"
    monkeypatch.setattr(memory, "available", lambda *_: 16 * 30_000**2)
    assert engine(LOCATION, 30_000) == "dense"
    assert engine(LOCATION, 30_001) == "blocks"
    assert engine(LOCATION, geometry.EXACT) == "blocks"
    assert engine(LOCATION, geometry.EXACT + 1) == "sample", "memory decides how to compute, never what"


def test_the_sample_grows_with_the_number_of_picks():
    for size, sample in ((10, 20_000), (1_250, 20_000), (10_000, 160_000)):
        assert plan.with_sample(LOCATION, 10**6, size).sample == sample
    assert plan.with_sample(Objective(facility_location=1.0, sample=7), 10**6, 10).sample == 7


def test_a_plan_prints_memory_passes_and_time_and_reads_only_the_shape():
    features = np.lib.stride_tricks.as_strided(np.zeros(1, np.float16), (10**7, 64), (0, 0))
    found = smdl.explain(features, "facility_location", 1000)
    assert (found.engine, found.optimizer) == ("sample", "subset")
    assert found.seconds > 1
    assert 4 * 20_000 * 64 < found.memory < 2e9
    for word in ("10,000,000", "sample", "GB", "passes", "20,000"):
        assert word in str(found)
    with pytest.raises(ValueError, match="two dimensions"):
        smdl.explain(np.zeros(3), "redundancy", 1)


def test_more_samples_cost_more_reading_and_with_lazy_greedy_more_gains():
    def seconds(n: int, optimizer: str) -> float:
        return plan.make_plan(LOCATION, plan.Shape(n, 64), 1000, plan.Ways(optimizer)).seconds

    reading = 5 * (10**7 - 10**6) * 64 * plan.ROW
    assert seconds(10**7, "auto") - seconds(10**6, "auto") == pytest.approx(reading)
    assert 6 < seconds(10**7, "lazy") / seconds(10**6, "lazy") < 12


def test_long_work_is_announced(monkeypatch):
    features = np.random.default_rng(0).random((9000, 2), np.float32)
    monkeypatch.setattr("smdl.engine.selection.LONG", 0.0)
    with pytest.warns(UserWarning, match=r"this selection takes a while:\nchoose 2 of 9,000 samples"):
        smdl.select(features, "redundancy", 2)


@pytest.mark.parametrize("options", [{}, {"neighbours": 3}, {"sample": 100}], ids=str)
def test_long_work_reports_its_progress(options):
    features, calls = np.random.default_rng(0).random((1500, 4), np.float32), []
    chosen = smdl.select(features, Objective(facility_location=1.0, **options), 3, progress=lambda *c: calls.append(c))
    assert len(chosen) == 3
    assert calls
    assert all(0 <= done <= total for _, done, total in calls)
    smdl.select(features, Objective(facility_location=1.0, **options), 3)


def test_a_sampled_selection_is_nearly_as_good_as_one_on_every_sample(monkeypatch):
    rng = np.random.default_rng(1)
    features = (rng.random((30, 8))[rng.integers(0, 30, 2000)] + 0.05 * rng.random((2000, 8))).astype(np.float32)
    whole = smdl.select(features, LOCATION, 40)
    monkeypatch.setattr(plan, "EXACT", 1000)
    monkeypatch.setattr(plan, "SAMPLE", 400)
    chosen = smdl.select(features, LOCATION, 40)
    assert chosen.indices.tolist() != whole.indices.tolist()
    value = smdl.evaluate(features, LOCATION, chosen.indices).value
    assert value > 0.98 * whole.value
    assert chosen.held_out == pytest.approx(value, abs=0.01)
    assert whole.held_out is None
    assert chosen.shares is not None
    assert chosen.shares.sum() == pytest.approx(2000)


def test_limits_of_the_process_count_as_memory():
    assert 0 < memory.available() < 1 << 50


def ways_of(pool: smdl.Pool, objective: Objective, size: Any, **options) -> tuple[str, str, str, Problem]:
    """Select, and return engine, optimizer and loops as they ran: which code was entered, and with what."""
    ran: list[tuple[str, str]] = []
    exact, stochastic, lists, torch = kernels.exact, kernels.stochastic, subset.Staged.run, maximise._Torch.run
    both_ends = maximise.from_both_ends

    def compiled_exact(*arguments):
        ran.append(("lazy" if arguments[5] else "naive", "compiled"))
        return exact(*arguments)

    def compiled_stochastic(*arguments):
        ran.append(("stochastic", "compiled"))
        return stochastic(*arguments)

    def listed(self, size):
        found = lists(self, size)
        ran[:] = [("subset", "lists")]
        return found

    def in_torch(self):
        ran.append((self.rule.optimizer, "torch"))
        return torch(self)

    def bidirectional(*arguments):
        ran.append(("bidirectional", "torch"))
        return both_ends(*arguments)

    with (
        mock.patch.object(maximise, "from_both_ends", bidirectional),
        mock.patch.object(kernels, "exact", compiled_exact),
        mock.patch.object(kernels, "stochastic", compiled_stochastic),
        mock.patch.object(subset.Staged, "run", listed),
        mock.patch.object(maximise._Torch, "run", in_torch),
    ):
        chosen = smdl.select(pool, objective, size, **options)
    (optimizer, loops), *rest = dict.fromkeys(ran)
    assert not rest
    engines = {"similarities": "dense", "graph": "graph", "covered": "sample"}
    problem = chosen._problem
    assert problem is not None
    held = problem.geometry.__dict__
    engine = [name for part, name in engines.items() if held.get(part) is not None]
    if not engine:
        engine = ["blocks" if objective.covering else "rows"]
    return engine[0], optimizer, loops, problem


@settings(max_examples=80)
@given(pool=pools(smallest=6), objective=objectives(), data=st.data())
def test_what_ran_is_what_the_plan_says(pool, objective, data):
    options, n = {}, len(pool)
    if any(TERMS[name].beside for name in objective.weights) and objective.space == "features":
        names = data.draw(st.sets(st.sampled_from(OTHERS)))
        options = {name: pool.features[:2] for name in names if "saturated_coverage" not in objective.weights}
    way = data.draw(st.sampled_from(["auto", "naive", "lazy", "stochastic", "subset"]))
    if way not in ("lazy", "subset") or objective.diminishes("query" in options):
        options["optimizer"] = way
    kinds = ["plain", "initial", "limits", "shares", "penalty", "partitions", "among", "exclude", "fraction"]
    kind = data.draw(st.sampled_from(kinds))
    if kind == "limits" and options.get("optimizer") not in ("stochastic", "subset"):
        options |= {"groups": np.arange(n) % 2, "per_group": 2, "costs": np.ones(n), "budget": 4.0}
    if kind == "shares" and options.get("optimizer") not in ("stochastic", "subset"):
        options |= {"groups": np.arange(n) % 2, "shares": "input"}
    if kind == "exclude":
        options["exclude"] = [1]
    if kind == "initial":
        options["initial"] = [0, 3]
    if kind == "partitions":
        options["partitions"] = 2
    if kind == "among":
        options["among"] = [0, 1, 2, 4]
    size: int | tuple[int, int] | None = 2
    if kind == "fraction":
        size, options["fraction"] = None, 0.4
    falls = [issubclass(TERMS[name], PairSums) for name in objective.set_terms]
    if kind == "plain" and falls and all(falls) and objective.has_value:
        size, options["optimizer"] = None, "bidirectional"
    if kind == "penalty" and options.get("optimizer") != "subset":
        size, options["size_penalty"] = (1, 3), 0.01
    with mock.patch.object(geometry, "holds_matrix", return_value=data.draw(st.booleans())):
        planned = smdl.explain(pool, objective, size, seed=3, **options)
        engine, optimizer, loops, problem = ways_of(pool, objective, size, seed=3, **options)
        assert smdl.explain(pool, objective, size, **options).engine == planned.engine
    if all(float(row) == 0 for row in pool.features.std(dim=0)) or n == 1:
        return  # all samples are the same point: there is no similarity to hold
    expected = planned.optimizer
    if expected == "subset" and planned.loops != "lists":
        expected = "lazy"  # among the random candidates
    if objective.covering and any(term.unit == 0 for term in problem.set_terms.values()):
        return  # all gradients or centred rows are the same point, or none is like the query
    assert (optimizer, loops) == (expected, planned.loops)
    if objective.covering == ("graph_cut",) and "query" in options:
        return  # it reads similarities to the query alone
    assert engine == planned.engine


def test_explain_takes_what_select_takes_and_refuses_what_it_refuses():
    features = np.zeros((50, 3), np.float32)
    names = set(inspect.signature(smdl.select).parameters) - {"pool", "objective", "size", "seed", "spread", "progress"}
    assert names <= {*inspect.signature(plan.prepare).parameters, *OTHERS}
    assert names | {"seed", "progress", "objective", "size"} == set(inspect.signature(smdl.Selector).parameters)
    groups = np.arange(50) % 5
    assert smdl.explain(features, "redundancy", groups=groups, per_group=3).size == 15
    with pytest.raises(ValueError, match="costs and groups need partitions=1"):
        smdl.explain(features, "redundancy", 5, groups=groups, per_group=3, partitions=2)
    with pytest.raises(TypeError, match="size is missing"):
        smdl.explain(features)


X = np.random.default_rng(5).random((30, 3), np.float32)
WITH_ERRORS = smdl.Pool(X, errors=X)


@pytest.mark.parametrize(
    ("pool", "objective", "options"),
    [
        (X, "paper", {}),
        (X, "class_balance", {}),
        (X, Objective.gradients(), {}),
        (X, Objective.labels(probabilities=True), {}),
        (smdl.Pool(X, np.full((30, 2), 0.5)), "gradients", {}),
        (smdl.Pool(X, np.full((30, 2), 0.5), importance=np.ones(30)), Objective.labels(probabilities=True), {}),
        (WITH_ERRORS, Objective.gradients(distance="correlation"), {}),
        (WITH_ERRORS, Objective(set_cover=1.0, space="gradients"), {}),
        (WITH_ERRORS, Objective(feature_coverage=1.0, space="gradients"), {}),
        (smdl.Pool(X, feature_weights=np.ones(3)), "redundancy", {}),
        (smdl.Pool.from_similarities(X @ X.T), "redundancy", {}),
        (X, "redundancy", {"query": X}),
        (X, "facility_location", {"away_from": X[:, :2]}),
        (smdl.Pool.from_similarities(X @ X.T), "facility_location", {"query": np.ones((1, 1))}),
        (X, "log_determinant", {"query": X, "optimizer": "lazy"}),
        (X, "facility_location", {"seed": -1}),
        (X, "facility_location", {"progress": 3}),
        ({"features": X}, "facility_location", {}),
    ],
)
def test_explain_refuses_a_pool_or_an_option_with_the_error_of_select(pool, objective, options):
    with pytest.raises((ValueError, TypeError)) as refused:
        smdl.select(pool, objective, 3, **options)
    with pytest.raises(refused.type) as planned:
        smdl.explain(pool, objective, 3, **options)
    assert str(planned.value) == str(refused.value)
