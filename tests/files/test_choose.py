"""smdl select: the rows are those of smdl.select, in any number of parts, and an interrupted command resumes."""

import csv
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow.parquet as pq
import pytest

import smdl
from smdl.cli.commands import main
from smdl.common.progress import Display
from smdl.common.storage import read_json
from smdl.files import choose, file_plan, job
from smdl.files.choose import Chooser
from smdl.files.explanation import selections
from smdl.files.job import Job, merge_objective
from smdl.files.request import SelectRequest
from smdl.report.selection_page import render_selection
from tests.faults import Killed, killed_at

pytestmark = pytest.mark.usefixtures("rows")


def chosen(out="chosen.npy", **options) -> Any:
    """Run a request; return the row numbers in the order picked, or the path of another output."""
    out = Path(out)
    Chooser(SelectRequest(**{"inputs": ("shards",), "size": 10, "out": out, **options})).run(Display())
    return np.load(out).tolist() if out.suffix == ".npy" else out


def test_one_part_gives_the_rows_of_select(rows):
    expected = smdl.select(rows, "facility_location", 10, seed=(0, 0, 0))
    assert chosen(partitions=1) == expected.indices.tolist()


def test_several_sizes_are_beginnings_of_one_order():
    every = chosen(size=(30, 5, 12), partitions=2)
    assert every == chosen("one.npy", size=30, partitions=2)
    for size in (5, 12):
        assert np.load(f"chosen-{size}.npy").tolist() == every[:size]
    numbers = read_json(Path("chosen.select/selection.json"))
    assert [each["size"] for each in numbers["sizes"]] == [5, 12, 30]
    assert numbers["sizes"][-1]["chosen"] == pytest.approx(numbers["distance"]["chosen"]["mean"])
    assert f"{numbers['sizes'][0]['chosen']:.4g}" in render_selection(Path("chosen.select")).read_text()
    Path("chosen-5.npy").write_bytes(b"changed")
    with pytest.raises(ValueError, match=r"chosen-5\.npy was changed after smdl wrote it"):
        chosen(size=(30, 5, 12), partitions=2)


@pytest.mark.parametrize("objective", ["facility_location", "redundancy"])
def test_parts_and_merges_give_what_their_selections_give(objective, rows):
    """The plan, written as plain loops."""
    results = []
    for number in range(4):
        part = file_plan.part_rows(7, 300, 4, number)
        results.append(part[smdl.select(rows[part], objective, 10, seed=(7, 0, number)).indices])
    union = np.sort(np.concatenate(results))
    expected = smdl.select(rows, objective, 10, seed=(7, 1, 0), among=union).indices  # scored against all rows
    assert chosen(objective=objective, partitions=4, seed=7) == expected.tolist()


def test_parts_are_random_disjoint_and_complete():
    parts = [file_plan.part_rows(3, 10_000, 8, number) for number in range(8)]
    assert sorted(np.concatenate(parts).tolist()) == list(range(10_000))
    assert all(1100 < len(part) < 1400 for part in parts)
    assert all(abs(part.mean() - 5000) < 400 for part in parts)
    assert file_plan.part_rows(4, 10_000, 8, 0).tolist() != parts[0].tolist()


def test_parts_of_shuffled_rows_are_ranges(rows):
    parts = [file_plan.part_rows(0, 300, 4, number, shuffled=True) for number in range(4)]
    assert [(part[0], part[-1]) for part in parts] == [(0, 74), (75, 149), (150, 224), (225, 299)]
    found = [part[smdl.select(rows[part], "redundancy", 10, seed=(0, 0, n)).indices] for n, part in enumerate(parts)]
    expected = smdl.select(rows, "redundancy", 10, seed=(0, 1, 0), among=np.concatenate(found)).indices
    assert chosen(objective="redundancy", partitions=4, shuffled=True) == expected.tolist()


def test_a_union_beyond_the_limit_is_merged_in_levels(monkeypatch):
    assert file_plan.make_plan(10_000_000, 10_000, part_rows=100_000).levels == (100, 10, 1)
    assert file_plan.make_plan(1000, 10, 7, part_rows=30).levels == (7, 3, 1)
    assert file_plan.make_plan(90_000, 10).levels == (1,)
    merges = file_plan.make_plan(1000, 10, 7, part_rows=30)
    assert [list(merges.sources(1, number)) for number in range(3)] == [[0, 1], [2, 3], [4, 5, 6]]
    monkeypatch.setattr(choose, "make_plan", lambda *arguments: file_plan.make_plan(*arguments, part_rows=30))
    assert len(set(chosen(partitions=7))) == 10


