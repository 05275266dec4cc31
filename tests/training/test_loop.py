"""A run trains, writes down what it did, and goes on after any interruption to the same result."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from smdl.common import storage
from smdl.common.progress import Display
from smdl.training import build, loop
from smdl.training.config import (
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    ScheduleConfig,
    TrainConfig,
)
from smdl.training.state import restore, state_of
from tests.faults import (
    EXITS_OF_RUNS,
    FULL_DISK_OPERATIONS,
    MUTATIONS,
    RUN_OPERATIONS,
    WRONG_VALUES,
    Killed,
    failing_disk,
    full,
    killed_at,
    mutated,
)
from tests.report.made import read_lines

SMALL = TrainConfig(
    data=DataConfig(train_size=130, test_size=60),
    model=ModelConfig("mlp", width=0.25),
    schedule=ScheduleConfig("cosine"),
    batch_size=20,
    epochs=3,
    train_evaluation=50,
)
RUNS = {
    "uniform": replace(SMALL, method="uniform"),
    "loss": replace(SMALL, method="loss"),
    "loss with recompute": replace(SMALL, method="loss", options={"recompute": True}),
    "recommended": SMALL,
    "observed": replace(SMALL, method="observed"),
    "fresh": replace(SMALL, method="fresh"),
    "paper": replace(SMALL, method="paper"),
    "paper in pools": replace(SMALL, method="paper", candidates={"kind": "random_pool", "factor": 2.5}),
    "whole dataset with replacement": replace(
        SMALL,
        method="observed",
        candidates={"kind": "full", "every": 3, "replacement": True},
        options={"optimizer": "stochastic"},
    ),
    "own weights": replace(
        SMALL, method="observed", objective={"uncertainty": 0.5, "redundancy": 0.5, "distance": "cosine"}
    ),
    "refitted": replace(SMALL, refit="classes"),
    "uniform, refitted": replace(SMALL, method="uniform", refit="errors"),
    "augmented convnet": replace(
        SMALL, model=ModelConfig("resnet8", width=0.25), data=replace(SMALL.data, augment=True), epochs=2
    ),
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))


def weights(folder):
    return load_file(folder / "model.safetensors")


def same(first, second):
    return all(torch.equal(first[name], second[name]) for name in first)


def metrics(folder):
    """Without the seconds, which no two runs share."""
    records = read_lines(folder / "metrics.jsonl")
    return [{name: value for name, value in record.items() if name != "seconds"} for record in records]


class Stop(Display):
    """Sends the process a signal at a step, as a user's Ctrl-C would."""

    def __init__(self, at, number=signal.SIGINT):
        self.left, self.number = at, number

    def step(self, what, done, total, detail=""):  # noqa: ARG002
        self.left -= what.startswith("epoch")
        if self.left == 0:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("first", [3, 7])  # the seventh step is the last of its epoch
@pytest.mark.parametrize("name", RUNS)
def test_a_run_interrupted_anywhere_ends_with_the_same_weights_and_metrics(name, first, tmp_path):
    config = RUNS[name]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    loop.train(config, whole)
    with pytest.raises(loop.Interrupted, match="smdl train --resume"):
        loop.train(config, parts, Stop(first))
    assert not (parts / "summary.json").exists()
    with pytest.raises(loop.Interrupted):
        loop.resume(parts, Stop(6, signal.SIGTERM))
    summary = loop.resume(parts)
    assert same(weights(whole), weights(parts))
    assert metrics(whole) == metrics(parts)
    assert summary["steps"] == json.loads((whole / "summary.json").read_text())["steps"]
    assert np.array_equal(np.load(whole / "counts.npy"), np.load(parts / "counts.npy"))


@pytest.mark.parametrize("name", RUNS)
def test_every_method_gives_the_promised_batches_and_learns(name, tmp_path):
    config = replace(RUNS[name], data=replace(RUNS[name].data, train_size=300, test_size=200), epochs=4)
    summary = loop.train(config, tmp_path / "run")
    records = metrics(tmp_path / "run")
    assert [record["samples"] for record in records] == [300] * 4, "an epoch is |V| samples"
    assert [record["steps"] for record in records] == [15, 30, 45, 60]
    assert sum(np.load(tmp_path / "run" / "counts.npy")) == 1200
    assert sum(records[-1]["class_counts"]) == 300
    assert records[-1]["train_loss"] < records[0]["train_loss"]
    assert summary["final"]["test_error"] < 0.7, "chance is 0.9"
    assert records[-1]["lr"] < 0.01, "the schedule is decayed within the run"


