"""--engine ray: the rows of the one-machine run, also if a worker process dies in the middle."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smdl.cli.commands import main
from smdl.common.progress import Display
from smdl.engine import similar_pairs
from smdl.engine.greedy import subset
from smdl.files import choose, embedding, engines, file_plan, sampled_choice
from smdl.files.choose import Chooser
from smdl.files.dedup import Deduplicator, DedupRequest
from smdl.files.job import Job
from smdl.files.request import SelectRequest
from tests.files.test_sampled_choice import make_small
from tests.files.test_text import TEXTS, ToyModel

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("cluster", "rows"),
]
ray = pytest.importorskip("ray")
cloudpickle = pytest.importorskip("cloudpickle")
ORIGINAL, LIST, READ = Job.run, sampled_choice._list, sampled_choice._read_file
COMPARE = similar_pairs._compare


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two workers on this machine. The engine uses a cluster that runs already."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def chosen(out, engine, **options):
    given = {"inputs": ("shards",), "size": 10, "partitions": 5, **options}
    Chooser(SelectRequest(out=Path(out), engine=engine, **given)).run(Display())
    return np.load(out).tolist()


def test_ray_chooses_the_rows_of_one_machine():
    assert chosen("ray.npy", "ray") == chosen("local.npy", "local")
    assert chosen("ray.npy", "ray", seed=1) != chosen("local.npy", "local")
    np.save("utility.npy", np.arange(300) % 7)
    np.save("groups.npy", np.arange(300) % 3)
    options = {"utility": "utility.npy", "groups": "groups.npy", "shares": "uniform", "away_from": "shards/0.npy"}
    options["objective"] = {"facility_location": 1.0, "utility": 0.05}
    assert chosen("ray.npy", "ray", **options) == chosen("local.npy", "local", **options)
    important = {"importance": "utility.npy"}
    assert chosen("ray.npy", "ray", **important) == chosen("local.npy", "local", **important)
    assert chosen("local.npy", "local", **important) != chosen("local.npy", "local")


def test_a_merge_in_levels_gives_the_rows_of_one_machine(monkeypatch):
    monkeypatch.setattr(choose, "make_plan", lambda *arguments: file_plan.make_plan(*arguments, part_rows=30))
    assert chosen("ray.npy", "ray", partitions=7) == chosen("local.npy", "local", partitions=7)
    assert Path("ray.select/part-1-2").exists(), "the seven parts are merged to three, and then to one"
    assert Path("ray.select/part-2-0").exists()


def test_files_are_read_in_the_process_of_the_task(monkeypatch):
    monkeypatch.setattr(Job, "run", noting)
    url = f"file://{Path.cwd()}/shards/*.npy"  # also by fsspec
    assert chosen("ray.npy", "ray", inputs=(url,)) == chosen("local.npy", "local")
    readers = {path.name for path in Path.cwd().glob("reader-*")}
    assert len(readers) > 1, "one is this process, by the engine local"
    assert f"reader-{os.getpid()}" in readers


def test_only_row_numbers_and_gains_travel(monkeypatch):
    """What a task is given and what it returns does not grow with the width of the rows or with their number."""
    sizes = []

    def run(self, function, shared, tasks, run=engines.Ray.run):
        sizes.extend(len(cloudpickle.dumps(part)) for part in (shared, *tasks.values()))
        for name, result in run(self, function, shared, tasks):
            sizes.append(len(cloudpickle.dumps(result)))
            yield name, result

    monkeypatch.setattr(engines.Ray, "run", run)
    found = {}
    for width in (4, 400):
        np.save("wide.npy", np.random.default_rng(0).normal(size=(3000, width)))
        sizes.clear()
        chosen("ray.npy", "ray", inputs=("wide.npy",))
        found[width] = max(sizes)
    assert found[400] < found[4] + 100
    assert found[400] < 5000, "the rows have 9.6 MB"


def test_texts_are_embedded_once_and_the_tasks_read_the_embeddings(monkeypatch):
    monkeypatch.setattr(embedding, "TextModel", ToyModel)
    pq.write_table(pa.table({"body": TEXTS}), "texts.parquet")
    options = {"inputs": ("texts.parquet",), "text": "body", "model": "toy", "partitions": 3}
    assert chosen("ray.npy", "ray", **options) == chosen("local.npy", "local", **options)


def test_results_of_one_engine_resume_on_the_other(monkeypatch):
    expected = chosen("chosen.npy", "local")
    Path("chosen.select/part-1-0").unlink()
    Path("chosen.select/part-0-3").unlink()
    started = []
    monkeypatch.setattr(
        engines.Ray, "run", lambda self, function, shared, tasks, run=engines.Ray.run: (
            started.extend(tasks), run(self, function, shared, tasks)
        )[1],
    )  # fmt: skip
    assert chosen("chosen.npy", "ray") == expected
    assert started == [0, 1, 2, 3, 0], "three files to check, then part 3 and the merge"


def noting(job, level, number, *merged):
    """Leave a file with the number of the process."""
    Path(f"reader-{os.getpid()}").touch()
    return ORIGINAL(job, level, number, *merged)


def dying(job, level, number, *merged):
    """Kill the worker process in the middle of part 2, the first two times."""
    deaths = sorted(Path.cwd().glob("death-*"))
    if (level, number) == (0, 2) and len(deaths) < 2:
        Path(f"death-{len(deaths)}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ORIGINAL(job, level, number, *merged)


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(monkeypatch):
    expected = chosen("local.npy", "local")
    monkeypatch.setattr(Job, "run", dying)
    assert chosen("ray.npy", "ray") == expected
    assert len(list(Path.cwd().glob("death-*"))) == 2


def dying_list(shared, coverage, candidates):
    """Kill the worker process in the middle of the lists, the first two times."""
    deaths = len(list(Path.cwd().glob("death-*")))
    if len(list(Path.cwd().glob("list-*"))) >= 3 and deaths < 2:
        Path(f"death-{deaths}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    Path(f"list-{os.getpid()}-{time.monotonic_ns()}").touch()
    return LIST(shared, coverage, candidates)


def test_random_candidates_give_the_rows_of_one_machine_also_if_a_worker_is_killed(monkeypatch):
    make_small(monkeypatch)
    monkeypatch.setattr(subset, "ENTRIES", 900)  # several stages of many small tasks
    expected = chosen("local.npy", "local", partitions=None)
    assert expected != chosen("parts.npy", "local")
    assert chosen("ray.npy", "ray", partitions=None) == expected
    monkeypatch.setattr(sampled_choice, "_list", dying_list)
    assert chosen("killed.npy", "ray", partitions=None) == expected
    assert len(list(Path.cwd().glob("death-*"))) == 2
    assert len({path.name.split("-")[1] for path in Path.cwd().glob("list-*")}) > 1, "several processes"


def vanishing(source, number, rows, stamp):
    Path("shards/2.npy").unlink(missing_ok=True)
    return READ(source, number, rows, stamp)


def rewritten(source, number, rows, stamp):
    path = Path("shards/2.npy")
    os.utime(path, (1, 1))
    return READ(source, number, rows, stamp)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (vanishing, r"shards/2\.npy cannot be read: No such file"),
        (rewritten, r"shards/2\.npy has changed since the command started: start it again"),
    ],
)
def test_a_file_that_vanishes_or_changes_under_a_task_is_named(monkeypatch, read, message):
    make_small(monkeypatch)
    monkeypatch.setattr(sampled_choice, "_read_file", read)
    with pytest.raises(ValueError, match=message):
        chosen("ray.npy", "ray", partitions=None)
    assert not Path("ray.npy").exists()


def slow_list(shared, coverage, candidates):
    """Every other list comes late: tasks end in another order than they began."""
    time.sleep(0.05 * (candidates[0] % 2))
    return LIST(shared, coverage, candidates)


def slow_run(job, level, number, *merged):
    time.sleep(0.3 if (level, number) == (0, 0) else 0)
    return ORIGINAL(job, level, number, *merged)


def test_a_slow_worker_changes_nothing(monkeypatch):
    parts = chosen("local.npy", "local")
    monkeypatch.setattr(Job, "run", slow_run)
    assert chosen("ray.npy", "ray") == parts
    make_small(monkeypatch)
    monkeypatch.setattr(subset, "ENTRIES", 900)
    sampled = chosen("local.npy", "local", partitions=None)
    monkeypatch.setattr(sampled_choice, "_list", slow_list)
    assert chosen("slow.npy", "ray", partitions=None) == sampled


def test_every_error_of_ray_is_one_line(monkeypatch, capsys):
    def get(_):
        raise ray.exceptions.ObjectLostError("ab" * 28, None, "call")

    with monkeypatch.context() as patch:
        patch.setattr(ray, "get", get)
        assert main(["select", "shards", "--size", "5", "--engine", "ray", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "--engine ray: ObjectLostError: " in error
    assert error.count("\n") == 1


def test_an_error_in_a_task_is_one_line(capsys):
    broken = np.load("shards/1.npy")
    broken[4] = np.nan
    np.save("shards/1.npy", broken)
    assert main(["select", "shards", "--size", "5", "--engine", "ray", "--quiet"]) == 2
    assert "shards/1.npy row 4" in capsys.readouterr().err
    Path("shards/1.npy").write_bytes(Path("shards/1.npy").read_bytes()[:-9])
    assert main(["select", "shards", "--size", "5", "--engine", "ray", "--quiet"]) == 2
    error = capsys.readouterr().err
    assert "shards/1.npy cannot be read: features of shape" in error
    assert error.count("\n") == 1


def kept(out, engine, **options):
    """Return what smdl dedup writes, without the places in files."""
    given = {"inputs": ("pile",), "similarity": 0.97, **options}
    found = Deduplicator(DedupRequest(out=Path(out), engine=engine, **given)).run(Display())
    return pq.read_table(out).drop_columns(["shard", "row"]).to_pydict(), found["recall"], found["curve"]


@pytest.fixture
def pile(rows, monkeypatch):  # noqa: ARG001
    """600 rows in three files, 200 of them near-copies of others. The search has many small tasks."""
    rng = np.random.default_rng(1)
    values = rng.normal(size=(600, 12)).astype(np.float32)
    values[400:] = values[rng.integers(400, size=200)] + 0.05 * rng.normal(size=(200, 12)).astype(np.float32)
    values[599] = values[0]
    Path("pile").mkdir()
    for number, part in enumerate(np.split(rng.permutation(values), [100, 350])):
        np.save(f"pile/{number}.npy", part)
    for name, value in (("BLOCK", 64), ("OTHERS", 128), ("TASK", 5000)):
        monkeypatch.setattr(similar_pairs, name, value)
    return values


@pytest.mark.parametrize("cells", [False, True])
def test_near_copies_are_those_of_one_machine(pile, monkeypatch, cells):
    if cells:
        monkeypatch.setattr(similar_pairs, "EXACT_ROWS", 100)
        monkeypatch.setattr(similar_pairs, "_all_pairs", lambda *_: iter(()))
    expected = kept("local.parquet", "local")
    assert expected[0]["kept"].count(False) > 150
    assert kept("ray.parquet", "ray") == expected
    pq.write_table(pa.table({"X": list(np.concatenate([np.load(f"pile/{n}.npy") for n in range(3)]))}), "pile.parquet")
    assert kept("table.parquet", "ray", inputs=("pile.parquet",)) == expected
    np.save("test.npy", pile[::50])
    leaks = kept("local.parquet", "local", against=("test.npy",))
    assert len(set(leaks[0]["copy_of_against"])) > 10
    assert kept("ray.parquet", "ray", against=("test.npy",)) == leaks


def dying_compare(rows, components, floor, slack, blocks):
    """Kill the worker process in the middle of the comparisons, once."""
    if blocks[-1].done > 10 and not Path("death").exists():
        Path("death").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    Path(f"compared-{os.getpid()}").touch()
    return COMPARE(rows, components, floor, slack, blocks)


@pytest.mark.usefixtures("pile")
def test_near_copies_survive_a_worker_that_is_killed(monkeypatch):
    expected = kept("local.parquet", "local")
    monkeypatch.setattr(similar_pairs, "_compare", dying_compare)
    assert kept("ray.parquet", "ray") == expected
    assert Path("death").exists()
    assert len(list(Path.cwd().glob("compared-*"))) > 1, "several processes"


def test_a_search_sends_components_and_returns_short_lists(rows, monkeypatch):
    """Rows of local arrays are read by the tasks. A million pairs of rows that are all alike stay in the workers."""
    sent, returned = [], []

    def hold(self, value, hold=engines.Ray.hold):
        sent.append(0 if isinstance(value, ray.ObjectRef) else len(cloudpickle.dumps(value)))
        return hold(self, value)

    def result(self, reference, result=engines.Ray._result):
        returned.append(len(cloudpickle.dumps(found := result(self, reference))))
        return found

    monkeypatch.setattr(engines.Ray, "hold", hold)
    monkeypatch.setattr(engines.Ray, "_result", result)
    wide = np.repeat(rows[:1], 1500, axis=0).repeat(600, axis=1)
    wide += 0.001 * np.random.default_rng(0).normal(size=wide.shape).astype(np.float32)
    np.save("wide.npy", wide)
    kept("ray.parquet", "ray", inputs=("wide.npy",))
    assert sum(sent) < 1500 * (64 * 4 + 4 + 8) + 64 * 2400 * 4 + 50_000, "the rows have 14 MB"
    assert max(returned) < 1500 * 65 * 20 + 50_000