def test_the_reference_of_a_merge_is_a_random_sample_of_all_rows(monkeypatch):
    monkeypatch.setattr(file_plan, "REFERENCE_ROWS", 1000)
    found = file_plan.reference_rows(0, 1, 0, 1_000_000)
    assert 990 < len(found) <= 1000
    assert 1990 < len(file_plan.reference_rows(0, 1, 0, 1_000_000, 2000)) <= 2000, "as many as the candidates"
    assert (np.diff(found) > 0).all()
    assert abs(found.mean() - 500_000) < 50_000
    assert file_plan.reference_rows(0, 1, 1, 1_000_000).tolist() != found.tolist()
    assert file_plan.reference_rows(0, 1, 0, 500).tolist() == list(range(500))


def test_a_merge_represents_the_reference_and_not_the_candidates(rows, monkeypatch):
    """The last merge, written as plain loops: candidates that are no reference rows count for nothing."""
    monkeypatch.setattr(file_plan, "REFERENCE_ROWS", 60)
    monkeypatch.setattr("smdl.files.job.PER_PICK", 1)
    results = [
        part[smdl.select(rows[part], "facility_location", 10, seed=(0, 0, number)).indices]
        for number, part in enumerate(file_plan.part_rows(0, 300, 4, number) for number in range(4))
    ]
    left = np.sort(np.concatenate(results)).tolist()
    reference = file_plan.reference_rows(0, 1, 0, 300, 40)
    assert not set(left) <= set(reference.tolist())
    distances = np.linalg.norm(rows[:, None] - rows[reference], axis=2)
    expected: list[int] = []
    while len(expected) < 10:
        best = distances[expected].min(0) if expected else np.full(len(reference), distances.max())
        gains = [np.maximum(best - distances[row], 0).sum() for row in left]
        expected.append(left.pop(int(np.argmax(gains))))
    assert chosen(partitions=4) == expected


def test_a_merge_is_not_worse_than_the_best_part(rows, monkeypatch):
    job_select, found = Job._select, []

    def bad_merge(self, pool, objective, rows, among, level, number):
        if level == 1 and len(among) == 40:  # the worst of the candidates: the same corner of the data
            among = among[np.argsort(pool.features.numpy()[np.searchsorted(rows, among)].sum(1))][:10]
            among.sort()
        found.append((level, job_select(self, pool, objective, rows, among, level, number)))
        return found[-1][1]

    monkeypatch.setattr(Job, "_select", bad_merge)
    picked = chosen(partitions=4)
    merged, kept = (each.value for level, each in found if level == 1)
    assert kept > merged
    parts = [smdl.evaluate(rows, "facility_location", each).value for each in (picked,)]
    assert parts == [pytest.approx(kept)]
    chosen("three.npy", partitions=4, initial="chosen.npy")  # values count from there


def test_a_file_that_changes_meanwhile_is_an_error(monkeypatch):
    run = Job.run

    def changing(self, level, *arguments):
        if level == 1:
            np.save("shards/1.npy", np.load("shards/1.npy") + 1)
        return run(self, level, *arguments)

    monkeypatch.setattr(Job, "run", changing)
    with pytest.raises(ValueError, match=r"shards/1\.npy has changed since the command started: start it again"):
        chosen(partitions=3)
    assert not Path("chosen.npy").exists()


def test_parts_cost_little_of_the_value():
    features = np.random.default_rng(1).normal(size=(600, 8)).astype(np.float32)
    whole = smdl.select(features, "facility_location", 20)
    parts = [file_plan.part_rows(0, 600, 4, number) for number in range(4)]
    union = np.concatenate([part[smdl.select(features[part], "facility_location", 20).indices] for part in parts])
    merged = smdl.select(features, "facility_location", 20, among=union)
    assert merged.value > 0.98 * whole.value