def test_the_extra_forward_passes_are_counted(tmp_path):
    forwards = {
        name: loop.train(RUNS[name], tmp_path / name)["forwards"] for name in ("uniform", "observed", "fresh", "paper")
    }
    assert forwards["uniform"] == forwards["observed"] == 0
    assert forwards["fresh"] == 3 * 3 * 130, "three times the batch at every step"
    assert forwards["paper"] == 3 * 2 * 130, "all of V at steps 0 and 5 of the seven of an epoch"


def test_the_seed_decides_everything(tmp_path):
    for out, seed in (("a", 0), ("b", 0), ("c", 1)):
        loop.train(replace(SMALL, seed=seed), tmp_path / out)
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    assert not same(weights(tmp_path / "a"), weights(tmp_path / "c"))


def test_training_leaves_the_callers_random_numbers_and_signals_alone(tmp_path):
    before, handler = torch.get_rng_state(), signal.getsignal(signal.SIGINT)
    loop.train(SMALL, tmp_path / "run")
    assert torch.equal(torch.get_rng_state(), before)
    assert signal.getsignal(signal.SIGINT) is handler


@pytest.mark.slow
@pytest.mark.parametrize("method", ["observed", "paper"])
def test_a_run_killed_mid_epoch_resumes_to_identical_weights(method, tmp_path):
    """SIGKILL: no handler, no goodbye."""
    config = replace(
        SMALL,
        method=method,
        data=replace(SMALL.data, train_size=600),
        batch_size=2,
        epochs=4,
    )
    loop.train(config, tmp_path / "whole")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(loop.to_dict(config)))
    command = [sys.executable, "-m", "smdl", "train", "--config", "config.yaml", "--out", "killed"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "killed" / "checkpoint.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "killed" / "summary.json").exists(), "it was killed before its end"
    loop.resume(tmp_path / "killed")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "killed"))
    assert metrics(tmp_path / "whole") == metrics(tmp_path / "killed")


TWO_EPOCHS = replace(SMALL, method="paper", epochs=2)


def check_equal(one, other):
    assert same(weights(one), weights(other))
    assert metrics(one) == metrics(other)
    assert np.array_equal(np.load(one / "counts.npy"), np.load(other / "counts.npy"))
    assert sorted(os.listdir(one)) == sorted(os.listdir(other)), "nothing is missing, and no part is left"


def finish(config, folder):
    """What a user would do after a kill: resume, or start the same command again where there is nothing to resume."""
    if (folder / "config.yaml").exists():
        return loop.resume(folder)
    if folder.exists():
        with pytest.raises(ValueError, match=f"it has no config.yaml. To start a run there, use --out {folder}"):
            loop.resume(folder)
    summary = loop.train(config, folder)
    assert summary["folder"] == str(folder)
    return summary


@pytest.mark.slow
def test_a_run_killed_at_any_file_operation_ends_with_the_same_result(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "0" / "cache"))
    (tmp_path / "0").mkdir()
    with killed_at(tmp_path / "0", None) as disk:
        loop.train(TWO_EPOCHS, tmp_path / "0" / "run")
    assert len(disk.done) == RUN_OPERATIONS
    for at in range(RUN_OPERATIONS):
        top = tmp_path / str(at + 1)
        top.mkdir()
        monkeypatch.setenv("SMDL_CACHE", str(top / "cache"))
        with pytest.raises(Killed), killed_at(top, at):
            loop.train(TWO_EPOCHS, top / "run")
        finish(TWO_EPOCHS, top / "run")
        check_equal(top / "run", tmp_path / "0" / "run")


