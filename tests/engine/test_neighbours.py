"""Graphs of neighbours by faiss: the same as by blocks up to rounding, with a measured recall."""

import numpy as np
import pytest
import torch

import smdl
from smdl.engine import neighbours, plan
from smdl.engine.similarity import Graph

needs_faiss = pytest.mark.skipif(not neighbours.installed(), reason="faiss is not installed")


def rows(n: int = 1500, width: int = 8) -> np.ndarray:
    rng = np.random.default_rng(1)
    found = rng.random((40, width))[rng.integers(0, 40, n)] + 0.2 * rng.random((n, width))
    found[:3], found[3] = 0.0, found[4]  # zero vectors and a copy
    return found.astype(np.float32)


def graph(search: str, k: int = 20, distance: str = "euclidean") -> tuple[Graph, float]:
    geometry = smdl.Objective(facility_location=1.0, neighbours=k, distance=distance).on(smdl.Pool(rows())).geometry
    found = neighbours.find(geometry.metric, geometry.blocks, k, search, lambda *_: None)
    return found.graph, found.recall


@needs_faiss
@pytest.mark.parametrize("distance", ["euclidean", "cosine", "correlation", "gaussian"])
def test_a_flat_search_finds_the_exact_neighbours_with_similarities_in_the_tolerance(distance):
    (exact, _), (flat, recall) = graph("exact", distance=distance), graph("flat", distance=distance)
    assert recall == 1.0
    np.testing.assert_allclose(flat.similarities, exact.similarities, atol=2e-6)
    assert (flat.neighbours[:, 0] == np.arange(1500)).all()
    assert (flat.neighbours == exact.neighbours).mean() > 0.99, "only neighbours that are equally near change places"


@needs_faiss
@pytest.mark.parametrize("distance", ["euclidean", "cosine"])
def test_the_recall_of_an_inverted_file_is_measured(distance, monkeypatch):
    monkeypatch.setattr(neighbours, "PROBES", 2)
    exact, _ = graph("exact", distance=distance)
    with pytest.warns(UserWarning, match="the graph of neighbours has only"):
        found, recall = graph("inverted", distance=distance)
    shared = np.mean([len(np.intersect1d(a, b)) for a, b in zip(exact.neighbours, found.neighbours, strict=True)]) / 20
    assert 0.3 < shared < 0.99
    assert recall == pytest.approx(shared, abs=0.05)
    monkeypatch.setattr(neighbours, "PROBES", 10**6)
    assert graph("inverted", distance=distance)[1] == 1.0


@needs_faiss
@pytest.mark.filterwarnings("ignore:the graph of neighbours")
def test_samples_without_enough_candidates_have_no_other_neighbours(monkeypatch):
    monkeypatch.setattr(neighbours, "PROBES", 1)
    found, _ = graph("inverted", k=400)
    short = (found.neighbours == np.arange(1500)[:, None]).sum(1) > 1
    assert short.any()
    assert (found.similarities[short, -1] == 0).all()


@needs_faiss
def test_the_graph_is_the_same_for_any_number_of_threads():
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        try:
            found.append(graph("inverted")[0])
        finally:
            torch.set_num_threads(1)
    assert (found[0].neighbours == found[1].neighbours).all()
    assert (found[0].similarities == found[1].similarities).all()


@needs_faiss
def test_a_selection_names_its_search_and_its_recall(monkeypatch):
    monkeypatch.setattr(neighbours, "FLAT", 1000)
    monkeypatch.setattr(neighbours, "INVERTED", 1200)
    objective = smdl.Objective(facility_location=1.0, neighbours=20)
    chosen, planned = smdl.select(rows(), objective, 5), smdl.explain(rows(), objective, 5)
    assert planned.search == "inverted"
    assert "inverted" in str(planned)
    assert chosen.recall is not None
    assert 0.5 < chosen.recall <= 1.0
    assert smdl.select(rows()[:500], objective, 5).recall == 1.0
    assert smdl.select(rows()[:500], "facility_location", 5).recall is None


@needs_faiss
@pytest.mark.parametrize(("found", "used"), [("1.12.0", False), ("1.15.1", True), ("2.0", True)])
def test_a_version_that_crashes_beside_torch_is_not_used(monkeypatch, found, used):
    monkeypatch.setattr(neighbours, "version", lambda _: found)
    assert neighbours.installed.__wrapped__() is used


def test_without_faiss_and_over_gradients_all_pairs_are_compared(monkeypatch):
    cpu = torch.device("cpu")
    assert neighbours.search_of(10**6, "gradients", cpu) == "exact"
    assert neighbours.search_of(neighbours.FLAT - 1, "features", cpu) == "exact"
    monkeypatch.setattr(neighbours, "installed", lambda: True)
    assert neighbours.search_of(neighbours.FLAT, "features", cpu) == "flat"
    assert neighbours.search_of(neighbours.INVERTED, "features", cpu) == "inverted"
    monkeypatch.setattr(neighbours, "installed", lambda: False)
    assert neighbours.search_of(10**6, "features", cpu) == "exact"
    objective = smdl.Objective(facility_location=1.0, neighbours=20)
    assert plan.make_plan(objective, plan.Shape(10**6, 8), 10, plan.Ways()).search == "exact"
    assert smdl.select(rows(), objective, 5).recall == 1.0