def test_every_output_has_rank_place_and_gain():
    np.save("groups.npy", np.array(["even", "odd"])[np.arange(300) % 2])
    np.save("ids.npy", np.arange(300) * 1000)
    extra = {"groups": "groups.npy", "ids": "ids.npy", "partitions": 2}
    table = pq.read_table(chosen("chosen.parquet", **extra)).to_pydict()
    with chosen("chosen.csv", **extra).open() as file:
        lines = list(csv.DictReader(file))
    records = json.loads(chosen("chosen.json", **extra).read_text())
    indices = chosen("chosen.npy", **extra)
    assert table["rank"] == list(range(1, 11))
    assert table["index"] == indices == [int(line["index"]) for line in lines] == [each["index"] for each in records]
    offsets = {"shards/0.npy": 0, "shards/1.npy": 100, "shards/2.npy": 180}
    assert [offsets[shard] + row for shard, row in zip(table["shard"], table["row"], strict=True)] == indices
    assert table["id"] == [1000 * index for index in indices]
    assert table["group"] == [("even", "odd")[index % 2] for index in indices]
    assert table["gain"] == [float(line["gain"]) for line in lines]
    assert sorted(table["gain"], reverse=True) == table["gain"]


def test_shards_of_another_file_system_give_the_rows_of_local_ones():
    memory = fsspec.filesystem("memory")
    for path in Path("shards").iterdir():
        memory.pipe(f"/bucket/{path.name}", path.read_bytes())
    expected = chosen(partitions=3)
    for url in ("memory://bucket", "memory://bucket/*.npy", f"file://{Path.cwd()}/shards"):
        assert chosen("remote.npy", inputs=(url,), partitions=3) == expected
    first = np.load("shards/0.npy")
    first[:] = first[::-1]
    np.save("reversed.npy", first)
    memory.pipe("/bucket/0.npy", Path("reversed.npy").read_bytes())
    assert chosen("remote.npy", inputs=("memory://bucket",), partitions=3) != expected, "a file has changed"
    with pytest.raises(ValueError, match=r"memory://nowhere/\*.npy matches no file"):
        chosen("remote.npy", inputs=("memory://nowhere/*.npy",))


def test_one_column_of_numbers_is_enough(rows):
    expected = smdl.select(rows[:, :1], "facility_location", 10, seed=(0, 0, 0)).indices.tolist()
    np.save("one.npy", rows[:, 0])
    Path("one.csv").write_text("x,name\n" + "".join(f"{value},text\n" for value in rows[:, 0]))
    for path in ("one.npy", "one.csv"):
        assert chosen(inputs=(path,)) == expected


def test_a_fraction_is_of_the_rows_that_may_be_chosen():
    np.save("no.npy", np.arange(100))
    found = chosen(size=None, fraction=0.05, exclude="no.npy")
    assert len(found) == 10
    assert min(found) >= 100


@pytest.mark.parametrize("partitions", [1, 3])
def test_an_output_can_be_excluded_from_the_next_choice(partitions):
    first = chosen("first.parquet", partitions=partitions)
    taken = set(pq.read_table(first)["index"].to_pylist())
    assert not taken & set(chosen(exclude="first.parquet", partitions=partitions))
    assert taken & set(chosen(partitions=partitions)), "without exclude, the same rows are chosen"


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_that_are_not_finite_are_left_out_by_a_flag(partitions):
    first = chosen(partitions=partitions)
    broken = np.load("shards/1.npy")
    broken[5, 1], broken[7] = np.nan, np.inf
    np.save("shards/1.npy", broken)
    found = chosen(partitions=partitions, skip_nan=True)
    assert not {105, 107} & set(found)
    assert len(set(found)) == 10
    assert len(first) == 10
    np.save("before.npy", np.array([105, 200]))
    assert len(chosen(partitions=partitions, skip_nan=True, initial="before.npy")) == 10, "also those chosen before"


