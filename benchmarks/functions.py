"""Picks and seconds of smdl beside apricot and submodlib, function by function: `python benchmarks/functions.py`

Each side gets the same features and makes everything that it needs of them: similarities, lists, scores. That
preparation is part of its seconds, which are CPU seconds; the sides take turns. The picks are compared after the first
pick of the peer, because some functions tie there: `same` is how many of the others are equal and in the same order,
and `value` the ratio of F of the picks of smdl to F of the peer's, by `smdl.evaluate`. Set covers
count concepts with random weights, so that no ties decide; `set_cover, equal weights` shows what ties do.
Install the peers first: `pip install -e ".[bench]" scikit-learn`. Set OMP_NUM_THREADS=1 and NUMBA_NUM_THREADS=1.
"""

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

import smdl

torch.set_num_threads(1)
MARKS, LISTS, QUERIES = 512, 64, 10


class Data(NamedTuple):
    rows: np.ndarray  # (n, d) ≥ 0
    query: np.ndarray
    there: np.ndarray
    marks: np.ndarray  # (n, 512) of 0 and 1
    chances: np.ndarray  # (n, 64) in [0, 1]
    weights: np.ndarray  # (512,) of the marks


def make(n: int, width: int) -> Data:
    """Return clustered rows of float32 without negative numbers."""
    rng = np.random.default_rng(0)
    centres = np.abs(rng.normal(size=(30, width)))
    rows = np.abs(centres[rng.integers(0, 30, n + 2 * QUERIES)] + 0.5 * rng.normal(size=(n + 2 * QUERIES, width)))
    rows = rows.astype(np.float32)
    marks = (rng.random((n, MARKS)) < rng.random(MARKS) * 0.03).astype(np.float32)
    chances = (rng.random((n, LISTS)) ** 4).astype(np.float32)
    return Data(rows[:n], rows[n : n + QUERIES], rows[n + QUERIES :], marks, chances, 0.5 + rng.random(MARKS))


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def similar(rows: np.ndarray) -> np.ndarray:
    """Return (1 + cos)/2, as smdl has it, in float64, as apricot wants it."""
    return ((1.0 + unit(rows) @ unit(rows).T) / 2.0).astype(np.float64)


class Case(NamedTuple):
    """A function: the objective of smdl with its options, and the peers, which return picks."""

    name: str
    objective: smdl.Objective
    rows: Callable[[Data], Any]
    peers: dict[str, Callable[[Data, int], list[int]]]
    options: Callable[[Data], dict[str, Any]] = lambda _: {}


def apricot(selection: str, of: Callable[[Data], np.ndarray], **options: Any) -> Callable[[Data, int], list[int]]:
    def picks(data: Data, size: int) -> list[int]:
        module = importlib.import_module("apricot")
        selector = getattr(module, selection)(
            size,
            optimizer=options.get("optimizer", "lazy"),
            random_state=0,
            **{name: value for name, value in options.items() if name != "optimizer"},
        )
        return selector.fit(of(data)).ranking.tolist()

    return picks


def submodlib(function: str, make: Callable[[Data], dict[str, Any]], optimizer: str = "LazyGreedy") -> Any:
    def picks(data: Data, size: int) -> list[int]:
        module = importlib.import_module("submodlib")
        chosen = getattr(module, function)(n=len(data.rows), **make(data)).maximize(
            budget=size, optimizer=optimizer, stopIfZeroGain=False, stopIfNegativeGain=False, verbose=False,
            show_progress=False,
        )  # fmt: skip
        return [int(row) for row, _ in chosen]

    return picks


DENSE = {"mode": "dense", "metric": "cosine"}
COSINE: dict[str, Any] = {"distance": "cosine"}
GRAPH = {"metric": "precomputed"}


def by_cosine(**weights: Any) -> smdl.Objective:
    return smdl.Objective(**weights, **COSINE)


def data_of(data: Data) -> dict[str, Any]:
    return {"data": data.rows, **DENSE}


def about(data: Data) -> dict[str, Any]:
    return {"data": data.rows, "num_queries": QUERIES, "queryData": data.query, "metric": "cosine"}


def beside(data: Data) -> dict[str, Any]:
    return {"data": data.rows, "num_privates": QUERIES, "privateData": data.there, "metric": "cosine"}


