"""--engine ray: the rows of the one-machine run, also if a worker process dies in the middle."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from smdl.cli import main
from smdl.offline import engines
from smdl.offline.choose import Chooser
from smdl.offline.job import Job
from smdl.offline.request import Request
from smdl.training.progress import Display

pytestmark = [
    pytest.mark.integrations,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("cluster", "rows"),
]
ray = pytest.importorskip("ray")
ORIGINAL = Job.run


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two workers on this machine. The engine uses a cluster that runs already."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def chosen(out, engine, **options):
    request = Request(inputs=("shards",), size=10, partitions=5, out=Path(out), engine=engine, **options)
    Chooser(request).run(Display())
    return np.load(out).tolist()


def test_ray_chooses_the_rows_of_one_machine():
    assert chosen("ray.npy", "ray") == chosen("local.npy", "local")
    assert chosen("ray.npy", "ray", seed=1) != chosen("local.npy", "local")


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


def dying(job, level, number, candidates=()):
    """Kill the worker process in the middle of part 2, the first two times."""
    deaths = sorted(Path.cwd().glob("death-*"))
    if (level, number) == (0, 2) and len(deaths) < 2:
        Path(f"death-{len(deaths)}").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return ORIGINAL(job, level, number, candidates)


def test_a_worker_that_is_killed_in_the_middle_changes_nothing(monkeypatch):
    expected = chosen("local.npy", "local")
    monkeypatch.setattr(Job, "run", dying)
    assert chosen("ray.npy", "ray") == expected
    assert len(list(Path.cwd().glob("death-*"))) == 2


def test_an_error_in_a_task_is_one_line(capsys):
    broken = np.load("shards/1.npy")
    broken[4] = np.nan
    np.save("shards/1.npy", broken)
    assert main(["select", "shards", "--size", "5", "--engine", "ray", "--quiet"]) == 2
    assert "shards/1.npy row 4" in capsys.readouterr().err
    Path("shards/1.npy").write_bytes(Path("shards/1.npy").read_bytes()[:-9])
    assert main(["select", "shards", "--size", "5", "--engine", "ray", "--quiet"]) == 2
    assert "shards/1.npy cannot be read: mmap length" in capsys.readouterr().err