@pytest.mark.slow
def test_a_disk_that_is_full_at_any_file_operation_loses_nothing(tmp_path):
    config = replace(TWO_EPOCHS, method="uniform")
    with failing_disk(tmp_path / "0", None, full) as disk:
        loop.train(config, tmp_path / "0")
    assert len(disk.done) == FULL_DISK_OPERATIONS
    for at, operation in enumerate(disk.done):
        folder = tmp_path / str(at + 1)
        with pytest.raises(storage.DiskError) as raised, failing_disk(folder, at, full):
            loop.train(config, folder)
        name = re.sub(r"^\.(.*)\.\d+\.\d+\.part$", r"\1", operation.rpartition("/")[2])
        path = folder / name if "/" in operation and name != ".lock" else folder
        assert str(raised.value) == f"{path} cannot be written: the disk is full. What was written before is intact"
        finish(config, folder)
        check_equal(folder, tmp_path / "0")


#: Each run in a process of its own. They are forks of one that has imported torch, which takes seconds.
EXIT = """
import os, sys
from pathlib import Path
from tests import faults
from tests.training.test_loop import TWO_EPOCHS
from smdl.training import loop
for place in sys.argv[2:]:
    process = os.fork()
    if process == 0:
        folder = Path(sys.argv[1]) / place
        with faults.failing_disk(folder, int(place), lambda _: os._exit(9)):
            loop.train(TWO_EPOCHS, folder)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""


@pytest.mark.slow
def test_a_process_that_exits_at_a_file_operation_leaves_a_run_that_can_be_resumed(tmp_path):
    with killed_at(tmp_path / "whole", None) as disk:
        loop.train(TWO_EPOCHS, tmp_path / "whole")
    before = ("open /.config.yaml", "os.rename /.checkpoint.pt", "os.rename /.summary.json")
    places = [next(at for at, done in enumerate(disk.done) if done.startswith(name)) for name in before]
    assert len(places) == EXITS_OF_RUNS
    command = [sys.executable, "-c", EXIT, str(tmp_path), *map(str, places)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, timeout=600, capture_output=True, text=True)
    assert ended.stdout.split() == ["9"] * EXITS_OF_RUNS, ended.stderr
    for at in places:
        folder = tmp_path / str(at)
        assert list(folder.glob(".*.part")) or at == places[0]
        finish(TWO_EPOCHS, folder)
        check_equal(folder, tmp_path / "whole")


def test_a_folder_that_exists_is_left_alone(tmp_path):
    first = loop.train(SMALL, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    second = loop.train(SMALL, tmp_path / "run")
    assert (first["folder"], second["folder"]) == (str(tmp_path / "run"), str(tmp_path / "run-2"))
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_a_finished_run_a_foreign_folder_and_a_damaged_checkpoint_are_not_resumed(tmp_path):
    with pytest.raises(ValueError, match=f"is not the folder of a run.*use --out {tmp_path}"):
        loop.resume(tmp_path)
    loop.train(SMALL, tmp_path / "run")
    with pytest.raises(ValueError, match="finished"):
        loop.resume(tmp_path / "run")
    path = tmp_path / "run" / "summary.json"
    summary = storage.read_json(path)
    assert summary["metrics_sha256"] == storage.digest(tmp_path / "run" / "metrics.jsonl")
    path.write_text(path.read_text().replace('"epochs": 3', '"epochs": 2'))
    assert storage.read_json(path) is None
    loop.resume(tmp_path / "run")
    assert storage.read_json(path) == summary, "a damaged summary is written again"
    path.unlink()
    (tmp_path / "run" / "checkpoint.pt").write_bytes(b"?")
    with pytest.raises(
        ValueError, match=r"run/checkpoint\.pt is damaged.*\. Delete .*run/checkpoint\.pt to train the run again"
    ):
        loop.resume(tmp_path / "run")
    before = weights(tmp_path / "run")
    (tmp_path / "run" / "checkpoint.pt").unlink()
    loop.resume(tmp_path / "run")
    assert same(weights(tmp_path / "run"), before)


@pytest.mark.parametrize("method", ["uniform", "observed"])
def test_a_loss_that_is_no_number_stops_the_run_with_the_step_the_rate_and_the_checkpoint(method, tmp_path):
    config = replace(SMALL, method=method, optimizer=OptimizerConfig(lr=1e38), schedule=ScheduleConfig())
    with pytest.raises(loop.DivergedError, match=r"at step \d+ .*learning rate 1e\+38.*checkpoint"):
        loop.train(config, tmp_path / "run")


def test_a_budget_of_steps_cuts_the_last_epoch_and_decays_within_it(tmp_path):
    loop.train(replace(SMALL, steps=10), tmp_path / "run")
    with pytest.raises(loop.Interrupted):
        loop.train(replace(SMALL, steps=10), tmp_path / "stopped at its last step", Stop(10))
    loop.resume(tmp_path / "stopped at its last step")
    records = metrics(tmp_path / "run")
    assert records == metrics(tmp_path / "stopped at its last step")
    assert [record["steps"] for record in records] == [7, 10]
    assert records[-1]["lr"] == pytest.approx(0.1 * loop.rate(SMALL.schedule, 0.9))


def test_the_validation_split_is_measured_and_not_trained_on(tmp_path):
    summary = loop.train(replace(SMALL, data=replace(SMALL.data, validation=0.2)), tmp_path / "run")
    assert 0 <= summary["final"]["validation_error"] <= 1
    assert len(np.load(tmp_path / "run" / "counts.npy")) == 104


def test_the_reference_model_is_trained_once_and_found_again(tmp_path, monkeypatch):
    loop.train(RUNS["paper"], tmp_path / "a")
    made = build.reference_features
    monkeypatch.setattr(build, "reference_features", None)
    loop.train(RUNS["paper"], tmp_path / "b")
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))
    monkeypatch.setattr(build, "reference_features", made)
    [kept] = (tmp_path / "cache" / "reference").iterdir()
    kept.write_bytes(b"damaged")
    with pytest.warns(UserWarning, match="computed again"):
        loop.train(RUNS["paper"], tmp_path / "c")
    assert same(weights(tmp_path / "a"), weights(tmp_path / "c"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch_size": 500}, "batch_size must be at most the dataset's 130 samples, got 500"),
        ({"method": "papper"}, "did you mean 'paper'"),
        ({"method": "uniform", "objective": {"redundancy": 1.0}}, "method uniform has no objective"),
        ({"method": "observed", "options": {"partition": 3}}, "did you mean 'partitions'"),
        ({"method": "observed", "candidates": {"fctor": 3}}, "did you mean 'factor'"),
        ({"method": "observed", "objective": {"uncertainty": -1.0}}, "finite number ≥ 0"),
        ({"loss": "CrossEntropLoss"}, "did you mean 'CrossEntropyLoss'"),
        ({"loss": "MSELoss"}, "cannot work on logits and class numbers"),
        ({"loss": "CrossEntropyLoss", "loss_options": {"reduction": "none"}}, "one number per batch"),
        ({"loss": "CrossEntropyLoss", "loss_options": {"smoothing": 0.1}}, "loss_options do not fit"),
        ({"model": ModelConfig("resnet18")}, "unknown model"),
        ({"device": "cuda:7"}, "device must be"),
        ({"method": "observed", "candidates": {"kind": "full", "replacement": True}}, "stochastic"),
        ({"data": DataConfig("digit")}, "did you mean 'digits'"),
    ],
)
def test_what_cannot_work_fails_before_a_folder_is_made(changes, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        loop.train(replace(SMALL, **changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


OWN = """
import os, random, signal, numpy as np, torch
from pathlib import Path
from torch.utils.data import TensorDataset, get_worker_info
from smdl.loading.strategies.strategy import Strategy, drawn

