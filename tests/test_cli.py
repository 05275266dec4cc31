"""The command, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from smdl.cli import main
from smdl.training.config import TrainConfig, from_dict
from smdl.training.files import read_lines

ROOT = Path(__file__).parent.parent
TINY = "--model.name mlp --data.train_size 60 --data.test_size 40 --epochs 2 --batch_size 20".split()  # noqa: SIM905


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SMDL_DATA", raising=False)


def test_train_writes_one_folder_that_says_everything(capsys):
    assert main(["train", *TINY, "--strategy", "smdl", "--optimizer.lr", "0.05"]) == 0
    folder = Path("runs/digits-recommended-0")
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml", "metrics.jsonl", "summary.json", "counts.npy", "checkpoint.pt", "model.safetensors",
        "usage_snapshot.npz",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert str(folder) in printed
    assert "epoch 2/2" in printed, "plain lines where there is no terminal"
    config = from_dict(TrainConfig, yaml.safe_load((folder / "config.yaml").read_text()))
    assert config.optimizer.lr == 0.05
    assert config.data.train_size == 60
    record = read_lines(folder / "metrics.jsonl")[-1]
    assert set(record["seconds"]) == {"data", "scoring", "selection", "training", "evaluation"}
    final = json.loads((folder / "summary.json").read_text())["final"]
    assert f"test error {final['test_error']:.2%}" in printed


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        (["--strategy", "uniform"], "digits-uniform-0"),
        (["--strategy", "loss", "--seed", "3"], "digits-loss-3"),
        (["--objective", "paper"], "digits-paper-0"),
        (["--objective=paper", "--objective.redundancy", "0.5"], "digits-paper-0"),
        (["--objective.redundancy", "1"], "digits-custom-0"),
    ],
)
def test_every_strategy_runs_from_the_command_line(options, folder):
    assert main(["train", *TINY, *options, "--quiet"]) == 0
    assert (Path("runs") / folder / "summary.json").exists()


@pytest.mark.parametrize("path", sorted(ROOT.glob("configs/*.yaml")), ids=lambda path: path.name)
def test_the_configs_are_short_and_resolve(path, capsys):
    assert len(path.read_text().splitlines()) < 20
    with pytest.raises(SystemExit) as stop:
        main(["train", "--config", str(path), "--optimizer.lr", "0.03", "--print_config"])
    assert stop.value.code == 0
    resolved = yaml.safe_load(capsys.readouterr().out)
    assert resolved["optimizer"]["lr"] == 0.03, "the command line wins over the file"
    for name in ("out", "resume", "quiet"):
        resolved.pop(name)
    from_dict(TrainConfig, resolved)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--optimzer.lr", "0.1"], "did you mean optimizer.lr?"),
        (["--objectve", "paper"], "did you mean objective?"),
        (["--objective", "papper"], "did you mean 'paper'?"),
        (["--strategy", "los"], "did you mean 'loss'?"),
        (["--optimizer.lr", "fast"], "optimizer.lr"),
        (["--optimizer.lr", "-1"], "optimizer.lr must be a positive number, got -1.0"),
        (["--epochs", "0"], "epochs must be a whole number ≥ 1, got 0"),
        (["--optimizer.name", "sdg"], "did you mean 'sgd'?"),
        (["--data.name", "cifar"], "unknown data set 'cifar'"),
        (["--data.name", "cifar10", "--data.root", "nowhere"], "smdl data get cifar10"),
        (["--data.train_size", "100000"], "100000"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--selection.pool_factor", "3", "--selection.refresh_every", "5"], "not both"),
        (["--resume", "nowhere"], "not the folder of a run"),
        (["--resume", "nowhere", "--epochs", "3"], "keeps its config"),
    ],
)
def test_bad_input_gets_one_clear_line_and_exit_code_2(options, said, capsys):
    try:
        code = main(["train", *options])
    except SystemExit as stop:
        code = stop.code
    error = capsys.readouterr().err
    assert code == 2
    assert said in error
    assert "Traceback" not in error
    assert not Path("runs").exists()


def test_unknown_keys_in_a_config_file_are_named(capsys):
    Path("mine.yaml").write_text("optimizer:\n  lrr: 0.1\n")
    with pytest.raises(SystemExit):
        main(["train", "--config", "mine.yaml"])
    assert "did you mean optimizer.lr?" in capsys.readouterr().err


def test_help_is_quick_and_imports_nothing_heavy():
    code = (
        "import sys; from smdl.cli import main; main(['--help']);"
        "print([m for m in ('torch', 'numba', 'numpy', 'matplotlib', 'rich', 'jsonargparse') if m in sys.modules])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "train" in printed
    assert printed.splitlines()[-1] == "[]"


def test_the_help_of_commands_does_not_import_torch():
    code = (
        "import sys; from smdl.cli import main; from smdl.options import COMMANDS, parser_of;"
        "[parser_of(name).format_help() for name in COMMANDS];"
        "main(['ablate', '--help']); main(['reproduce', '--list']); print('torch' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.endswith("False\n")


def test_a_run_stopped_by_sigterm_exits_143_and_says_how_to_go_on():
    code = (
        "import signal, sys; from smdl import cli; from smdl.training import progress\n"
        "class Stop(progress.Lines):\n"
        "    def step(self, *a): signal.raise_signal(signal.SIGTERM)\n"
        "progress.display = lambda quiet: Stop()\n"
        f"sys.exit(cli.main(['train', *{TINY!r}]))"
    )
    stopped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert stopped.returncode == 143
    assert "smdl train --resume runs/digits-recommended-0" in stopped.stderr
    assert main(["train", "--resume", "runs/digits-recommended-0"]) == 0


def test_an_unknown_command_names_the_nearest(capsys):
    assert main(["trian"]) == 2
    assert "did you mean 'train'?" in capsys.readouterr().err


def test_doctor_reports_what_is_here(capsys, monkeypatch):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for word in ("torch", "threads", "cpu", "cifar10", "nothing would fail"):
        assert word in printed
    monkeypatch.setenv("SMDL_DATA", "/nowhere")
    assert main(["doctor"]) == 1
    assert "SMDL_DATA is /nowhere" in capsys.readouterr().out


def test_data_lists_what_can_be_had(capsys):
    assert main(["data", "list"]) == 0
    assert "fashion-mnist" in capsys.readouterr().out
    assert main(["data", "get"]) == 2
    assert main(["data", "get", "cifar11"]) == 2
    assert "did you mean" in capsys.readouterr().err
