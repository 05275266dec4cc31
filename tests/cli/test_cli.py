"""The command, as a user types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from smdl.cli.commands import main
from smdl.cli.options import COMMANDS
from smdl.cli.parser import CONFIGS
from smdl.common.environment import EXTRA_PACKAGES
from smdl.common.messages import EXTRAS
from smdl.engine.objective import OPTIONS
from smdl.engine.terms import TERMS
from smdl.loading.methods import METHODS
from smdl.training.config import TrainConfig, from_dict
from tests.report.made import read_lines

TINY = "--model.name mlp --data.train_size 60 --data.test_size 40 --epochs 2 --batch_size 20".split()  # noqa: SIM905
TRAINING = [name for name, command in COMMANDS.items() if command.main]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SMDL_DATA", raising=False)


def in_python(code):
    """Run code in a process of its own, where nothing is imported yet."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


def printed_by(arguments, capsys):
    """What a command prints that ends by itself, such as --help."""
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_train_writes_one_folder_that_says_everything(capsys):
    assert main(["train", *TINY, "--optimizer.lr", "0.05"]) == 0
    folder = Path("runs/digits-recommended-0")
    assert {path.name for path in folder.iterdir()} == {
        "config.yaml", "metrics.jsonl", "summary.json", "counts.npy", "checkpoint.pt", "model.safetensors",
        "usage_snapshot.npz", ".lock",
    }  # fmt: skip
    printed = capsys.readouterr().out
    assert str(folder) in printed
    assert "epoch 2/2" in printed, "plain lines where there is no terminal"
    config = from_dict(TrainConfig, yaml.safe_load((folder / "config.yaml").read_text()))
    assert config.optimizer.lr == 0.05
    assert config.data.train_size == 60
    record = read_lines(folder / "metrics.jsonl")[-1]
    assert set(record["seconds"]) == {"data", "refit", "scoring", "selection", "training", "evaluation"}
    final = json.loads((folder / "summary.json").read_text())["final"]
    assert f"test error {final['test_error']:.2%}" in printed


@pytest.mark.parametrize(
    ("options", "folder"),
    [
        (["--method", "uniform"], "digits-uniform-0"),
        (["--method", "loss", "--seed", "3", "--options.pressure", "50"], "digits-loss-3"),
        (["--method=paper", "--candidates.every", "2", "--objective.distance", "cosine"], "digits-paper-0"),
        ([], "digits-recommended-0"),
        (["--objective.redundancy", "1"], "digits-observed-0"),
        (["--objective", "redundancy"], "digits-observed-0"),
        (["--candidates.factor", "2"], "digits-observed-0"),
        (["--method", "smdl.loading.strategies.uniform:Uniform"], "digits-smdl.loading.strategies.uniform.Uniform-0"),
    ],
)
def test_every_method_runs_from_the_command_line(options, folder):
    assert main(["train", *TINY, *options, "--quiet"]) == 0
    run = Path("runs") / folder
    assert (run / "summary.json").exists()
    method = yaml.safe_load((run / "config.yaml").read_text())["method"]
    assert method.replace(":", ".") in folder, "the folder names the method that ran, also where none was given"


@pytest.mark.slow
def test_an_ablation_runs_from_the_command_line(capsys):
    options = ["--values", "cosine", "--seeds", "1", "--jobs", "1", "--quiet"]
    assert main(["ablate", "distance", *TINY, *options]) == 0
    assert "report: runs/ablate-distance-digits/report.html" in capsys.readouterr().out