def data():
    points = torch.randn(90, 5, generator=torch.Generator().manual_seed(0))
    labels = (points[:, 0] > 0).long()
    return TensorDataset(points[:60], labels[:60]), TensorDataset(points[60:], labels[60:])

class Noisy(TensorDataset):
    def __getitem__(self, index):
        point, label = super().__getitem__(index)
        return point + float(np.random.rand()) + random.random(), label

def noisy_data():
    train, test = data()
    return Noisy(*train.tensors), test

class Fragile(TensorDataset):
    def __getitem__(self, index):
        if index == 13 and get_worker_info() and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)

def fragile_data():
    train, test = data()
    return Fragile(*train.tensors), test

def data_out_of_range():
    points = torch.zeros(40, 5)
    train = TensorDataset(points, torch.full((40,), -1)); return train, train

def model(shape, classes):
    return torch.nn.Linear(shape[0], classes)

def model_of_sequences(shape, classes):
    return torch.nn.Sequential(torch.nn.Linear(shape[0], 4), torch.nn.Unflatten(1, (2, 2)))

class HighestLoss(Strategy):
    needs_scores = True
    def select(self, pool, remaining, batch_size, rng):
        return drawn(remaining[np.argsort(-pool.losses.numpy()[remaining], kind="stable")[:batch_size]])
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_parts.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("own_parts", None)
    return replace(
        SMALL,
        data=DataConfig("own_parts:data"),
        model=ModelConfig("own_parts:model"),
        method="own_parts:HighestLoss",
        epochs=10,
    )


