"""Every run is trained once, by one process, and what goes wrong with one is not the others' affair."""

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from smdl.common.progress import Display
from smdl.common.storage import locked, read_json, write_json
from smdl.experiments import runner
from smdl.experiments.arms import overrides_of
from smdl.experiments.comparison_plan import ComparisonPlan
from smdl.experiments.experiment import run_plan
from smdl.experiments.results import collect
from smdl.experiments.runner import GRACE, run_name
from smdl.training.config import to_dict
from smdl.training.loop import Interrupted
from tests.experiments.base import BASE, UNIFORM
from tests.faults import EXPERIMENT_OPERATIONS, Killed, killed_at
from tests.report.made import read_lines


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.jsonl"])
def test_a_run_with_a_damaged_checkpoint_is_trained_again_to_the_same_end(tmp_path, name, monkeypatch):
    folders = [tmp_path / where / run_name(UNIFORM) for where in ("whole", "broken")]
    runner.train_one(to_dict(UNIFORM), folders[0])
    with monkeypatch.context() as patch:
        patch.setattr("smdl.training.loop.write_results", lambda _: {})  # stopped before its end
        runner.train_one(to_dict(UNIFORM), folders[1])
    (folders[1] / name).write_text("garbage")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        runner.train_one(to_dict(UNIFORM), folders[1])
    said = r"checkpoint\.pt is damaged.*\. The run is trained again from its start"
    assert [bool(re.search(said, str(each.message))) for each in caught] == [True] * (name == "checkpoint.pt")
    ends = [read_lines(folder / "metrics.jsonl")[-1]["test_loss"] for folder in folders]
    assert ends[0] == ends[1]
    assert runner.finished(folders[1])


def test_weights_that_blow_up_in_the_last_step_are_a_run_that_diverged(tmp_path):
    config = replace(UNIFORM, steps=1, optimizer=replace(BASE.optimizer, lr=1e30))
    folder = tmp_path / run_name(config)
    runner.train_one(to_dict(config), folder)
    assert re.search(r"(test|train)_loss is (nan|inf)", read_json(folder / "failed.json")["error"])


def test_a_folder_in_the_place_of_a_checkpoint_is_named(tmp_path):
    (tmp_path / "checkpoint.pt").mkdir()
    with (
        pytest.warns(UserWarning, match="cannot be read: Is a directory"),
        pytest.raises(OSError, match=r"checkpoint\.pt cannot be written: there is a folder of that name"),
    ):
        runner.train_one(to_dict(UNIFORM), tmp_path)


def damage(results) -> list[str]:
    """The problems of an experiment, but for runs that are too short to learn."""
    return [problem for problem in results.problems if "chance level" not in problem]


@pytest.mark.slow
def test_an_experiment_killed_at_any_file_operation_ends_with_the_same_result(tmp_path):
    def run(folder):
        arms = {name: overrides_of(name) for name in ("uniform", "loss")}
        plan = ComparisonPlan("", to_dict(replace(BASE, epochs=1)), arms, seeds=1, protocols=["steps"], timed=False)
        found = collect(run_plan(plan, folder / "e").folder)
        assert os.listdir(folder) == ["e"], "the folder of the killed command is used"
        assert damage(found) == []
        return [(run.arm, run.epochs[-1]["test_loss"]) for run in found.runs]

    (tmp_path / "whole").mkdir()
    with killed_at(tmp_path / "whole", None) as disk:
        whole = run(tmp_path / "whole")
    assert len(disk.done) == EXPERIMENT_OPERATIONS
    for at in range(EXPERIMENT_OPERATIONS):
        (tmp_path / str(at)).mkdir()
        with pytest.raises(Killed), killed_at(tmp_path / str(at), at):
            run(tmp_path / str(at))
        assert run(tmp_path / str(at)) == whole


def processes(parent):
    """The processes that a process has started, and those that they have started."""
    children = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        children += [int(child) for child in (task / "children").read_text().split()]
    return children + [each for child in children for each in processes(child)]


def alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


