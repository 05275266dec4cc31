"""Facility location over many rows of files: random candidates, scored against random rows, read where they are."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from smdl.common.progress import Display
from smdl.engine import plan
from smdl.engine.greedy import subset
from smdl.files import choose, sampled_choice
from smdl.files.choose import Chooser
from smdl.files.request import SelectRequest
from smdl.files.sampled_choice import random_rows
from tests.conftest import examples


@pytest.fixture(autouse=True)
def _small(monkeypatch, rows):  # noqa: ARG001
    """Sample inputs of more than 100 rows: 80 rows to be represented, 60 candidates."""
    make_small(monkeypatch)


def make_small(monkeypatch):
    monkeypatch.setattr(choose, "EXACT", 100)
    monkeypatch.setattr(plan, "EXACT", 100)
    monkeypatch.setattr(plan, "SAMPLE", 80)
    for module in (plan, subset):
        monkeypatch.setattr(module, "PER_PICK", 1)
    monkeypatch.setattr(subset, "FEWEST", 60)


def chooser(inputs: str = "shards", **options: Any) -> Chooser:
    return Chooser(SelectRequest(**{"inputs": (inputs,), "out": Path("chosen.npy"), "size": 10, **options}))


def chosen(inputs: str = "shards", **options: Any) -> list[int]:
    chooser(inputs, **options).run(Display())
    return np.load("chosen.npy").tolist()


def greedy(
    features: np.ndarray, represented: np.ndarray, candidates: list[int], size: int, before: list[int], importance=1.0
):
    """Facility location in plain loops."""
    distances = np.linalg.norm(features[:, None].astype(np.float64) - features[represented], axis=2)
    picked, left = list(before), sorted(candidates)
    while len(picked) < len(before) + size:
        best = distances[picked].min(0) if picked else np.full(len(represented), distances.max())
        gains = [(importance * np.maximum(best - distances[row], 0)).sum() for row in left]
        picked.append(left.pop(int(np.argmax(gains))))
    return picked[len(before) :]


@pytest.mark.parametrize("limited", [False, True])
def test_the_picks_are_greedy_among_the_candidates(rows, limited):
    options = {}
    if limited:
        np.save("initial.npy", np.array([3, 250]))
        np.save("exclude.npy", np.arange(100, 160))
        options = {"initial": "initial.npy", "exclude": "exclude.npy"}
    made = chooser(**options)
    assert (made.plan.candidates, made.plan.represented) == (60, 80)
    drawn = sampled_choice.draw(made._job(np.array([7, 8])))
    represented, candidates = drawn.rows[drawn.represented], drawn.rows[drawn.candidates].tolist()
    assert len(set(candidates)) == 60
    assert len(set(represented.tolist())) == 80
    assert not {7, 8} & {*candidates, *represented.tolist()}
    assert not limited or not set(candidates) & {3, 250, *range(100, 160)}
    shard = np.load("shards/0.npy")
    shard[[7, 8]] = np.nan
    np.save("shards/0.npy", shard)
    expected = greedy(rows, represented, candidates, 10, [3, 250] if limited else [])
    assert chosen(skip_nan=True, **options) == expected


def test_rows_to_be_represented_count_by_their_importance(rows):
    importance = np.arange(300) % 4  # a quarter of them does not count
    np.save("importance.npy", importance)
    drawn = sampled_choice.draw(chooser(importance="importance.npy")._job(np.empty(0, np.int64)))
    represented, candidates = drawn.rows[drawn.represented], drawn.rows[drawn.candidates].tolist()
    assert len(represented) == 80
    assert importance[represented].all()
    expected = greedy(rows, represented, candidates, 10, [], importance[represented])
    assert chosen(importance="importance.npy") == expected


def test_the_division_into_files_changes_no_pick(rows, monkeypatch):
    expected = chosen()
    np.save("whole.npy", rows)
    pq.write_table(pa.table({f"x{k}": rows[:, k] for k in range(4)}), "whole.parquet", row_group_size=50)
    assert chosen("whole.npy") == expected
    assert chosen("whole.parquet") == expected
    assert chosen(seed=1) != expected
    assert chosen(partitions=3) != expected
    monkeypatch.setattr(subset, "ENTRIES", 900)  # several stages: the first picks come from fewer candidates
    chosen("whole.npy", seed=2)
    staged = np.load("chosen.npy").tolist()
    assert chosen(seed=2) == staged


def test_what_cannot_be_sampled_is_split(monkeypatch):
    for options in (
        {"partitions": 1},
        {"objective": "redundancy"},
        {"objective": {"facility_location": 1.0, "neighbours": 5}},
        {"objective": {"facility_location": 1.0, "redundancy": 1.0}},
        {"groups": "groups.npy", "per_group": 5},
    ):
        np.save("groups.npy", np.arange(300) % 3)
        assert chooser(**options).plan.candidates == 0
    assert chooser(objective={"facility_location": 1.0, "sample": 33}).plan.represented == 33
    monkeypatch.setattr(choose, "EXACT", 300)
    assert chooser().plan.candidates == 0


def test_rows_that_are_all_the_same_are_chosen_without_a_gain():
    np.save("same.npy", np.ones((200, 4), np.float32))
    assert len(set(chosen("same.npy"))) == 10


@pytest.mark.parametrize("gone", [False, True])
def test_a_file_that_changes_or_vanishes_is_an_error(monkeypatch, gone):
    def draw(job, draw=sampled_choice.draw):
        path = Path("shards/1.npy")
        path.unlink() if gone else path.write_bytes(path.read_bytes()[:-100])
        return draw(job)

    monkeypatch.setattr(sampled_choice, "draw", draw)
    message = "cannot be read: No such file" if gone else "has changed since the command started: start it again"
    with pytest.raises(ValueError, match=rf"shards/1\.npy {message}"):
        chosen()
    assert not Path("chosen.npy").exists()


@examples(200)
@given(st.integers(1, 400), st.integers(0, 400), st.integers(0, 200), st.integers(0, 2**40))
def test_random_rows_are_distinct_and_allowed(total, count, excluded, key):
    without = np.unique(np.random.default_rng(key).integers(0, total, excluded)).astype(np.int64)
    found = random_rows(key, total, count, without)
    assert len(set(found.tolist())) == len(found) == min(count, total - len(without))
    assert not set(found.tolist()) & set(without.tolist())


def test_random_rows_are_uniform_and_in_random_order():
    for total in (300, 30_000):  # by a permutation, and by draws
        found = np.concatenate([random_rows(key, total, 100, np.arange(5)) for key in range(200)])
        assert abs(found.mean() / total - 0.5) < 0.02
        assert abs(np.mean([random_rows(key, total, 100, np.arange(5))[0] for key in range(200)]) / total - 0.5) < 0.1


def test_more_rows_than_random_numbers_reach_are_refused():
    with pytest.raises(ValueError, match=r"the number of rows must be below 2³².*got 4294967296"):
        random_rows(0, 1 << 32, 10, np.empty(0, np.int64))
