"""Wrong command lines and config files: one clear line, exit code 2, nothing written."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdl.cli.commands import main

WORDS = ("abc", "", "[]", "{}", "null", "-1", "1.5", "nan", "true")


def wrong(option: str, *values: str) -> list[list[str]]:
    return [["train", f"--{option}={value}"] for value in values]


COMMANDS: list[list[str]] = [
    ["trian"],
    ["compare", "extra"],
    ["--nothing"],
    ["train", "extra"],
    ["train", "--"],
    ["train", "---x"],
    *wrong("batch_size", *WORDS, "0", "100000"),
    *wrong("epochs", *WORDS, "0"),
    *wrong("steps", "abc", "", "[]", "{}", "-1", "1.5", "0", "true"),
    *wrong("seed", *WORDS),
    *wrong("num_workers", *WORDS),
    *wrong("threads", "abc", "[]", "0", "-1", "1.5", "100000", "true"),
    *wrong("train_evaluation", "abc", "[]", "null", "-1", "1.5"),
    *wrong("drop_last", "abc", "[]", "2", "null", "0.5"),
    *wrong("amp", "abc", "[]", "2", "null"),
    *wrong("device", "", "abc", "meta", "cuda:99", "[]", "null", "cpu:7:7"),
    *wrong("method", "", "papper", "no_module:name", "os:system", "json:nothing", ":", "a:b:c", "[]", "{}"),
    *wrong("tracker", "", "tensorbord", "no_module:name", "json:nothing", "json:dumps", "builtins:dict"),
    *wrong("options", "abc", "[]", "3", "{partitons: 1}", "{partitions: 0}", "{optimizer: 3}"),
    *wrong("options.partitions", "abc", "0", "null", "[]"),
    *wrong("options.partitons", "3"),
    *wrong("candidates", "abc", "[]", "3", "{source: ful}", "{factor: 0}", "{source: full, every: x}"),
    *wrong("candidates.factor", "abc", "0", "null", "[]"),
    *wrong("candidates.source", "ful", "3", "[]", "os:system", "no_module:name"),
    *wrong("objective", "paper", "[]", "3", "{redundency: 1}"),
    *wrong("objective.redundancy", "abc", "-1", "nan", "inf", "[]", "0"),
    *wrong("objective.distance", "cosin", "", "[]", "3"),
    *wrong("objective.sigma", "abc", "0", "-1", "nan", "inf"),
    *wrong("objective.neighbours", "abc", "0", "-1", "1.5"),
    *wrong("objective.noise", "abc", "0", "-1", "nan"),
    *wrong("data", "abc", "[]", "3", "null", "{nam: digits}"),
    *wrong("data.name", "digit", "", "no_module:name", "os:getcwd", "[]"),
    *wrong("data.train_size", "abc", "0", "-1", "1.5", "5", "1000000", "[]"),
    *wrong("data.test_size", "abc", "0", "-1", "1.5", "1000000"),
    *wrong("data.validation", "abc", "-0.1", "1", "nan", "[]"),
    *wrong("data.label_noise", "abc", "-0.1", "1.5", "nan", "[]"),
    *wrong("data.imbalance", "abc", "0.5", "nan", "inf", "[]"),
    *wrong("data.hidden_imbalance", "abc", "0.5", "nan", "inf", "[]", "null"),
    ["train", "--data.hidden_imbalance", "5", "--data.imbalance", "5"],
    *wrong("data.duplicates", "abc", "-0.1", "1", "nan", "[]", "null", "0.9999"),
    *wrong("data.resolution", "abc", "0", "-1", "1.5"),
    *wrong("data.augment", "abc", "2", "[]"),
    *wrong("data.seed", "abc", "-1", "1.5", "null"),
    *wrong("model", "abc", "[]", "null", "{nam: mlp}"),
    *wrong("model.name", "resnet18", "", "no_module:name", "os:getcwd", "[]"),
    *wrong("model.width", "abc", "0", "-1", "nan", "inf", "[]"),
    *wrong("model.batchnorm", "abc", "2", "null"),
    *wrong("optimizer", "abc", "[]", "null", "3"),
    *wrong("optimizer.name", "sdg", "", "3", "[]"),
    *wrong("optimizer.lr", "abc", "0", "-1", "nan", "inf", "null", "[]"),
    *wrong("optimizer.momentum", "abc", "-0.1", "1", "nan"),
    *wrong("optimizer.weight_decay", "abc", "-1", "nan", "inf"),
    *wrong("optimizer.nesterov", "abc", "2"),
    *wrong("schedule", "abc", "[]", "null"),
    *wrong("schedule.name", "cosin", "", "3"),
    *wrong("schedule.warmup", "abc", "-0.1", "1", "nan"),
    *wrong("schedule.milestones", "abc", "3", "[0]", "[1.5]", "[a]", "{}"),
    *wrong("schedule.gamma", "abc", "0", "-1", "nan"),
    *wrong("loss", "", "CrossEntropLoss", "MSELoss", "Module", "3"),
    *wrong("loss_options", "abc", "[]", "3", "{smoothing: 0.1}"),
    *wrong("reference_fraction", "abc", "0", "1.5", "nan"),
    *wrong("config", "", "digit", "no/such/file.yaml", "/", "."),
    *wrong("resume", "", "no/such/folder", "."),
    ["train", "--resume", "x", "--epochs", "3"],
    ["train", "--epoch", "3"],
    ["train", "--strategy", "uniform"],
    ["train", "--objective.preset", "paper"],
    ["train", "--selection.refresh_every", "5"],
    ["train", "--method", "uniform", "--options.pressure", "3"],
    ["train", "--method", "uniform", "--objective.redundancy", "1"],
    ["train", "--candidates.source", "full", "--candidates.replacement", "true"],
    ["train", "--objective.log_determinant", "1", "--objective.noise", "1e-30"],
    *[
        ["compare", f"--methods={names}"]
        for names in ("", ",", "papper", "uniform", "uniform,papper", "os:system,uniform")
    ],
    *[["compare", f"--seeds={number}"] for number in ("0", "-1", "1.5", "abc", "", "[]", "automatic")],
    *[["compare", f"--minutes={number}"] for number in ("0", "-1", "abc", "nan", "", "inf")],
    *[["compare", f"--jobs={number}"] for number in ("0", "-1", "1.5", "abc", "")],
    *[["compare", f"--protocols={names}"] for names in ("", "step", "steps,tim", "[]")],
    *[
        ["compare", option, "3"]
        for option in ("--seed", "--method", "--options.x", "--candidates.every", "--strategies")
    ],
    ["compare", "--seeds", "auto", "--minutes", "3"],
    ["ablate"],
    ["ablate", "distanc"],
    ["ablate", "distance", "--values", "cosin"],
    ["ablate", "learning-rate", "--values", "fast"],
    ["ablate", "batch-size", "--values", "1.5"],
    *[["ablate", "distance", f"--seeds={number}"] for number in ("0", "-1", "abc", "")],
    ["ablate", "distance", "--method", "paper"],
    ["reproduce"],
    ["reproduce", "table-9"],
    ["reproduce", "table-1", "--scale", "tiny"],
    ["reproduce", "table-1", "--seeds", "0"],
    ["reproduce", "table-1", "--scale", "paper", "--data.root", "no/such/folder"],
    ["report"],
    ["report", "no/such/folder"],
    ["report", "."],
    ["report", "--html", "."],
    ["data"],
    ["data", "lst"],
    ["data", "get"],
    ["data", "get", "cifar11"],
    ["doctor", "extra"],
]
#: Config files that no run can be made of.
FILES = [
    "epochs: [",
    "- 1\n- 2",
    "3",
    "text",
    "epochs: three",
    "epochs: 3\nepochs: 4",
    "data: {name: digits, name: cifar10}",
    "optimizer: null",
    "optimizer: 3",
    "optimizer: {lr: {a: 1}}",
    "optimizer: {lr: [0.1]}",
    "epoch: 3",
    "data: {nam: digits}",
    "method: [paper]",
    "objective: paper",
    "objective: {preset: paper}",
    "strategy: uniform",
    "batch_size: true",
    "batch_size: [5, 20]",
    "batch_size: 1e3",
    "a: &a [*a]",
    "data: &d {name: *d}",
    "!!python/object/apply:os.system ['true']",
    "epochs: !!python/name:os.system",
    "\x00",
    "\t- x",
    "options: {partitions: .nan}",
    "candidates: {source: full, every: 0}",
]


def check(argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))
    before = sorted(tmp_path.rglob("*"))
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    lines = captured.err.strip().splitlines()
    assert code == 2, (code, captured)
    assert len(lines) == 1, captured.err
    assert lines[0].startswith("smdl: ")
    assert len(lines[0]) < 500
    assert sorted(tmp_path.rglob("*")) == before


def with_marks(commands: list[list[str]]) -> Iterator[Any]:
    """Mark the commands that the fast tests leave out: two wrong values of an option are enough for them."""
    seen = Counter()
    for argv in commands:
        option, given, _ = " ".join(argv).partition("=")
        seen[option] += bool(given)
        yield pytest.param(argv, marks=pytest.mark.slow) if seen[option] > 2 else argv


@pytest.mark.parametrize("argv", list(with_marks(COMMANDS)), ids=" ".join)
def test_a_wrong_command_is_one_line_and_writes_nothing(argv, tmp_path, monkeypatch, capsys):
    check(argv, tmp_path, monkeypatch, capsys)


@pytest.mark.parametrize("content", FILES, ids=repr)
def test_a_wrong_config_file_is_one_line_and_writes_nothing(content, tmp_path, monkeypatch, capsys):
    (tmp_path / "wrong.yaml").write_text(content)
    check(["train", "--config", "wrong.yaml"], tmp_path, monkeypatch, capsys)


def test_there_are_hundreds_of_wrong_commands():
    assert len(COMMANDS) + len(FILES) > 300