def test_a_users_own_data_model_and_method_work(own, tmp_path):
    summary = loop.train(own, tmp_path / "run")
    assert summary["final"]["test_error"] < 0.2
    assert summary["forwards"] > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"data": DataConfig("own_parts:data_out_of_range")}, "-1"),
        ({"model": ModelConfig("own_parts:model_of_sequences")}, r"\(batch, classes\)"),
        ({"method": "own_parts:HighestLos"}, "did you mean 'HighestLoss'"),
    ],
)
def test_own_parts_that_do_not_fit_are_told_so(own, changes, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        loop.train(replace(own, **changes), tmp_path / "run")


def test_the_reference_model_is_another_one_where_its_training_data_were_augmented(tmp_path):
    for augment in (True, False):
        loop.train(replace(RUNS["paper"], data=replace(SMALL.data, augment=augment)), tmp_path / str(augment))
    assert len(list((tmp_path / "cache" / "reference").iterdir())) == 2


def test_the_threads_of_a_run_are_in_its_summary_and_those_of_the_caller_are_kept(tmp_path):
    before = torch.get_num_threads()
    assert loop.train(replace(SMALL, threads=2), tmp_path / "run")["environment"]["threads"] == 2
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("damage", [b"", b'{"epoch": 0}\n', b"\xff\xfe", None])
def test_damaged_metrics_are_written_again_from_the_checkpoint(tmp_path, damage):
    loop.train(SMALL, tmp_path / "whole")
    with pytest.raises(loop.Interrupted):
        loop.train(SMALL, tmp_path / "run", Stop(9))
    (tmp_path / "run" / ".checkpoint.pt.1.2.part").write_bytes(b"half")
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9] if damage is None else damage)
    loop.resume(tmp_path / "run")
    check_equal(tmp_path / "run", tmp_path / "whole")


def test_a_mutated_checkpoint_is_never_resumed(tmp_path):
    """The mutations of one real checkpoint, through the function that a run calls."""
    with pytest.raises(loop.Interrupted):
        loop.train(SMALL, tmp_path / "run", Stop(9))
    path, run = tmp_path / "run" / "checkpoint.pt", loop.TrainingRun(SMALL)
    content, before = path.read_bytes(), str(state_of(run))
    for number in range(MUTATIONS):
        path.write_bytes(mutated(content, number))
        with pytest.raises(loop.checkpoint.CheckpointError):
            run.train(tmp_path / "run")
    assert str(state_of(run)) == before


#: Values of the state of a run: top level, and where a check of its own is needed.
VALUES = [
    *("epoch", "step", "counts", "model", "model.1.weight"),
    *("optimizer", "optimizer.state", "optimizer.state.0", "optimizer.state.0.momentum_buffer"),
    *("optimizer.param_groups", "optimizer.param_groups.0", "optimizer.param_groups.0.momentum"),
    *("loader", "loader.run", "loader.run.seed", "loader.epoch", "loader.step"),
    *("meters", "meters.batches", "meters.samples", "meters.loss", "meters.seconds", "meters.seconds.data"),
    *("records", "records.0", "records.0.epoch", "records.0.steps", "records.0.samples"),
    *("generators", "generators.torch", "generators.numpy", "generators.python"),
]


def place_of(state, path):
    """The dict or list that holds a value, and the value's key in it."""
    *names, last = path.split(".", 1) if path.startswith("model") else path.split(".")
    for name in names:
        state = state[int(name) if name.isdigit() else name]
    return state, int(last) if last.isdigit() else last