def marked(data: Data) -> dict[str, Any]:
    return {"cover_set": [set(np.flatnonzero(row).tolist()) for row in data.marks], "num_concepts": MARKS}


def weighted(data: Data) -> dict[str, Any]:
    return {**marked(data), "concept_weights": data.weights.tolist()}


def likely(data: Data) -> dict[str, Any]:
    return {"probs": data.chances.tolist(), "num_concepts": LISTS}


def rows(data: Data) -> np.ndarray:
    return data.rows


def scaled(data: Data) -> np.ndarray:
    """Return every column from 0 to 1, as submodlib's feature-based function makes it."""
    low = data.rows.min(0)
    return (data.rows - low) / (data.rows.max(0) - low)


def marks(data: Data) -> smdl.Pool:
    return smdl.Pool(data.marks, feature_weights=data.weights)


def chances(data: Data) -> np.ndarray:
    return data.chances


def features(data: Data, concave: str) -> dict[str, Any]:
    mode = getattr(importlib.import_module("submodlib_cpp").FeatureBased, concave)
    return {"features": data.rows.tolist(), "numFeatures": data.rows.shape[1], "sparse": False, "mode": mode}


def mixture(data: Data, size: int) -> list[int]:
    """Return apricot's picks with the weights that smdl has: it divides every function by one constant."""
    module, table = importlib.import_module("apricot"), similar(data.rows)
    parts = [
        module.FacilityLocationSelection(size, **GRAPH),
        module.SaturatedCoverageSelection(size, alpha=0.1, **GRAPH),
    ]
    weights = np.array([1.0 / len(table), 1.0 / (0.1 * table.sum())])
    selector = module.MixtureSelection(size, parts, weights, metric="precomputed", optimizer="lazy", random_state=0)
    return selector.fit(table).ranking.tolist()


