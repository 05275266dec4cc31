"""Options of the commands: each command's own, and the fields of TrainConfig for a command that trains."""

import argparse
import re
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, cast

import jsonargparse
import yaml

from smdl.errors import choice, unknown
from smdl.experiments.regimes import REGIMES
from smdl.experiments.sweeps import ABOUT, PAPER_ITEMS, SCALES

CONFIGS = Path(__file__).parent / "configs"


def _whole(value: Any) -> int:
    """Type of an option: a whole number ≥ 1. jsonargparse applies a type to its own results, too."""
    if not str(value).isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number ≥ 1, got {value!r}")
    return int(value)


def _whole_or_auto(value: Any) -> int | str:
    return value if value == "auto" else _whole(value)


def _names(value: Any) -> list[str]:
    """Type of an option: names separated by commas."""
    names = value if isinstance(value, list) else [name.strip() for name in value.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError(f"expected names separated by commas, got {value!r}")
    return names


@dataclass(frozen=True)
class Command:
    """The options of one command.

    own       its own options, as `add_argument` of a parser takes them
    main      options of TrainConfig that --help shows; none if the command does not train
    refused   options of TrainConfig that it does not take, and what to do instead
    choices   the values of its argument, and what they mean
    """

    usage: str
    examples: tuple[str, ...]
    own: dict[str, dict[str, Any]]
    main: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)


_MAIN = ("--config", "--data.name", "--data.root", "--model.name", "--epochs", "--batch_size", "--optimizer.lr")
_OPEN = ("objective", "options", "candidates")  # the method knows the names that may follow
_METHOD = ("method", *_OPEN)
_JOBS = {"type": _whole_or_auto, "default": "auto", "help": "parallel runs; auto: one per core"}
_QUIET = {"action": "store_true", "help": "show only the result"}


def _out(default: str) -> dict[str, Any]:
    return {"type": Path, "help": f"folder (default: runs/{default})"}