@pytest.mark.parametrize("method", ["observed", "paper"])
def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(tmp_path, method):
    config = replace(SMALL, method=method)
    with pytest.raises(loop.Interrupted):
        loop.train(config, tmp_path / "run", Stop(9))
    path, run, tried = tmp_path / "run" / "checkpoint.pt", loop.TrainingRun(config), 0
    run.checkpoint, before = path, str(state_of(run))
    wrong = [None, "text", [], {}, -1, 10**9, torch.zeros(3, 7), torch.full((130,), 999)]
    for value in VALUES:
        for instead in (*wrong, "gone"):
            state = loop.checkpoint.load(path)
            holder, key = place_of(state, value)
            if str(holder[key]) == str(instead) or (isinstance(instead, int) and isinstance(holder[key], float)):
                continue
            if instead == "gone":
                del holder[key]
            else:
                holder[key] = instead
            if value.startswith("optimizer.state") and instead in ({}, "gone", None):
                continue  # an optimizer without momentum has none of these
            with pytest.raises(loop.checkpoint.CheckpointError, match=r"checkpoint\.pt does not fit this run"):
                restore(run, state)
            tried += 1
    assert tried == WRONG_VALUES
    assert str(state_of(run)) == before


def test_a_checkpoint_of_another_config_is_refused_in_one_line(tmp_path):
    with pytest.raises(loop.Interrupted):
        loop.train(SMALL, tmp_path / "run", Stop(9))
    for changes, said in (
        ({"model": ModelConfig("mlp", width=0.5)}, r"model\..*weight must be torch.float32 of shape"),
        ({"epochs": 1}, "the number of batches after the last epoch must be 0, got 2"),
        ({"seed": 1}, "seed 0, this one has 1"),
        ({"optimizer": OptimizerConfig("adam")}, "optimizer.* was not made by"),
    ):
        (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump(loop.to_dict(replace(SMALL, **changes))))
        with pytest.raises(ValueError, match=f"does not fit this run: .*{said}.*Delete .* to train the run") as refused:
            loop.resume(tmp_path / "run")
        assert "\n" not in str(refused.value)


@pytest.mark.parametrize("fault", ["read-only", "full", "file"])
def test_a_cache_that_cannot_be_written_is_one_warning(tmp_path, monkeypatch, fault):
    loop.train(RUNS["paper"], tmp_path / "cached")
    cache = tmp_path / "elsewhere"
    monkeypatch.setenv("SMDL_CACHE", str(cache))
    if fault == "file":
        cache.write_text("a file where the cache should be")

    def denied(path):
        raise PermissionError(13, "Permission denied", path)

    fail = full if fault == "full" else denied
    with pytest.warns(UserWarning, match="not cached") as caught, failing_disk(cache, 0, fail):
        loop.train(RUNS["paper"], tmp_path / "run")
    assert ["Set SMDL_CACHE to" in str(each.message) for each in caught] == [True]
    assert same(weights(tmp_path / "cached"), weights(tmp_path / "run"))


def test_mutated_features_of_the_reference_model_are_never_used(tmp_path):
    loop.train(RUNS["paper"], tmp_path / "a")
    [path] = (tmp_path / "cache" / "reference").iterdir()
    content = path.read_bytes()
    for number in range(MUTATIONS):
        path.write_bytes(mutated(content, number))
        with pytest.raises(storage.DamagedFileError):
            storage.read_sealed(path, build._CACHED)


def test_a_killed_worker_of_the_loader_is_one_line_and_the_run_resumes(own, tmp_path):
    config = replace(own, data=DataConfig("own_parts:fragile_data"), method="uniform", epochs=2, num_workers=2)
    with pytest.raises(loop.KilledError, match=r"worker process .* was killed.*Resume with smdl train --resume"):
        loop.train(config, tmp_path / "run")
    assert loop.resume(tmp_path / "run")["epochs"] == 2


def test_a_dataset_that_draws_from_numpy_and_random_resumes_exactly(own, tmp_path):
    noisy = replace(own, data=DataConfig("own_parts:noisy_data"), method="uniform", epochs=3)
    loop.train(noisy, tmp_path / "whole")
    with pytest.raises(loop.Interrupted):
        loop.train(noisy, tmp_path / "parts", Stop(4))
    loop.resume(tmp_path / "parts")
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "parts"))