def test_options_of_the_method_and_its_candidates_reach_the_run():
    assert main(["train", *TINY, "--method", "paper", "--options.partitions", "2", "--candidates.every", "4"]) == 0
    config = yaml.safe_load(Path("runs/digits-paper-0/config.yaml").read_text())
    assert (config["options"], config["candidates"]) == ({"partitions": 2}, {"every": 4})


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIGS.glob("*.yaml")))
@pytest.mark.parametrize("command", ["train", "compare", "ablate distance"])
def test_the_configs_are_found_by_name_from_any_folder(command, name, capsys):
    assert len((CONFIGS / f"{name}.yaml").read_text().splitlines()) < 20
    arguments = [*command.split(), "--config", name, "--optimizer.lr", "0.03", "--print_config"]
    resolved = yaml.safe_load(printed_by(arguments, capsys))
    assert resolved["optimizer"]["lr"] == 0.03, "the command line wins over the file"
    assert resolved["model"]["name"].startswith("resnet")


def test_what_print_config_prints_is_a_config(capsys):
    Path("mine.yaml").write_text(printed_by(["train", "--config", "digits", "--epochs", "7", "--print_config"], capsys))
    again = printed_by(["train", "--config", "mine.yaml", "--print_config"], capsys)
    assert again == Path("mine.yaml").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train --optimzer.lr 0.1", "did you mean --optimizer.lr?"),
        ("train --optimzer.lr=0.1", "did you mean --optimizer.lr?"),
        ("train --objectve.redundancy 1", "did you mean --objective.redundancy?"),
        ("train --epoch 1", "did you mean --epochs?"),
        ("train --method papper", "did you mean 'paper'?"),
        ("train --method loss --options.presure 3", "did you mean 'pressure'?"),
        ("train --candidates.sorce full", "'sorce'"),
        ("train --optimizer.lr fast", "optimizer.lr"),
        ("train --optimizer.lr -1", "optimizer.lr must be a positive number, got -1.0"),
        ("train --epochs 0", "epochs must be a whole number ≥ 1, got 0"),
        ("train --optimizer.name sdg", "did you mean 'sgd'?"),
        ("train --data.name cifar", "unknown data set 'cifar'"),
        ("train --data.name cifar10 --data.root nowhere", "smdl data get cifar10"),
        ("train --data.train_size 100000", "100000"),
        ("train --config nowhere.yaml", "nowhere.yaml"),
        ("train --config digit", "did you mean 'digits'? Choose one of cifar10, digits, fashion-mnist, paper"),
        ("train --config broken.yaml", "broken.yaml cannot be read"),
        ("train --resume nowhere", "not the folder of a run"),
        ("train --resume nowhere --quiet", "not the folder of a run"),
        ("train --resume nowhere --epochs 10", "keeps its config: leave out epochs"),
        ("train --resume nowhere --optimizer.lr 0.1 --out x", "keeps its config: leave out optimizer, out"),
        ("train words", "unrecognized arguments: words"),
        ("compare --methods uniform,los", "did you mean 'loss'?"),
        ("compare --methods ,", "names separated by commas"),
        ("compare --seeds 0", "argument --seeds: expected a whole number ≥ 1, got '0'"),
        ("compare --seeds auto --minutes 3", "--seeds auto or --minutes, not both"),
        ("compare --seed 7", "--seed is not an option of smdl compare: use --seeds"),
        ("compare --method paper", "use --methods"),
        ("compare --method=recommended", "use --methods"),
        ("compare --objective.distance cosine", "use --methods"),
        ("compare --options.pressure 3", "use --methods"),
        ("compare --candidates '{every: 3}'", "use --methods"),
        ("compare --config method.yaml", "--method is not an option of smdl compare: use --methods"),
        ("compare --config objective.yaml", "--objective is not an option of smdl compare: use --methods"),
        ("ablate", "sweep"),
        ("ablate distanc", "distance"),
        ("ablate distance --seed 7", "use --seeds"),
        ("ablate distance --method paper", "the sweep sets it"),
        ("ablate distance --seeds 0", "argument --seeds: expected a whole number ≥ 1"),
        ("reproduce table-7", "table-1"),
        ("reproduce table-1 --scale huge", "smoke"),
        ("reproduce table-1 --epochs 3", "unknown option --epochs"),
        ("report", "folders"),
        ("report --markdwn x", "did you mean --markdown?"),
        ("report nowhere", "nowhere holds neither an experiment"),
        ("data put", "list"),
        ("data get", "smdl data list"),
        ("data get cifar11", "did you mean 'cifar10'?"),
        ("doctor --now", "unknown option --now"),
        ("trian", "'train'"),
    ],
)
def test_bad_input_gets_one_clear_line_and_exit_code_2(arguments, message, capsys):
    Path("broken.yaml").write_text("optimizer: [")
    Path("method.yaml").write_text("method: paper\n")
    Path("objective.yaml").write_text("objective: {distance: cosine}\n")
    assert main(arguments.split()) == 2
    error = capsys.readouterr().err
    assert error.startswith("smdl: ")
    assert message in error
    assert "Traceback" not in error
    assert error.count("\n") == 1 or "nowhere" in arguments, "one line, but for a list of folders"
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("optimizer: {lrr: 0.1}", "--optimizer.lrr; did you mean --optimizer.lr?"),
        ("epoch: 3", "--epoch; did you mean --epochs?"),
        ("strategy: smdl", "unknown option --strategy"),
        ("loss_options: {label_smoothing: 2}", "label_smoothing"),
        ("optimizer: 3", "optimizer must be a mapping"),
        ("just words", "must be a mapping"),
    ],
)
def test_what_is_wrong_in_a_config_file_is_named(content, message, capsys):
    Path("mine.yaml").write_text(content)
    assert main(["train", *TINY, "--config", "mine.yaml"]) == 2
    assert message in capsys.readouterr().err