def covers(name: str, prefix: str, of: Callable[[Data], Any], made: Callable[[Data], Any], width: int) -> list[Case]:
    """Return a cover alone and with concepts that are asked for, there already, or both: three quarters are asked
    for, and half of all are there. smdl reads them as one row of 0 and 1, submodlib as sets."""
    known = {"query": np.arange(width) < width * 3 // 4, "away_from": np.arange(width) >= width // 2}
    names = {"query": "query_concepts", "away_from": "private_concepts"}
    weights: dict[str, Any] = {name: 1.0}
    cases = []
    for form, function, given in (
        ("", "", ()),
        (", query", "MutualInformation", ("query",)),
        (", away_from", "ConditionalGain", ("away_from",)),
        (", both", "ConditionalMutualInformation", ("query", "away_from")),
    ):
        sets = {names[one]: set(np.flatnonzero(known[one]).tolist()) for one in given}
        lines = {one: known[one].astype(np.float32)[None] for one in given}
        peer = submodlib(f"{prefix}{function}Function", lambda data, sets=sets: {**made(data), **sets})
        cases.append(
            Case(name + form, smdl.Objective(**weights), of, {"submodlib": peer}, lambda _, lines=lines: lines)
        )
    return cases


query = lambda data: {"query": data.query}  # noqa: E731
there = lambda data: {"away_from": data.there}  # noqa: E731
both = lambda data: {**query(data), **there(data)}  # noqa: E731
both_parts = by_cosine(facility_location=1.0, saturated_coverage=1.0, saturation=0.1)
volume = smdl.Objective(log_determinant=1.0, kernel="cosine", noise=1.0)
CASES = [
    Case("facility_location", by_cosine(facility_location=1.0), rows, {
        "apricot": apricot("FacilityLocationSelection", lambda data: similar(data.rows), **GRAPH),
        "submodlib": submodlib("FacilityLocationFunction", data_of),
    }),
    Case("feature_coverage √", smdl.Objective(feature_coverage=1.0), rows, {
        "apricot": apricot("FeatureBasedSelection", lambda data: data.rows.astype(np.float64), concave_func="sqrt"),
    }),
    Case("graph_cut, λ = 1", by_cosine(graph_cut=1.0, overlap=1.0), rows, {
        "apricot": apricot("GraphCutSelection", lambda data: similar(data.rows), alpha=1.0, **GRAPH),
        "submodlib": submodlib("GraphCutFunction", lambda data: {**data_of(data), "lambdaVal": 1.0}),
    }),
    Case("feature_coverage log", smdl.Objective(feature_coverage=1.0, concave="log"), rows, {
        "apricot": apricot("FeatureBasedSelection", lambda data: data.rows.astype(np.float64), concave_func="log"),
    }),
    Case("feature_coverage ratio", smdl.Objective(feature_coverage=1.0, concave="ratio"), rows, {
        "apricot": apricot("FeatureBasedSelection", lambda data: data.rows.astype(np.float64), concave_func="sigmoid"),
    }),
    Case("feature_coverage √, columns from 0 to 1", smdl.Objective(feature_coverage=1.0), scaled, {
        "submodlib": submodlib("FeatureBasedFunction", lambda data: features(data, "squareRoot")),
    }),
    Case("feature_coverage log, columns from 0 to 1", smdl.Objective(feature_coverage=1.0, concave="log"), scaled, {
        "submodlib": submodlib("FeatureBasedFunction", lambda data: features(data, "logarithmic")),
    }),
    Case("feature_coverage ratio, columns from 0 to 1", smdl.Objective(feature_coverage=1.0, concave="ratio"), scaled, {
        "submodlib": submodlib("FeatureBasedFunction", lambda data: features(data, "inverse")),
    }),
    Case("facility_location + saturated_coverage", both_parts, rows, {
        "apricot": mixture,
    }),
    Case("saturated_coverage, α = 0.1", by_cosine(saturated_coverage=1.0, saturation=0.1), rows, {
        "apricot": apricot("SaturatedCoverageSelection", lambda data: similar(data.rows), alpha=0.1, **GRAPH),
    }),
    Case("sum_redundancy", by_cosine(sum_redundancy=1.0), rows, {
        "apricot": apricot("SumRedundancySelection", lambda data: similar(data.rows), optimizer="naive", **GRAPH),
    }),
    Case("set_cover, equal weights", smdl.Objective(set_cover=1.0), lambda data: data.marks, {
        "apricot": apricot("MaxCoverageSelection", lambda data: data.marks.astype(np.float64)),
        "submodlib": submodlib("SetCoverFunction", marked),
    }),
    *covers("set_cover", "SetCover", marks, weighted, MARKS),
    *covers("probabilistic_set_cover", "ProbabilisticSetCover", chances, likely, LISTS),
    Case("log_determinant", volume, rows, {
        "submodlib": submodlib("LogDeterminantFunction", lambda data: {**data_of(data), "lambdaVal": 1.0}),
    }),
    Case("disparity_sum", by_cosine(disparity_sum=1.0), rows, {
        "submodlib": submodlib("DisparitySumFunction", data_of, "NaiveGreedy"),
    }),
    Case("disparity_min", by_cosine(disparity_min=1.0), rows, {
        "submodlib": submodlib("DisparityMinFunction", data_of, "NaiveGreedy"),
    }),
    Case("facility_location, query", by_cosine(facility_location=1.0), rows, {
        "submodlib": submodlib("FacilityLocationMutualInformationFunction", about),
    }, query),
    Case("facility_location, away_from", by_cosine(facility_location=1.0), rows, {
        "submodlib": submodlib("FacilityLocationConditionalGainFunction", beside),
    }, there),
    Case("facility_location, both", by_cosine(facility_location=1.0), rows, {
        "submodlib": submodlib("FacilityLocationConditionalMutualInformationFunction", lambda data: {
            **about(data), **beside(data)}),
    }, both),
    Case("graph_cut, query", by_cosine(graph_cut=1.0, overlap=1.0), rows, {
        "submodlib": submodlib("GraphCutMutualInformationFunction", about),
    }, query),
    Case("graph_cut, away_from", by_cosine(graph_cut=1.0, overlap=1.0), rows, {
        "submodlib": submodlib("GraphCutConditionalGainFunction", lambda data: {**beside(data), "lambdaVal": 1.0}),
    }, there),
    Case("log_determinant, query", volume, rows, {
        "submodlib": submodlib("LogDeterminantMutualInformationFunction", lambda data: {
            **about(data), "lambdaVal": 1.0}, "NaiveGreedy"),
    }, query),
    Case("log_determinant, away_from", volume, rows, {
        "submodlib": submodlib("LogDeterminantConditionalGainFunction", lambda data: {
            **beside(data), "lambdaVal": 1.0}),
    }, there),
    Case("log_determinant, both", volume, rows, {
        "submodlib": submodlib("LogDeterminantConditionalMutualInformationFunction", lambda data: {
            **about(data), **beside(data), "lambdaVal": 1.0}, "NaiveGreedy"),
    }, both),
]  # fmt: skip


def clocked(run: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call, and what it returns."""
    start = time.process_time()
    found = run()
    return time.process_time() - start, found


def compare(case: Case, peer: str, n: int, size: int, repeats: int, limit: float) -> bool:
    """Print one line. Return whether the peer took less than the limit."""
    data = make(n, 64)
    ours = lambda: smdl.select(case.rows(data), case.objective, size, **case.options(data))  # noqa: E731
    theirs = lambda: case.peers[peer](data, size)  # noqa: E731
    ours()  # compiles
    times: tuple[list[float], list[float]] = ([], [])
    try:
        picks = theirs() if n <= 1000 else None  # the first call imports and compiles
        for _ in range(repeats):
            times[0].append(clocked(ours)[0])
            seconds, picks = clocked(theirs)
            times[1].append(seconds)
            if seconds > limit:
                break
    except Exception as error:  # a peer that fails is reported as such
        print(f"| {case.name} | {peer} | {n:,} | fails: {type(error).__name__} {str(error)[:60]} |", flush=True)
        return False
    assert picks is not None
    after = smdl.select(
        case.rows(data), case.objective, size - 1, initial=picks[:1], **case.options(data)
    ).indices.tolist()
    same = sum(a == b for a, b in zip(after, picks[1:], strict=True))
    found = smdl.evaluate(case.rows(data), case.objective, [picks[0], *after], **case.options(data)).value
    theirs_value = smdl.evaluate(case.rows(data), case.objective, picks, **case.options(data)).value
    mine, other = (statistics.median(each) for each in times)
    print(
        f"| {case.name} | {peer} | {n:,} | {mine:.3f} | {other:.3f} | {other / mine:.1f} | {same} of {size - 1} |"
        f" {found / theirs_value:.4f} |",
        flush=True,
    )
    return other < limit


def any_size(n: int) -> None:
    """Print what double greedy reaches on graph cuts, beside greedy that stops where the next sample would cost."""
    rows = make(n, 64).rows
    print("| similarity | λ | n | greedy picks | greedy s | bidirectional picks | bidirectional s | value |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, options in (("cosine", COSINE), ("gaussian, σ = 2", {"distance": "gaussian", "sigma": 2.0})):
        for overlap in (0.6, 1.0, 2.0, 10.0):
            objective = smdl.Objective(graph_cut=1.0, overlap=overlap, **options)
            greedy = lambda objective=objective: smdl.select(rows, objective, (1, n), size_penalty=0)  # noqa: E731
            greedy()  # compiles
            time_of_greedy, first = clocked(greedy)
            seconds, found = clocked(lambda o=objective: smdl.select(rows, o, optimizer="bidirectional"))
            counts = f"{len(first)} | {time_of_greedy:.2f} | {len(found)} | {seconds:.2f}"
            print(f"| {name} | {overlap} | {n:,} | {counts} | {found.value / first.value:.4f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[1000, 5000])
    parser.add_argument("--size", type=int, default=50)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds after which a peer is not run again")
    parser.add_argument("--only", default="", help="functions whose name contains this")
    parser.add_argument("--any-size", action="store_true", help="only batches of any size, without a peer")
    options = parser.parse_args()
    if options.any_size:
        for n in options.rows:
            any_size(n)
        return
    print(f"python {sys.version.split()[0]}, torch {torch.__version__}, one thread, {options.size} of n rows")
    print("| function | peer | n | smdl s | peer s | ratio | same | value |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for case in CASES:
        for peer in case.peers:
            if options.only in case.name:
                for n in options.rows:
                    if not compare(case, peer, n, options.size, options.repeats, options.limit):
                        break


if __name__ == "__main__":
    main()
