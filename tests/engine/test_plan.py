"""The plan says how a selection will be done, and `select` does it that way."""

import numpy as np
import pytest
import torch

import smdl
from smdl.common import memory
from smdl.engine import plan
from smdl.engine.objective import Objective

LOCATION = Objective(facility_location=1.0)


def engine(objective: Objective, n: int, size: int = 10, width: int = 8) -> str:
    return plan.make_plan(objective, n, width, size, "auto", torch.device("cpu")).engine


def test_the_engine_follows_from_the_number_of_samples_and_the_memory(monkeypatch):
    assert engine(Objective(redundancy=1.0), 10**9) == "rows"
    assert engine(LOCATION, 5000) == "dense"
    assert engine(Objective(facility_location=1.0, neighbours=50), 10**6) == "graph"
    assert engine(LOCATION, 10**6) == "sample"
    monkeypatch.setattr(memory, "available", lambda *_: 16 * 30_000**2)
    assert engine(LOCATION, 30_000) == "dense"
    assert engine(LOCATION, 30_001) == "blocks"
    assert engine(LOCATION, plan.EXACT) == "blocks"
    assert engine(LOCATION, plan.EXACT + 1) == "sample", "memory decides how to compute, never what"


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
        return plan.make_plan(LOCATION, n, 64, 1000, optimizer, torch.device("cpu")).seconds

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