COMMANDS = {
    "train": Command(
        "smdl train [--method NAME] [--config NAME] [options] | smdl train --resume DIR",
        (
            "smdl train --config digits --method loss --options.pressure 50",
            "smdl train --config cifar10 --data.root DIR --epochs 20 --optimizer.lr 0.05",
            "smdl train --resume runs/digits-loss-0",
        ),
        {
            "--out": _out("DATA-METHOD-SEED"),
            "--resume": {"type": Path, "help": "folder of an interrupted run to resume"},
            "--tracker": {"type": str, "help": "where numbers go: tensorboard, or package.module:Class"},
            "--quiet": _QUIET,
        },
        main=("--method", *_MAIN, "--seed"),
    ),
    "compare": Command(
        "smdl compare [--methods A,B,...] [--regimes A,B,...] [--seeds N|auto | --minutes M] [--config NAME] [options]",
        (
            "smdl compare --config digits --regimes clean,long-tail,noisy --methods uniform,balanced,recommended",
            "smdl compare --config cifar10 --methods uniform,recommended,my_package.my_module:method --minutes 30",
        ),
        {
            "--methods": {
                "type": _names,
                "default": "uniform,balanced,recommended",
                "help": "names or package.module:name; baseline: uniform, else the first; NAME@0.7: 0.7 of its time",
            },
            "--regimes": {
                "type": _names,
                "help": f"{', '.join(REGIMES)}; or long-tail=50",
            },
            "--seeds": {"type": _whole_or_auto, "default": 5, "help": "runs per method; auto: 5, 10 or 20, as needed"},
            "--minutes": {"type": float, "help": "train as many seeds and steps as fit"},
            "--protocols": {"type": _names, "default": "steps,time", "help": "equal steps, equal time"},
            "--tune_lr": {"action": "store_true", "help": "first tune the learning rate of each method: ½, 1 or 2 ×"},
            "--jobs": _JOBS,
            "--out": _out("compare-DATA"),
            "--quiet": _QUIET,
        },
        main=_MAIN,
        refused={**dict.fromkeys(_METHOD, "use --methods"), "seed": "use --seeds"},
    ),
    "preview": Command(
        "smdl preview [--methods A,B,...] [--config NAME] [options]",
        ("smdl preview --config digits", "smdl preview --config cifar10 --methods uniform,recommended,paper"),
        {
            "--methods": {"type": _names, "help": "by default all that train no second model"},
            "--seconds": {"type": float, "default": 20.0, "help": "time for the measurement"},
            "--quiet": _QUIET,
        },
        main=_MAIN,
        refused={**dict.fromkeys(_METHOD, "use --methods"), "seed": "it changes no cost"},
    ),
    "ablate": Command(
        "smdl ablate SWEEP [--values A,B,...] [--seeds N] [--config NAME] [options]",
        ("smdl ablate distance --config digits", "smdl ablate batch-size --values 16,64 --config digits"),
        {
            "sweep": {"metavar": "SWEEP", "choices": tuple(ABOUT), "help": "what to vary, see below"},
            "--values": {"type": _names, "help": "values, separated by commas"},
            "--seeds": {"type": _whole, "default": 3, "help": "runs per value"},
            "--jobs": _JOBS,
            "--out": _out("ablate-SWEEP-DATA"),
            "--quiet": _QUIET,
        },
        main=_MAIN,
        refused={**dict.fromkeys(_METHOD, "the sweep sets it"), "seed": "use --seeds"},
        choices=ABOUT,
    ),
    "reproduce": Command(
        "smdl reproduce ITEM [--scale SCALE] [options]",
        ("smdl reproduce table-1", "smdl reproduce all --scale small --data.root DIR"),
        {
            "item": {"metavar": "ITEM", "choices": (*PAPER_ITEMS, "all"), "help": "table or figure, see below"},
            "--scale": {"choices": SCALES, "default": "smoke", "help": "a minute, half an hour, or days on a GPU"},
            "--seeds": {"type": _whole, "help": "runs per method (default: 2, 3 or 5, by scale)"},
            "--jobs": _JOBS,
            "--out": _out("reproduce-SCALE"),
            "--data.root": {"dest": "root", "help": "folder of the data sets"},
            "--quiet": _QUIET,
        },
        choices={**PAPER_ITEMS, "all": "every item"},
    ),
    "select": Command(
        "smdl select FILE ... --size N [--objective NAME] [--out FILE] [options]",
        (
            "smdl select embeddings.npy --size 10000 --out chosen.parquet",
            "smdl select 's3://bucket/*.parquet' --fraction 0.05 --objective.redundancy 1 --engine ray --explain",
            "smdl select reviews.parquet --text body --model models/all-MiniLM-L6-v2 --size 1000",
        ),
        {
            "inputs": {
                "nargs": "+",
                "metavar": "FILE",
                "help": "files, patterns or folders: .npy .npz .safetensors .parquet .csv",
            },
            "--size": {"type": _whole, "help": "how many rows to choose"},
            "--fraction": {"type": float, "help": "share of the rows to choose, instead of --size"},
            "--objective": {
                "type": str | dict[str, Any],
                "default": "facility_location",
                "help": "preset or term; or --objective.TERM 1",
            },
            "--out": {
                "type": Path,
                "default": Path("chosen.csv"),
                "help": ".parquet, .csv, .json, or .npy (row numbers)",
            },
            "--features": {"type": _names, "help": "columns; by default the only matrix, or all numbers"},
            "--text": {"type": str, "help": "column of text, instead of --features: its embeddings are the features"},
            "--model": {"type": str, "help": "sentence-embedding model for --text: a folder, or a name in the cache"},
            "--labels": {"type": str, "help": "column, or a file with one row per row; so for the next four"},
            "--probabilities": {"type": str, "help": "columns of a classifier's probabilities"},
            "--groups": {"type": str, "help": "column of groups"},
            "--costs": {"type": str, "help": "column of costs; with --budget instead of --size"},
            "--ids": {"type": str, "help": "column to copy into the output"},
            "--per_group": {"type": _whole, "help": "most rows to choose per group"},
            "--budget": {"type": float, "help": "most that the chosen rows may cost together"},
            "--initial": {"type": str, "help": "file of rows that are chosen already: the others complement them"},
            "--query": {"type": str, "help": "file of rows that the choice is to be about"},
            "--exclude": {"type": str, "help": "file of rows that may not be chosen: an output, or row numbers"},
            "--partitions": {
                "type": _whole,
                "help": "random parts to choose from first; by default by the number of rows",
            },
            "--seed": {"type": int, "default": 0, "help": "same seed, same rows"},
            "--engine": {"type": str, "default": "local", "help": "local, or ray"},
            "--threads": {"type": _whole, "help": "by default one per core"},
            "--skip_nan": {
                "action": "store_true",
                "help": "leave out rows with numbers that are not finite, or no text",
            },
            "--shuffled": {"action": "store_true", "help": "rows are in random order: parts are ranges, read once"},
            "--explain": {"action": "store_true", "help": "print the plan and its costs; choose nothing"},
            "--quiet": _QUIET,
        },
    ),
    "report": Command(
        "smdl report [--markdown] DIR [DIR ...]",
        ("smdl report runs/compare-digits", "smdl report --markdown runs/reproduce-smoke/main-digits"),
        {
            "folders": {"nargs": "+", "metavar": "DIR", "help": "folder of a run, an experiment or smdl reproduce"},
            "--markdown": {"action": "store_true", "help": "print the tables of an experiment as Markdown instead"},
        },
    ),
    "data": Command(
        "smdl data list [--root DIR] | smdl data get NAME [--root DIR]",
        ("smdl data list", "smdl data get cifar10 --root DIR"),
        {
            "action": {"metavar": "ACTION", "choices": ("list", "get"), "help": "list or get"},
            "name": {"nargs": "?", "metavar": "NAME", "help": "data set to download"},
            "--root": {"help": "folder of the data sets (default: the cache)"},
        },
        choices={"list": "list the data sets and their folders", "get": "download one; a broken download resumes"},
    ),
    "doctor": Command("smdl doctor", ("smdl doctor",), {}),
}


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with defaults. The last part of a dotted name is the name of its value."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _get_help_string(self, action: argparse.Action) -> str:
        hidden = not action.option_strings or any(action.default is no for no in (None, False, argparse.SUPPRESS))
        text = action.help or ""
        return text if hidden or "%(default)s" in text else f"{text} (default: %(default)s)"

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return action.dest.rpartition(".")[2].upper()