COMPARE = [
    *("compare", "--methods=uniform,loss", "--protocols=steps", "--seeds=1", "--jobs=2", "--out=e", "--quiet"),
    *("--data.train_size=400", "--data.test_size=100", "--model.name=mlp", "--batch_size=2", "--epochs=12"),
]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are found in /proc")
def test_a_comparison_that_is_killed_leaves_no_process_and_is_resumed(tmp_path):
    options: Any = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}, "text": True}
    command = [sys.executable, "-m", "smdl", *COMPARE]
    main = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)

    def both_train():
        assert main.poll() is None
        return len(list(tmp_path.glob("e/runs/*/metrics.jsonl"))) == 2

    until(both_train, 300)
    workers = processes(main.pid)
    assert len(workers) >= 2
    main.kill()
    main.wait()
    until(lambda: not any(map(alive, workers)), GRACE + 5)
    output = main.communicate(timeout=5)[0]  # it ends when no process has the pipe
    assert "Traceback" not in output
    assert not list(tmp_path.glob("e/runs/*/summary.json")), "it was killed before an end"
    again = subprocess.run(command, capture_output=True, timeout=300, **options)
    assert "report: " in again.stdout, again.stderr
    assert damage(collect(tmp_path / "e")) == []
    assert len(list(tmp_path.glob("e/runs/*/summary.json"))) == 2
    assert not (tmp_path / "e-2").exists()


WORKERS = """
import multiprocessing, os, signal, sys, time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from smdl.experiments import runner
from smdl.experiments.arms import overrides_of, with_overrides
from smdl.training.config import TrainConfig, to_dict

def hang(folder):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / "hangs").touch()
    time.sleep(3600)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    pool = ProcessPoolExecutor(3, multiprocessing.get_context("spawn"), initializer=runner._worker_init)
    pool.submit(hang, folder)
    values = to_dict(with_overrides(TrainConfig(epochs=100_000, threads=1), overrides_of("uniform")))
    training = pool.submit(runner.train_one, values, folder / "run")
    pool.submit(os.getpid).result()
    (folder / "idle").touch()
    training.result()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are found in /proc")
def test_workers_that_train_hang_or_wait_end_with_a_main_process_that_is_killed(tmp_path):
    (tmp_path / "main.py").write_text(WORKERS)
    main = subprocess.Popen([sys.executable, str(tmp_path / "main.py"), str(tmp_path)])

    def all_started():
        assert main.poll() is None
        return all((tmp_path / name).exists() for name in ("hangs", "idle", "run/checkpoint.pt"))

    until(all_started, 300)
    workers = processes(main.pid)
    assert len(workers) >= 3
    main.kill()
    main.wait()
    until(lambda: not any(map(alive, workers)), GRACE + 5)
    with locked(tmp_path / "run"):
        pass


def test_a_run_that_another_command_trains_is_waited_for_and_not_trained_again(tmp_path, monkeypatch):
    asked = threading.Event()

    def waits(folder, wait=False):
        asked.set()
        return locked(folder, wait)

    monkeypatch.setattr(runner, "locked", waits)
    with locked(tmp_path):
        waiting = threading.Thread(target=runner.train_one, args=(to_dict(UNIFORM), tmp_path))
        waiting.start()
        assert asked.wait(30)
        assert waiting.is_alive()
        write_json(tmp_path / "summary.json", {"environment": {}})
    waiting.join(30)
    assert not waiting.is_alive()
    assert not (tmp_path / "config.yaml").exists(), "nothing was trained"


def test_a_signal_in_the_last_evaluation_finishes_the_run_and_stops_the_experiment(tmp_path, monkeypatch):
    evaluate = runner.TrainingRun.evaluate

    def signalled(self):
        if self.epoch == BASE.epochs - 1:
            signal.raise_signal(signal.SIGINT)
        return evaluate(self)

    monkeypatch.setattr(runner.TrainingRun, "evaluate", signalled)
    configs = {tmp_path / str(seed): runner.job_of(replace(UNIFORM, seed=seed)) for seed in range(3)}
    with pytest.raises(Interrupted, match="the same command again"):
        runner.run_all(configs, 1, Display())
    assert [runner.finished(folder) for folder in configs] == [True, False, False]


def test_an_interruption_travels_between_processes():
    there = pickle.loads(pickle.dumps(Interrupted(15, "the same command")))
    assert there.number == 15
    assert str(there) == str(Interrupted(15, "the same command"))
