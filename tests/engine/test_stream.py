"""Picks of a stream: what plain loops pick, at least half of greedy, and nothing that depends on rows that are gone."""

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import smdl
from tests.conftest import examples

ROWS = np.random.default_rng(0).random((300, 6)) ** 4


def chunked(rows: np.ndarray, length: int) -> Iterator[np.ndarray]:
    return (rows[start : start + length] for start in range(0, len(rows), length))


def coverage(rows: np.ndarray) -> float:
    return float(np.sqrt(rows.sum(0)).sum())


def union(rows: np.ndarray) -> float:
    return float(np.minimum(rows.sum(0), 1.0).sum())


def expected(rows: np.ndarray) -> float:
    return float((1.0 - np.prod(1.0 - rows, axis=0)).sum())


def volume(rows: np.ndarray) -> float:
    return float(np.linalg.slogdet(np.eye(len(rows)) + rows @ rows.T)[1]) if len(rows) else 0.0


VALUES = {
    "feature_coverage": coverage,
    "set_cover": union,
    "probabilistic_set_cover": expected,
    "log_determinant": volume,
}


def sieved(value: Callable[[np.ndarray], float], rows: np.ndarray, length: int, size: int, epsilon: float) -> list[int]:
    """Sieve-Streaming as plain loops; the guesses follow the best single row up to the end of the current chunk."""
    sieves: dict[int, list[int]] = {}
    best = 0.0
    for start in range(0, len(rows), length):
        places = range(start, min(start + length, len(rows)))
        best = max([best, *(value(rows[[place]]) for place in places)])
        lowest, highest = (math.ceil(math.log(x) / math.log1p(epsilon)) for x in (best, 2 * size * best))
        sieves = {power: sieves.get(power, []) for power in range(lowest, highest + 1)}
        for power, picks in sieves.items():
            for place in places:
                before = value(rows[picks])
                gain = value(rows[[*picks, place]]) - before
                if len(picks) == size or gain <= 1e-12:
                    continue
                if gain >= ((1 + epsilon) ** power / 2 - before) / (size - len(picks)):
                    picks.append(place)
    return max(sieves.values(), key=lambda picks: float(f"{value(rows[picks]):.9g}"))


@pytest.mark.parametrize("name", VALUES)
@examples(10)
@given(data=st.data())
def test_a_stream_picks_what_plain_loops_pick(name, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rows = rng.random((data.draw(st.integers(1, 12)), 3))
    length, size = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    picks = smdl.select_stream(chunked(rows, length), name, size, epsilon=0.3)
    assert picks.indices.tolist() == sieved(VALUES[name], rows, length, size, 0.3)
    np.testing.assert_array_equal(picks.rows, rows[picks.indices])
    assert picks.value == pytest.approx(VALUES[name](picks.rows), rel=1e-9)


def test_of_sieves_that_cover_all_the_lowest_guess_counts():
    rows = np.random.default_rng(5).random((5, 3))
    assert union(rows[[0, 4]]) == pytest.approx(union(rows[[0, 1, 2, 3]])) == 3
    assert smdl.select_stream(chunked(rows, 1), "set_cover", 4, epsilon=0.3).indices.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", VALUES)
def test_a_stream_reaches_half_of_greedy(name):
    picks = smdl.select_stream(chunked(ROWS, 37), name, 8)
    greedy = smdl.select(ROWS, name, 8)
    assert len(picks.indices) <= 8
    assert VALUES[name](picks.rows) >= 0.4 * VALUES[name](ROWS[greedy.indices])


def test_facility_location_of_a_stream_represents_the_given_rows():
    rng = np.random.default_rng(0)
    centres = 5 * np.eye(3)
    cluster = rng.integers(0, 3, 300)
    rows = centres[cluster] + 0.3 * rng.normal(size=(300, 3))
    objective = smdl.Objective(facility_location=1.0, distance="gaussian", sigma=1.0)
    picks = smdl.select_stream(chunked(rows, 50), objective, 6, represent=rows[:60])
    assert {0, 1, 2} == set(cluster[picks.indices])
    one = smdl.select_stream(chunked(rows, 50), objective, 6, represent=rows[:60][cluster[:60] == 1])
    assert cluster[one.indices[-1]] == 1
    pool = smdl.Pool(np.concatenate([rows, rows[:60]]), importance=np.r_[np.zeros(300), np.ones(60)])
    assert smdl.evaluate(pool, objective, picks.indices).value == pytest.approx(picks.value, rel=1e-6)


def test_tensors_empty_chunks_and_mixtures():
    objective = smdl.Objective(feature_coverage=1.0, log_determinant=0.5)
    chunks = [torch.zeros(0, 6), *map(torch.from_numpy, chunked(ROWS, 100))]
    picks = smdl.select_stream(iter(chunks), objective, 5)
    assert 1 <= len(picks.indices) <= 5
    assert (np.diff(picks.indices) > 0).all(), "in the order in which they came"
    assert len(smdl.select_stream([np.zeros((4, 2))], "set_cover", 2).indices) == 0


def test_what_a_stream_cannot_know_is_refused():
    def refused(message: str, objective: object, size: object = 2, chunks: object = (ROWS,), **options: object) -> None:
        with pytest.raises(ValueError, match=message):
            smdl.select_stream(chunks, objective, size, **options)  # type: ignore[arg-type]

    refused("graph_cut needs all rows at once; a stream has facility_location", "graph_cut")
    refused("facility_location needs represent=", "facility_location")
    refused("facility_location needs represent=", "set_cover", represent=ROWS)
    refused("needs a distance whose scale does not depend on the rows", "facility_location", represent=ROWS)
    gaussian = smdl.Objective(facility_location=1.0, distance="gaussian")
    refused("gaussian needs sigma= for a stream", gaussian, represent=ROWS)
    refused("chunks must have as many columns as the first one: 6, got 2", "set_cover", chunks=[ROWS, ROWS[:, :2]])
    refused("chunks must be finite", "set_cover", chunks=[[[math.nan]]])
    refused("chunks must have at least one row, got none", "set_cover", chunks=[])
    refused("size must be", "set_cover", size=0)
    refused("epsilon must be", "set_cover", epsilon=1.0)
    refused("set_cover needs features ≥ 0, got -1 in features", "set_cover", chunks=[[[-1.0]]])