class _HelpAll(argparse._HelpAction):
    """Print the help with every option. Those of the objective come from Objective, which imports torch."""

    def __call__(self, parser: Any, *arguments: Any) -> None:
        parser.brief = False
        if "--objective" in parser._option_string_actions:
            from smdl.engine.objective import OPTIONS, Objective

            weights = [f"  --objective.{name} WEIGHT" for name in Objective.terms()]
            options = [f"  --objective.{name} {name.upper()}" for name in OPTIONS]
            parser.epilog = "\n".join(["objective:", *weights, *options, "", parser.epilog])
        super().__call__(parser, *arguments)


class _StrictLoader(yaml.SafeLoader):
    """Refuses a name that is given twice: YAML would silently take the last value."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        names = [key.value for key, _ in node.value]
        twice = sorted({str(name) for name in names if names.count(name) > 1})
        if twice:
            raise yaml.YAMLError(f"{', '.join(twice)} is given twice, line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


class _Config(jsonargparse.ActionConfigFile):  # pyright: ignore[reportPrivateImportUsage]
    """A config of smdl by its name, or a YAML file."""

    def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
        path = Path(values)
        if path.name == values and not path.suffix:
            path = CONFIGS / f"{values}.yaml"
            if not path.exists():
                known = [config.stem for config in CONFIGS.glob("*.yaml")]
                raise ValueError(f"{unknown('config', values, known)}, or a file such as ./{values}.yaml")
        try:
            parser.check_names(yaml.load(path.read_text(), _StrictLoader))
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
        super().__call__(parser, cfg, str(path), option_string)


class Parser(jsonargparse.ArgumentParser):
    """The parser of one command. Bad input raises a ValueError with a message of one line."""

    command, brief, own = COMMANDS["doctor"], False, list[argparse.Action]()

    def declare(self, command: Command) -> None:
        """Add the options of a command."""
        self.command, self.brief, self.usage = command, bool(command.main), command.usage
        choices = [*(f"  {name:<18}{about}" for name, about in command.choices.items()), *[""] * bool(command.choices)]
        self.epilog = "\n".join([*choices, "examples:", *(f"  {example}" for example in command.examples)])
        self.own = [
            cast(argparse.Action, self.add_argument(name, **settings)) for name, settings in command.own.items()
        ]
        if command.main:
            from smdl.training.config import TrainConfig

            jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
            self.add_argument("--help-all", action=_HelpAll, help="show every option and exit")
            self.add_argument("--config", action=_Config, help="name of a config of smdl, or a YAML file")
            self.add_class_arguments(TrainConfig, as_group=False, skip=set(command.refused))
            for action in self._actions:
                if action.help is None and action.default is not None:
                    action.help = "default: %(default)s"

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Return the command's own options; if it trains, also its `config`; and the names of the `given` options, of
        `--optimizer.lr` the first part."""
        try:
            parsed = self.parse_args(arguments)
            options: dict[str, Any] = {action.dest: parsed[action.dest] for action in self.own}
            if self.command.main:
                from smdl.training.config import TrainConfig

                made = self.instantiate(parsed)
                known = [entry.name for entry in fields(TrainConfig) if entry.name not in self.command.refused]
                options["config"] = TrainConfig(**{name: made[name] for name in known})
        except (argparse.ArgumentTypeError, TypeError) as error:
            raise ValueError(" ".join(str(error).split())) from error
        given = {re.split("[.=]", argument[2:])[0] for argument in arguments if argument.startswith("--")}
        return argparse.Namespace(**options, given=given)

    def check_names(self, values: Any, prefix: str = "--") -> None:
        """Raise a ValueError if a config file sets something that is not an option."""
        if not isinstance(values, dict):
            raise ValueError(choice(prefix.strip("-.") or "a config", values, "a mapping of names to values"))
        for name, value in values.items():
            option, known = f"{prefix}{name}", self._option_string_actions
            if any(other.startswith(f"{option}.") for other in known):
                self.check_names(value, f"{option}.")
            elif option not in known:
                raise ValueError(self._unknown(option))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise ValueError(" ".join(message.split())) from ex

    def format_help(self, formatter: Any = None) -> str:
        if not self.brief:
            return super().format_help(*([formatter] if formatter else []))  # given since Python 3.15
        formatter = self.formatter_class(self.prog)
        formatter.add_usage(self.usage, (), ())
        formatter.add_text(self.description)
        main = [self._option_string_actions[option] for option in self.command.main]
        for title, actions in (("options", self.own), ("training (--help-all shows every option)", main)):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _parse_optional(self, arg_string: str) -> Any:
        """Tell argparse whether an argument is an option, and refuse an unknown one."""
        found = super()._parse_optional(arg_string)
        match found:  # a tuple in Python 3.11, a list of tuples in later versions
            case [None, str(option), *_] | [[None, str(option), *_]]:
                raise ValueError(self._unknown(option.partition("=")[0]))
        return found

    def _unknown(self, option: str) -> str:
        root, _, rest = option.lstrip("-").partition(".")
        if root in self.command.refused:
            return f"{option} is not an option of {self.prog}: {self.command.refused[root]}"
        known = [*self._option_string_actions, *(f"--{name}.{rest}" for name in _OPEN if rest)]
        close = get_close_matches(option, known, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        return f"unknown option {option}{hint} See {self.prog} {'--help-all' if self.command.main else '--help'}"


def parse(name: str, about: str, arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments of a command."""
    parser = Parser(f"smdl {name}", description=about, formatter_class=_Formatter, allow_abbrev=False)
    parser.declare(COMMANDS[name])
    return parser.parse(arguments)
