"""Wrong command lines and config files: one clear line, exit code 2, nothing written."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smdl.cli.commands import main
from smdl.cli.parser import parse

WORDS = ("abc", "", "[]", "{}", "null", "-1", "1.5", "nan", "true")


def wrong(option: str, *values: str) -> list[list[str]]:
    """Return commands with wrong values of an option. The default method has no objective and no partitions."""
    chosen = ["--method=paper"] if option.startswith(("objective", "options")) else []
    return [["train", *chosen, f"--{option}={value}"] for value in values]


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
    *wrong("candidates", "abc", "[]", "3", "{kind: ful}", "{factor: 0}", "{kind: full, every: x}"),
    *wrong("candidates.factor", "abc", "0", "null", "[]"),
    *wrong("candidates.kind", "ful", "3", "[]", "os:system", "no_module:name"),
    *wrong("objective", "papper", "[]", "3", "{redundency: 1}"),
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
    ["train", "--method=paper", "--objective.preset", "paper"],
    ["train", "--selection.refresh_every", "5"],
    ["train", "--method", "uniform", "--options.pressure", "3"],
    ["train", "--method", "uniform", "--objective.redundancy", "1"],
    ["train", "--method=observed", "--candidates.kind", "full", "--candidates.replacement", "true"],
    ["train", "--method=paper", "--objective.log_determinant", "1", "--objective.noise", "1e-30"],
    *[
        ["compare", f"--methods={names}"]
        for names in (
            "",
            ",",
            "papper",
            "uniform",
            "uniform,papper",
            "os:system,uniform",
            "uniform,loss[a=1]",
            "loss[a",
        )
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
#: Config files that no run can be made of, and what the message says.
FILES = {
    "epochs: [": "wrong.yaml cannot be read: while parsing",
    "- 1\n- 2": "a config must be a mapping of names to values, got [1, 2]",
    "3": "a config must be a mapping of names to values, got 3",
    "text": "a config must be a mapping of names to values, got 'text'",
    "epochs: three": "epochs must be a whole number, got 'three'",
    "epochs: 3\nepochs: 4": "epochs is given twice",
    "data: {name: digits, name: cifar10}": "name is given twice",
    "optimizer: null": "optimizer must be a mapping of names to values, got None",
    "optimizer: 3": "optimizer must be a mapping of names to values, got 3",
    "optimizer: {lr: {a: 1}}": "optimizer.lr must be a finite number",
    "optimizer: {lr: [0.1]}": "optimizer.lr must be a finite number, got '[0.1]'",
    "epoch: 3": "unknown option --epoch; did you mean --epochs?",
    "data: {nam: digits}": "unknown option --data.nam; did you mean --data.name?",
    "method: [paper]": "method must be",
    "objective: papper": "unknown objective 'papper'; did you mean 'paper'?",
    "objective: [paper]": "objective must be",
    "{method: uniform, objective: paper}": "method uniform has no objective: leave out objective, or use a method that",
    "{method: paper, objective: {preset: paper}}": "unknown term 'preset'",
    "strategy: uniform": "unknown option --strategy",
    "batch_size: true": "batch_size must be a whole number, got 'True'",
    "batch_size: [5, 20]": "batch_size must be a whole number, got '[5, 20]'",
    "batch_size: 1e3": "batch_size must be a whole number, got '1000.0'",
    "a: &a [*a]": "unknown option --a",
    "data: &d {name: *d}": "data.name must be a text",
    "!!python/object/apply:os.system ['true']": "could not determine a constructor for the tag",
    "epochs: !!python/name:os.system": "could not determine a constructor for the tag",
    "\u0000": "wrong.yaml cannot be read: unacceptable character",
    "\t- x": "wrong.yaml cannot be read: while scanning",
    "{method: paper, options: {partitions: .nan}}": "partitions must be a whole number ≥ 1, got nan",
    "candidates: {kind: full, every: 0}": "every must be a whole number ≥ 1, got 0",
}


#: The messages about other commands than `--option=value`, and those that name another word than the option.
SAID = {
    "trian": "unknown command 'trian'; did you mean 'train'?",
    "compare extra": "unrecognized arguments: extra",
    "--nothing": "unrecognized arguments: --nothing",
    "train extra": "unrecognized arguments: extra",
    "train --": "unrecognized arguments: --",
    "train ---x": "unknown option ---x",
    "train --device=null": "device must be auto, cpu, or an available device, got 'null'",
    "train --method=json:nothing": "unknown method in json 'nothing'",
    "train --tracker=json:nothing": "unknown --tracker in json 'nothing'",
    "train --method=paper --options={partitons: 1}": "unknown option of method paper 'partitons'; did you mean",
    "train --method=paper --options={partitions: 0}": "partitions must be a whole number ≥ 1, got 0",
    "train --method=paper --options={optimizer: 3}": "optimizer must be one of auto, bidirectional, lazy, naive, stoch",
    "train --method=paper --options.partitons=3": "unknown option of method paper 'partitons'; did you mean",
    "train --candidates={kind: ful}": "unknown candidates.kind 'ful'; did you mean 'full'?",
    "train --candidates={factor: 0}": "factor must be a number ≥ 1, got 0",
    "train --candidates={kind: full, every: x}": "every must be a whole number ≥ 1, got 'x'",
    "train --method=paper --objective={redundency: 1}": "unknown term 'redundency'; did you mean 'redundancy'?",
    "train --data=null": "data must be a mapping of names to values, got 'null'",
    "train --data={nam: digits}": "unknown option --data.nam; did you mean --data.name?",
    "train --data.name=digit": "unknown data set 'digit'; did you mean 'digits'?",
    "train --data.name=": "unknown data set ''",
    "train --data.name=os:getcwd": "what os:getcwd returns must be (train, test)",
    "train --data.name=[]": "unknown data set '[]'",
    "train --data.train_size=5": "batch_size must be at most the dataset's 5 samples, got 50",
    "train --data.hidden_imbalance 5 --data.imbalance 5": "data.imbalance and data.hidden_imbalance cannot be combined",
    "train --model=null": "model must be a mapping of names to values, got 'null'",
    "train --model={nam: mlp}": "unknown option --model.nam; did you mean --model.name?",
    "train --model.name=resnet18": "unknown model 'resnet18'; did you mean 'resnet8'?",
    "train --model.name=": "unknown model ''",
    "train --model.name=[]": "unknown model '[]'",
    "train --optimizer=null": "optimizer must be a mapping of names to values, got 'null'",
    "train --schedule=null": "schedule must be a mapping of names to values, got 'null'",
    "train --schedule.milestones=[0]": "schedule.milestones must be fractions of the run in (0, 1), got [0.0]",
    "train --schedule.milestones=[a]": "schedule.milestones must be a finite number, got 'a'",
    "train --loss_options={smoothing: 0.1}": "loss_options do not fit CrossEntropyLoss",
    "train --config=no/such/file.yaml": "no/such/file.yaml cannot be read",
    "train --config=/": "/ cannot be read",
    "train --config=.": ". cannot be read",
    "train --resume=": ". is not the folder of a run",
    "train --resume=no/such/folder": "no/such/folder is not the folder of a run",
    "train --resume=.": ". is not the folder of a run",
    "train --resume x --epochs 3": "a resumed run keeps its config: leave out epochs",
    "train --epoch 3": "unknown option --epoch; did you mean --epochs?",
    "train --strategy uniform": "unknown option --strategy",
    "train --method=paper --objective.preset paper": "unknown term 'preset'",
    "train --selection.refresh_every 5": "did you mean --options.refresh_every?",
    "train --method uniform --options.pressure 3": "method uniform takes no options, got 'pressure'",
    "train --method uniform --objective.redundancy 1": "method uniform has no objective: leave out",
    "train --method=observed --candidates.kind full --candidates.replacement true": "Full(replacement=True) needs",
    "train --method=paper --objective.log_determinant 1 --objective.noise 1e-30": "log_determinant needs noise of",
    "compare --methods=papper": "unknown method 'papper'; did you mean 'paper'?",
    "compare --methods=uniform,papper": "unknown method 'papper'; did you mean 'paper'?",
    "compare --methods=os:system,uniform": "method os:system cannot make its strategy",
    "compare --methods=uniform,loss[a=1]": "unknown option of method loss 'a'",
    "compare --methods=loss[a": "a method with options must be NAME[option=value;option=value], got 'loss[a'",
    "compare --protocols=step": "unknown protocol 'step'; did you mean 'steps'?",
    "compare --protocols=steps,tim": "unknown protocol 'tim'; did you mean 'time'?",
    "compare --protocols=[]": "unknown protocol '[]'",
    "compare --seed 3": "--seed is not an option of smdl compare: use --seeds",
    "compare --method 3": "--method is not an option of smdl compare: use --methods",
    "compare --options.x 3": "--options.x is not an option of smdl compare: use --methods",
    "compare --candidates.every 3": "--candidates.every is not an option of smdl compare: use --methods",
    "compare --strategies 3": "unknown option --strategies",
    "compare --seeds auto --minutes 3": "give --seeds auto or --minutes, not both",
    "ablate": "required: sweep",
    "ablate distanc": "unknown sweep 'distanc'; did you mean 'distance'?",
    "ablate distance --values cosin": "unknown value for distance 'cosin'; did you mean 'cosine'?",
    "ablate learning-rate --values fast": "values for learning-rate must be numbers such as 0.001, got fast",
    "ablate batch-size --values 1.5": "values for batch-size must be numbers such as 200, got 1.5",
    "ablate distance --method paper": "--method is not an option of smdl ablate: the sweep sets it",
    "reproduce": "required: item",
    "reproduce table-9": "unknown item 'table-9'",
    "reproduce table-1 --scale tiny": "unknown --scale 'tiny'",
    "reproduce table-1 --seeds 0": "--seeds: expected a whole number ≥ 1, got '0'",
    "reproduce table-1 --scale paper --data.root no/such/folder": "scale paper needs cifar10, cifar100, svhn",
    "report": "required: folders",
    "report no/such/folder": "no/such/folder holds neither an experiment",
    "report .": ". holds neither an experiment",
    "report --html .": "unknown option --html",
    "data": "required: action",
    "data lst": "unknown action 'lst'; did you mean 'list'?",
    "data get": "smdl data get needs the name of a data set",
    "data get cifar11": "unknown downloadable data set 'cifar11'; did you mean 'cifar10'?",
    "doctor extra": "unrecognized arguments: extra",
}


def said(argv: list[str]) -> list[str]:
    """Return what the message has to say: of a wrong value, the last part of its option and the value."""
    if " ".join(argv) in SAID:
        return [SAID[" ".join(argv)]]
    option, value = argv[-1].split("=")
    return [option.lstrip("-").rpartition(".")[2], {"null": "None", "true": "rue"}.get(value, value)]


def check(argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> str:
    """Run a wrong command and return its message."""
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
    return lines[0]


def with_marks(commands: list[list[str]]) -> Iterator[Any]:
    """Mark the commands that the fast tests leave out: two wrong values of an option are enough for them."""
    seen = Counter()
    for argv in commands:
        option, given, _ = argv[-1].partition("=")
        seen[option] += bool(given)
        yield pytest.param(argv, marks=pytest.mark.slow) if seen[option] > 2 else argv


@pytest.mark.parametrize("argv", list(with_marks(COMMANDS)), ids=" ".join)
def test_a_wrong_command_is_one_line_that_names_what_is_wrong(argv, tmp_path, monkeypatch, capsys):
    message = check(argv, tmp_path, monkeypatch, capsys)
    assert all(part in message for part in said(argv)), (said(argv), message)


@pytest.mark.parametrize(("content", "said"), FILES.items(), ids=repr)
def test_a_wrong_config_file_is_one_line_that_names_what_is_wrong(content, said, tmp_path, monkeypatch, capsys):
    (tmp_path / "wrong.yaml").write_text(content)
    message = check(["train", "--config", "wrong.yaml"], tmp_path, monkeypatch, capsys)
    assert said in message


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("--lr", "--optimizer.lr"),
        ("--width", "--model.width"),
        ("--name", "--data.name or --model.name or --optimizer.name or --schedule.name"),
        ("--batchsize", "--batch_size"),
    ],
)
def test_an_unknown_option_names_the_options_that_may_be_meant(option, meant, tmp_path, monkeypatch, capsys):
    message = check(["train", option, "3"], tmp_path, monkeypatch, capsys)
    assert message == f"smdl: unknown option {option}; did you mean {meant}? See smdl train --help-all"


@pytest.mark.parametrize(
    "argv",
    [
        ["train", "--epochs", "1", "--epochs=2"],
        ["train", "--objective.redundancy=1", "--objective.redundancy=2"],
        ["select", "x.npy", "--size", "10", "--size", "20"],
        ["dedup", "x.npy", "--keep", "first", "--keep", "first"],
        ["score", "--features", "a", "x.npy", "--features", "b"],
    ],
    ids=" ".join,
)
def test_an_option_that_is_given_twice_is_an_error(argv, tmp_path, monkeypatch, capsys):
    option = next(part for part in argv if part.startswith("--")).partition("=")[0]
    assert check(argv, tmp_path, monkeypatch, capsys) == f"smdl: {option} is given twice: give it once"


@pytest.mark.parametrize("command", ["train", "select x.npy --size 5"])
def test_an_objective_has_a_name_or_terms(command, tmp_path, monkeypatch, capsys):
    argv = [*command.split(), "--objective", "redundancy", "--objective.distance", "cosine"]
    assert "--objective and --objective.distance are both given" in check(argv, tmp_path, monkeypatch, capsys)


def test_configs_are_laid_over_one_another_and_a_plus_appends(tmp_path):
    for name, text in (("a", "{epochs: 3, seed: 4}"), ("b", "seed: 5")):
        (tmp_path / f"{name}.yaml").write_text(text)
    found = parse("train", "", ["--config", f"{tmp_path}/a.yaml", f"--config={tmp_path}/b.yaml"]).config
    assert (found.epochs, found.seed) == (3, 5)
    for words in (["--schedule.milestones+=0.8", "--schedule.milestones+=0.9"], ["--schedule.milestones+", "0.8"] * 2):
        usual = parse("train", "", []).config.schedule.milestones
        added = [float(word.rpartition("=")[2]) for word in words if "0." in word]
        assert parse("train", "", words).config.schedule.milestones == [*usual, *added]