def test_help_is_quick_and_imports_nothing_heavy():
    heavy = ("torch", "numba", "numpy", "matplotlib", "rich", "jsonargparse", "yaml")
    code = f"""
import sys
from smdl.cli.commands import main
try: main(['--help'])
finally: print([name for name in {heavy} if name in sys.modules])
"""
    printed = in_python(code).stdout
    for command in COMMANDS:
        assert f"\n    {command} " in printed
    assert printed.splitlines()[-1] == "[]"


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 0
    assert "COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_short_and_ends_with_examples(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    printed = printed_by([command, "--help"], capsys)
    examples = printed.partition("examples:\n")[2].splitlines()
    assert 1 <= len(examples) <= 4
    assert all(example.startswith(f"  smdl {command}") for example in examples)
    most = {"select": 50, "label": 35}.get(command, 30)  # these name the columns that they read
    assert len(printed.splitlines()) - len(COMMANDS[command].choices) <= most


@pytest.mark.parametrize("command", TRAINING)
def test_help_all_has_every_option_that_the_command_takes(command, capsys):
    printed = printed_by([command, "--help-all"], capsys)
    for option in ("--optimizer.weight_decay", "--data.label_noise", "--train_evaluation", "--print_config"):
        assert option in printed
    assert "--optimizer.weight_decay" not in printed_by([command, "--help"], capsys)
    taken = [f"--objective.{name} " in printed for name in (*TERMS, *OPTIONS)]
    assert all(taken) if command == "train" else not any(taken)
    assert ("--candidates " in printed, "--seed " in printed) == (command == "train",) * 2


def test_help_names_every_method(capsys):
    printed = printed_by(["train", "--help"], capsys)
    assert all(name in printed for name in METHODS)


def test_the_help_of_every_command_comes_without_torch():
    code = f"""
import sys
from smdl.cli.commands import main
for command in {list(COMMANDS)}:
    try: main([command, '--help'])
    except SystemExit: pass
print('torch' in sys.modules)
"""
    assert in_python(code).stdout.endswith("False\n")