def test_labels_and_probabilities_reach_the_objective(rows):
    labels, probabilities = np.arange(300) % 3, np.full((300, 3), 0.1) + 0.7 * np.eye(3)[np.arange(300) // 7 % 3]
    np.savez("all.npz", features=rows, y=labels, names=np.array(["a", "b", "c"])[labels], p=probabilities)
    expected = smdl.select(smdl.Pool(rows, probabilities, labels), "gradients", 10, seed=(0, 0, 0)).indices.tolist()
    for column in ("y", "names"):
        options = {"inputs": ("all.npz",), "objective": "gradients", "labels": column, "probabilities": "p"}
        assert chosen(f"{column}.npy", **options) == expected


def test_an_objective_may_be_weights_and_options(rows):
    objective = {"redundancy": 1.0, "distance": "cosine"}
    expected = smdl.select(rows, smdl.Objective(**objective), 10, seed=(0, 0, 0)).indices.tolist()
    assert chosen(objective=objective) == expected


def test_a_killed_command_resumes_at_the_part_and_gives_the_same_rows(monkeypatch):
    expected = chosen("expected.npy", partitions=4)
    computed, original = [], Job.run

    def run(job, level, number, *merged):
        computed.append((level, number))
        return original(job, level, number, *merged)

    monkeypatch.setattr(Job, "run", run)
    tasks = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    done = 0
    for at in range(40):  # killed before each file operation, started again each time
        computed.clear()
        try:
            with killed_at(Path.cwd(), at):
                found = chosen(partitions=4)
        except Killed:
            assert computed == tasks[done : done + len(computed)], "no result is computed twice"
            done = len(list(Path("chosen.select").glob("part-*")))
            continue
        break
    else:
        pytest.fail("it was never finished")
    assert found == expected


def test_results_of_another_request_or_damaged_ones_are_computed_again(monkeypatch):
    expected = chosen(partitions=3)
    computed, original = [], Job.run
    monkeypatch.setattr(
        Job,
        "run",
        lambda job, level, number, *c: (computed.append((level, number)), original(job, level, number, *c))[1],
    )
    assert chosen(partitions=3) == expected
    assert computed == [], "all results are kept"
    path = Path("chosen.select/part-0-1")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert chosen(partitions=3) == expected
    assert computed == [(0, 1)]
    computed.clear()
    for change in ({"seed": 1}, {"size": 9}, {"objective": "redundancy"}, {"partitions": 2}):
        chosen(**{"partitions": 3, **change})
        assert (0, 0) in computed
        computed.clear()
    chosen(partitions=3)
    computed.clear()
    np.save("shards/0.npy", np.load("shards/0.npy") + 1)
    chosen(partitions=3)
    assert len(computed) == 4, "another input"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_ended_by_a_signal_resumes(number):
    expected = chosen("expected.npy", partitions=4)
    code = f"""
import os, sys
from smdl.cli.commands import main
from smdl.files.job import Job
original = Job.run
def run(job, level, number, candidates=()):
    if number == 2: os.kill(os.getpid(), {int(number)})
    return original(job, level, number, candidates)
Job.run = run
sys.exit(main("select shards --size 10 --partitions 4 --out chosen.npy --quiet".split()))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert ended.returncode == (-9 if number == signal.SIGKILL else 130)
    assert number == signal.SIGKILL or "resume with the same command" in ended.stderr
    assert {path.name for path in Path("chosen.select").glob("part-*")} == {"part-0-0", "part-0-1"}
    assert not Path("chosen.npy").exists()
    assert chosen(partitions=4) == expected


def test_the_command_prints_where_the_rows_and_the_report_are(capsys):
    arguments = "select shards --size 10 --partitions 2 --objective.redundancy 1 --out chosen.csv --seed 3"
    assert main(arguments.split()) == 0
    printed = capsys.readouterr().out
    assert "10 of 300 rows: chosen.csv" in printed
    assert "report: chosen.select/report.html" in printed
    assert "merging, level 1" in printed
    with Path("chosen.csv").open() as file:
        found = [int(line["index"]) for line in csv.DictReader(file)]
    assert found == chosen(objective={"redundancy": 1}, partitions=2, seed=3)


def test_explain_prints_the_plan_and_writes_nothing(capsys):
    before = sorted(Path.cwd().rglob("*"))
    assert main(["select", "shards", "--size", "10", "--partitions", "4", "--dedup", "0.9", "--explain"]) == 0
    printed = capsys.readouterr().out
    for words in (
        "3 files, 300 rows of 4 × float32, 4.8 kB",
        "rows as similar as 0.9 are left out first",
        "4 random parts of about 75 rows",
        "the last merge: 10 of 40",
    ):
        assert words in printed
    assert sorted(Path.cwd().rglob("*")) == before


PER_STEP = {"redundancy": 1.0, "normalize": "candidates"}


@pytest.mark.parametrize("objective", ["facility_location", "disparity_sum", "log_determinant", PER_STEP], ids=str)
@pytest.mark.parametrize(
    "given", [{}, {"query": "few.npy", "initial": "first.npy"}, {"groups": "g.npy", "per_group": 3}]
)
def test_explain_plans_what_every_selection_runs(objective, given, monkeypatch):
    np.save("few.npy", np.ones((2, 4), np.float32))
    np.save("first.npy", np.arange(3))
    np.save("g.npy", np.arange(300) % 5)
    if objective in ("disparity_sum", PER_STEP):
        given = {name: value for name, value in given.items() if name != "query"}
    ran = []

    def select(*arguments, **options):
        ran.append(smdl.explain(*arguments, **options))
        return smdl.select(*arguments, **options)

    monkeypatch.setattr(job, "select", select)
    request = {"objective": objective, "size": 6, "partitions": 3, **given}
    planned = selections(Chooser(SelectRequest(inputs=("shards",), out=Path("no.npy"), **request))._job(job.NO_ROWS))
    chosen(**request)

    def way(plan):
        return plan.engine, plan.optimizer, plan.loops, plan.size, plan.search

    assert {way(plan) for plan in ran} == {way(plan) for _, plan in planned}
    assert min(plan.shape.others for _, plan in planned) == ran[0].shape.others


@pytest.mark.parametrize("partitions", [1, 3])
def test_rows_that_are_chosen_already_are_complemented(rows, partitions):
    np.save("first.npy", np.array([7, 250, 120]))
    found = chosen(initial="first.npy", partitions=partitions)
    assert not {7, 250, 120} & set(found)
    if partitions == 1:
        expected = smdl.select(rows, "facility_location", 10, seed=(0, 0, 0), initial=[7, 120, 250])
        assert found == expected.indices.tolist()
    assert found != chosen(exclude="first.npy", partitions=partitions)


@pytest.mark.parametrize("partitions", [1, 3])
def test_every_group_has_at_most_its_quota(rows, partitions):
    groups = np.where(np.arange(300) < 2, "rare", np.where(np.arange(300) % 4 == 0, "few", "many"))
    np.save("groups.npy", groups)
    options = {"groups": "groups.npy", "per_group": 4, "partitions": partitions}
    found = chosen(size=None, **options)
    assert {name: int((groups[found] == name).sum()) for name in np.unique(groups)} == {"few": 4, "many": 4, "rare": 2}
    if partitions == 1:
        expected = smdl.select(rows, "facility_location", groups=groups, per_group=4, seed=(0, 0, 0))
        assert found == expected.indices.tolist()
    assert len(chosen(size=7, **options)) == 7


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_term_that_hardly_counts_is_noted_once(partitions, monkeypatch):
    notes: list[str] = []
    monkeypatch.setattr(Display, "note", lambda _, text: notes.append(text))
    np.save("utility.npy", np.arange(300))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        objective = {"facility_location": 1.0, "utility": 1e-6}
        chosen(objective=objective, utility="utility.npy", partitions=partitions)
    (found,) = [text for text in notes if "hardly counts" in text]
    assert found.startswith("utility has < 0.1% of the value of these 10 picks, so it hardly counts: utility=")


@pytest.mark.parametrize("partitions", [1, 3])
def test_groups_get_their_shares(partitions, rows):
    groups = np.where(np.arange(300) < 2, "rare", np.where(np.arange(300) % 4 == 0, "few", "many"))
    np.save("groups.npy", groups)
    options = {"groups": "groups.npy", "partitions": partitions, "size": 20}

    def counts(**given):
        found = groups[chosen(**options, **given)]
        return [int((found == name).sum()) for name in ("few", "many", "rare")]

    assert counts(shares="uniform") == [9, 9, 2]
    assert counts(shares="input") == [5, 15, 0]
    assert counts(shares="input", at_least=1) == [5, 14, 1]
    assert counts(shares="input", per_group=12) == [8, 12, 0]
    Path("shares.csv").write_text("group,share,minimum,maximum\nmany,1,,7\nfew,1,,\nrare,0,2,\n")
    assert counts(shares="shares.csv") == [11, 7, 2]
    Path("shares.csv").write_text("group,share,minimum,maximum\nmany,3,,12\nfew,1,2,\nrare,0,2,\n")
    assert counts(shares="shares.csv") == [6, 12, 2]
    assert counts(shares="shares.csv", at_least=7) == [7, 11, 2]
    assert counts(shares="shares.csv", per_group=11) == [7, 11, 2]
    if partitions == 1:
        found = smdl.select(rows, size=20, groups=groups, shares="input", seed=(0, 0, 0))
        assert chosen(shares="input", **options) == found.indices.tolist()


@pytest.mark.parametrize("partitions", [1, 3])
def test_useful_rows_are_preferred(partitions, rows):
    utility = np.random.default_rng(1).integers(0, 9, 300)
    np.save("utility.npy", utility)
    options = {"utility": "utility.npy", "partitions": partitions}
    by_itself = chosen(objective="utility", **options)
    assert (utility[by_itself] == 8).all()
    mixed = chosen(objective={"facility_location": 1.0, "utility": 0.01}, **options)
    plain = chosen(partitions=partitions)
    assert utility[plain].mean() < utility[mixed].mean() < 8
    if partitions == 1:
        pool, objective = smdl.Pool(rows, utility=utility), smdl.Objective(facility_location=1.0, utility=0.01)
        assert mixed == smdl.select(pool, objective, 10, seed=(0, 0, 0)).indices.tolist()


@pytest.mark.parametrize("partitions", [1, 3])
def test_important_rows_are_represented(partitions, rows):
    near = np.linalg.norm(rows - rows[77], axis=1)
    importance = (near <= np.sort(near)[39]).astype(np.int64)  # 40 rows that are close to each other
    np.save("importance.npy", importance)
    options = {"importance": "importance.npy", "partitions": partitions}
    found = chosen(**options)
    assert importance[found].mean() > 0.5 > 2 * importance[chosen(partitions=partitions)].mean()
    if partitions == 1:
        assert found == smdl.select(smdl.Pool(rows, importance=importance), size=10, seed=(0, 0, 0)).indices.tolist()
    np.save("probabilities.npy", np.stack([importance, 1 - importance], axis=1) * 0.5 + 0.25)
    unsure = {"facility_location": 1.0, "importance": "uncertainty"}
    assert len(chosen(objective=unsure, probabilities="probabilities.npy", partitions=partitions)) == 10


def test_rows_that_are_there_already_are_not_represented_again(rows):
    np.save("there.npy", rows[:150])
    expected = smdl.select(rows, size=10, away_from=rows[:150], seed=(0, 0, 0))
    found = chosen(away_from="there.npy", partitions=1)
    assert found == expected.indices.tolist()
    assert found != chosen(partitions=1)


@pytest.mark.parametrize("partitions", [1, 3])
def test_chosen_rows_keep_to_the_budget(rows, partitions):
    costs = 1.0 + np.arange(300) % 5
    np.save("costs.npy", costs)
    found = chosen(size=None, costs="costs.npy", budget=20.5, partitions=partitions)
    assert 16 < costs[found].sum() <= 20.5, "no row of the highest cost would fit"
    if partitions == 1:
        expected = smdl.select(rows, "facility_location", costs=costs, budget=20.5, seed=(0, 0, 0))
        assert found == expected.indices.tolist()


def test_a_merge_sums_similarities_over_its_reference_alone():
    objective = smdl.Objective(facility_location=1.0, redundancy=0.5)
    assert merge_objective(objective, 300, 300) == objective
    assert merge_objective(objective, 100, 300) == objective.changed(sample=100)
    for other in (smdl.Objective(redundancy=1.0), smdl.Objective(facility_location=1.0, neighbours=5)):
        assert merge_objective(other, 100, 300) == other


@pytest.mark.parametrize("partitions", [1, 3])
def test_the_choice_is_about_the_query(rows, partitions):
    query = rows[(rows[:, 0] > 3)] + np.float32(1 / 16)
    np.save("query.npy", query)
    found, plain = chosen(query="query.npy", partitions=partitions), chosen(partitions=partitions)
    assert rows[found, 0].mean() > rows[plain, 0].mean() + 1
    if partitions == 1:
        expected = smdl.select(smdl.Pool(rows, query=query), "facility_location", 10, seed=(0, 0, 0))
        assert found == expected.indices.tolist()


def test_a_size_that_the_quotas_do_not_allow_is_said(capsys):
    np.save("quota.npy", np.arange(12, dtype=np.float32).reshape(6, 2))
    np.save("half.npy", np.arange(6) % 2)
    command = ["select", "quota.npy", "--groups", "half.npy", "--per_group", "1", "--quiet"]
    main([*command, "--size", "4", "--out", "few.npy"])
    assert "--size asks for 4 rows; --per_group and --budget allow no more than 2" in capsys.readouterr().out
    main([*command, "--size", "2", "--out", "two.npy"])
    assert "asks for" not in capsys.readouterr().out


@pytest.mark.parametrize("partitions", [1, 2])
def test_the_recall_of_a_graph_of_neighbours_is_in_the_report(partitions):
    for name, options, recall in (("graph", {"neighbours": 5}, 1.0), ("all", {}, None)):
        chosen(f"{name}.npy", size=4, partitions=partitions, objective={"facility_location": 1.0, **options})
        found = read_json(Path(f"{name}.select/selection.json"))
        assert found is not None
        assert found["recall"] == recall
    assert "recall of a graph" in render_selection(Path("graph.select")).read_text()
    assert "recall of a graph" not in render_selection(Path("all.select")).read_text()
