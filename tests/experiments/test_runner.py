"""Every run is trained once, by one process, and what goes wrong with one is not the others' affair."""

import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from smdl.experiments import runner
from smdl.experiments.runner import run_name
from smdl.training.config import to_dict
from smdl.training.files import locked, read_json, read_lines, write_json
from smdl.training.loop import Interrupted
from smdl.training.progress import Silent
from tests.experiments.base import BASE, UNIFORM


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.jsonl"])
def test_a_run_with_a_damaged_checkpoint_is_trained_again_to_the_same_end(tmp_path, name, monkeypatch):
    folders = [tmp_path / where / run_name(UNIFORM) for where in ("whole", "broken")]
    runner.train_one(to_dict(UNIFORM), folders[0])
    with monkeypatch.context() as patch:
        patch.setattr(runner.Run, "_finish", lambda *_: {})  # stopped before its end
        runner.train_one(to_dict(UNIFORM), folders[1])
    (folders[1] / name).write_text("garbage")
    runner.train_one(to_dict(UNIFORM), folders[1])
    ends = [read_lines(folder / "metrics.jsonl")[-1]["test_loss"] for folder in folders]
    assert ends[0] == ends[1]
    assert runner.finished(folders[1])


def test_weights_that_blow_up_in_the_last_step_are_a_run_that_diverged(tmp_path):
    config = replace(UNIFORM, steps=1, optimizer=replace(BASE.optimizer, lr=1e30))
    folder = tmp_path / run_name(config)
    runner.train_one(to_dict(config), folder)
    assert re.search(r"(test|train)_loss is (nan|inf)", read_json(folder / "failed.json")["error"])


@pytest.mark.slow
def test_workers_end_with_a_main_process_that_is_killed(tmp_path):
    code = f"""
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from smdl.experiments import runner
from smdl.experiments.arms import overrides_of, with_overrides
from smdl.training.config import TrainConfig, to_dict
if __name__ == "__main__":
    pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=runner._worker_init)
    values = to_dict(with_overrides(TrainConfig(epochs=100_000, threads=1), overrides_of("uniform")))
    pool.submit(runner.train_one, values, Path({str(tmp_path / "run")!r})).result()
"""
    (tmp_path / "main.py").write_text(code)
    process = subprocess.Popen([sys.executable, str(tmp_path / "main.py")])
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "metrics.jsonl").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    freed = threading.Thread(target=lambda: locked(tmp_path / "run", wait=True).__enter__(), daemon=True)
    freed.start()
    freed.join(60)
    assert not freed.is_alive(), "a worker still has its folder"


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
    evaluate = runner.Run.evaluate

    def signalled(self):
        if self.epoch == BASE.epochs - 1:
            signal.raise_signal(signal.SIGINT)
        return evaluate(self)

    monkeypatch.setattr(runner.Run, "evaluate", signalled)
    configs = {tmp_path / str(seed): replace(UNIFORM, seed=seed) for seed in range(3)}
    with pytest.raises(Interrupted, match="the same command again"):
        runner.run_all(configs, 1, Silent())
    assert [runner.finished(folder) for folder in configs] == [True, False, False]


def test_an_interruption_travels_between_processes():
    there = pickle.loads(pickle.dumps(Interrupted(15, "the same command")))
    assert there.number == 15
    assert str(there) == str(Interrupted(15, "the same command"))