@pytest.mark.parametrize("command", ["train", "report x", "data list"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(command):
    code = f"""
import sys
sys.modules['rich'] = sys.modules['scipy'] = None
from smdl.cli.commands import main
sys.exit(main({command.split()}))
"""
    ended = in_python(code)
    assert ended.stderr == "smdl: not installed: rich, scipy. Run pip install 'submodular-data-loader[train]'\n"
    assert ended.returncode == 2


@pytest.mark.slow
def test_doctor_works_without_any_extra():
    optional = {*EXTRAS["train"], *EXTRAS["label"], *(name for names in EXTRA_PACKAGES.values() for name in names)}
    code = f"""
import sys
sys.modules.update(dict.fromkeys({sorted({name.replace("-", "_") for name in optional} - {"yaml"})}))
from smdl.common import environment
environment.version = lambda name: sys.modules.get('none') or (_ for _ in ()).throw(environment.PackageNotFoundError())
from smdl.cli.commands import main
sys.exit(main(['doctor']))
"""
    ended = in_python(code)
    for extra in EXTRA_PACKAGES:
        assert f"Run pip install 'submodular-data-loader[{extra}]'" in ended.stdout, ended.stderr
    assert ended.returncode == 0


def test_the_library_works_without_the_packages_for_training():
    code = f"""
import sys
sys.modules.update(dict.fromkeys({(*EXTRAS["train"], "jsonargparse")}))
import torch, smdl
model = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
data = torch.utils.data.TensorDataset(torch.randn(40, 2), torch.randint(2, (40,)))
for method in ("uniform", "recommended"):
    print(sum(len(targets) for _, targets in smdl.DataLoader(data, model, 8, method=method, epochs=1)))
print(len(smdl.select(smdl.Pool(torch.rand(20, 4)), smdl.Objective(redundancy=1.0), 5)))
"""
    ended = in_python(code)
    assert ended.stdout.split() == ["40", "40", "5"], ended.stderr


@pytest.mark.slow
def test_a_run_stopped_by_sigterm_exits_143_and_says_how_to_resume():
    code = (
        "import signal, sys; from smdl.cli import commands; from smdl.common import progress\n"
        "class Stop(progress.Lines):\n"
        "    def step(self, *a): signal.raise_signal(signal.SIGTERM)\n"
        "progress.display = lambda quiet: Stop()\n"
        f"sys.exit(commands.main(['train', *{TINY!r}, '--method', 'uniform']))"
    )
    stopped = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert stopped.returncode == 143
    assert "smdl train --resume runs/digits-uniform-0" in stopped.stderr
    assert main(["train", "--resume", "runs/digits-uniform-0", "--quiet"]) == 0


def test_a_run_that_diverges_exits_1_with_one_line(capsys):
    assert main(["train", *TINY, "--optimizer.lr", "1e30", "--method", "uniform", "--quiet"]) == 1
    error = capsys.readouterr().err
    assert error.startswith("smdl: ")
    assert "Traceback" not in error


def test_doctor_reports_what_is_here(capsys, monkeypatch):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for word in ("torch", "threads", "cpu", "cifar10", "B free", "nothing that is installed would fail"):
        assert word in printed
    monkeypatch.setenv("SMDL_DATA", "/nowhere")
    assert main(["doctor"]) == 1
    assert "SMDL_DATA is /nowhere" in capsys.readouterr().out


def test_doctor_lists_packages_by_extra_and_names_what_installs_the_others(capsys, monkeypatch):
    there = {"torch": "2.13.0", "fsspec": "2026.1", "rich": "15.0"}
    monkeypatch.setattr("smdl.common.environment.installed", there.get)
    monkeypatch.setattr("smdl.training.doctor.CHECKS", {})
    assert main(["doctor"]) == 0  # an extra may be missing
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["packages"] == "torch 2.13.0"
    assert lines["select"].startswith("rich 15.0, fsspec 2026.1; not installed: filelock, ")
    assert lines["select"].endswith("pip install 'submodular-data-loader[select]'")
    assert lines["ray"] == "not installed: ray. Run pip install 'submodular-data-loader[ray]'"


def test_data_lists_the_data_sets(capsys):
    assert main(["data", "list"]) == 0
    assert "fashion-mnist" in capsys.readouterr().out
