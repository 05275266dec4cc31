"""Options of the commands: each command's own, and for those that train the fields of TrainConfig."""

import argparse
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import jsonargparse
import yaml

from smdl.errors import unknown
from smdl.experiments.sweeps import ABOUT, PAPER_ITEMS, SCALES
from smdl.training.config import TrainConfig

CONFIGS = Path(__file__).parent / "configs"


def whole_number(value: Any) -> int:
    """Type of an option: a whole number ≥ 1. Types are applied to their own results, too."""
    if not str(value).isdecimal() or int(value) < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a whole number ≥ 1")
    return int(value)


def whole_number_or_auto(value: Any) -> int | str:
    return value if value == "auto" else whole_number(value)


def names(value: Any) -> list[str]:
    """Type of an option: names separated by commas."""
    found = value if isinstance(value, list) else [name.strip() for name in value.split(",") if name.strip()]
    if not found:
        raise argparse.ArgumentTypeError("give at least one name")
    return found


_QUIET = {"action": "store_true", "help": "show only the result"}
_JOBS = {"type": whole_number, "help": "parallel runs (default: one per core)"}
_CONFIG = ("--config", "--data.name", "--data.root", "--model.name", "--epochs", "--batch_size", "--optimizer.lr")
#: Options of TrainConfig that a plan of several runs sets by itself.
_PLANNED = ("method", "objective", "options", "candidates", "seed")


@dataclass(frozen=True)
class Options:
    """The options of one command.

    own          its own options, as jsonargparse.ArgumentParser.add_argument takes them
    main         options of TrainConfig that `--help` shows; None if the command takes none
    alone        options that exclude all others, except those in the value
    instead_of   options of TrainConfig that it refuses, and what to do instead
    choices      names of its first argument, and what they mean
    """

    usage: str
    own: dict[str, dict[str, Any]]
    examples: tuple[str, ...]
    main: tuple[str, ...] | None = None
    alone: dict[str, set[str]] = field(default_factory=dict)
    instead_of: dict[str, str] = field(default_factory=dict)
    choices: dict[str, str] = field(default_factory=dict)


COMMANDS = {
    "train": Options(
        "smdl train [--config NAME] [options] | smdl train --resume DIR",
        {
            "--out": {"type": Path | None, "help": "folder (default: runs/DATA-METHOD-SEED)"},
            "--resume": {"type": Path | None, "help": "folder of an interrupted run to resume"},
            "--quiet": _QUIET,
        },
        (
            "smdl train --config digits --method loss",
            "smdl train --config cifar10 --data.root DIR --epochs 20 --optimizer.lr 0.05",
            "smdl train --resume runs/digits-loss-0",
        ),
        ("--method", *_CONFIG, "--seed", "--device"),
        alone={"resume": {"quiet"}},
    ),
    "compare": Options(
        "smdl compare [--methods A,B,...] [--seeds N|auto | --minutes M] [--config NAME] [options]",
        {
            "--methods": {
                "type": names,
                "default": "uniform,loss,paper,recommended",
                "help": "names or package.module:name, separated by commas",
            },
            "--seeds": {
                "type": whole_number_or_auto,
                "default": 5,
                "help": "runs per method, or auto: until ±0.5 points",
            },
            "--minutes": {"type": float | None, "help": "as many seeds and steps as fit"},
            "--protocols": {"type": names, "default": "steps,time", "help": "equal steps, equal time"},
            "--jobs": _JOBS,
            "--out": {"type": Path | None, "help": "folder (default: runs/compare-DATA)"},
            "--quiet": _QUIET,
        },
        (
            "smdl compare --config digits",
            "smdl compare --config cifar10 --data.train_size 5000 --minutes 30",
            "smdl compare --methods uniform,recommended,my_package.my_module:method --seeds auto",
        ),
        _CONFIG,
        instead_of=dict.fromkeys(_PLANNED, "use --methods") | {"seed": "use --seeds"},
    ),
    "ablate": Options(
        "smdl ablate SWEEP [--values A,B,...] [--seeds N] [--config NAME] [options]",
        {
            "sweep": {"metavar": "SWEEP", "choices": tuple(ABOUT), "help": "what to vary, see the list below"},
            "--values": {"type": names, "help": "values, separated by commas"},
            "--seeds": {"type": whole_number, "default": 3, "help": "runs per value"},
            "--jobs": _JOBS,
            "--out": {"type": Path | None, "help": "folder (default: runs/ablate-SWEEP-DATA)"},
            "--quiet": _QUIET,
        },
        ("smdl ablate distance --config digits", "smdl ablate batch-size --values 16,64 --config digits"),
        _CONFIG,
        instead_of=dict.fromkeys(_PLANNED, "the sweep sets it") | {"seed": "use --seeds"},
        choices=ABOUT,
    ),
    "reproduce": Options(
        "smdl reproduce ITEM [--scale SCALE] [options]",
        {
            "item": {"metavar": "ITEM", "choices": (*PAPER_ITEMS, "all"), "help": "table or figure, see the list below"},
            "--scale": {
                "choices": SCALES,
                "default": "smoke",
                "help": "a minute, half an hour, or days on a GPU",
            },
            "--seeds": {"type": whole_number, "help": "runs per method (default: 2, 3 or 5, by scale)"},
            "--jobs": _JOBS,
            "--out": {"type": Path | None, "help": "folder (default: runs/reproduce-SCALE)"},
            "--data.root": {"type": str | None, "dest": "root", "help": "folder of the data sets"},
            "--quiet": _QUIET,
        },
        ("smdl reproduce table-1", "smdl reproduce all --scale small --data.root DIR"),
        choices={**PAPER_ITEMS, "all": "every item"},
    ),
    "report": Options(
        "smdl report [--markdown] DIR [DIR ...]",
        {
            "folders": {"nargs": "+", "metavar": "DIR", "help": "folder of a run, of an experiment or of smdl reproduce"},
            "--markdown": {"action": "store_true", "help": "print the tables of an experiment as Markdown instead"},
        },
        ("smdl report runs/compare-digits", "smdl report --markdown runs/reproduce-smoke/main-digits"),
    ),
    "data": Options(
        "smdl data list | smdl data get NAME [--root DIR]",
        {
            "action": {"choices": ("list", "get"), "metavar": "ACTION", "help": "list or get"},
            "name": {"nargs": "?", "metavar": "NAME", "help": "data set to download"},
            "--root": {"type": Path | None, "help": "folder of the data sets (default: the cache)"},
        },
        ("smdl data list", "smdl data get cifar10 --root DIR"),
        choices={
            "list": "list the data sets, their sizes, and where they were found",
            "get": "download one and check its checksum; a broken download resumes",
        },
    ),
    "doctor": Options("smdl doctor", {}, ("smdl doctor",)),
}  # fmt: skip


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Help with defaults. The last part of a dotted name is the name of its value."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)

    def _get_help_string(self, action: argparse.Action) -> str:
        text = action.help or ""
        shown = action.option_strings and not any(action.default is no for no in (None, False, argparse.SUPPRESS))
        return f"{text} (default: %(default)s)" if shown and "%(default)s" not in text else text

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        return action.dest.rpartition(".")[2].upper()


class _HelpAll(argparse._HelpAction):
    """Print the help with every option."""

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.brief = False
        parser.print_help()
        parser.exit()


class _Config(jsonargparse.ActionConfigFile):
    """A config of smdl by its name, or a YAML file."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        path = Path(values)
        if path.name == values and not path.suffix:
            path = CONFIGS / f"{values}.yaml"
            if not path.exists():
                known = [config.stem for config in CONFIGS.glob("*.yaml")]
                raise ValueError(f"{unknown('config', values, known)}, or a file such as ./{values}.yaml")
        try:
            parser.check_names(yaml.safe_load(path.read_text()))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not a YAML file: {' '.join(str(error).split())}") from error
        super().__call__(parser, namespace, str(path), option_string)


class Parser(jsonargparse.ArgumentParser):
    """The parser of one command. Bad input raises a ValueError with a message of one line."""

    def __init__(self, command: str, about: str) -> None:
        self.options = options = COMMANDS[command]
        choices = [f"  {name:<18}{meaning}" for name, meaning in options.choices.items()]
        epilog = [*choices, *([""] if choices else []), "examples:", *(f"  {example}" for example in options.examples)]
        super().__init__(
            prog=f"smdl {command}",
            usage=options.usage,
            description=about,
            epilog="\n".join(epilog),
            formatter_class=_Formatter,
            allow_abbrev=False,
        )
        own = [self.add_argument(name, **settings) for name, settings in options.own.items()]
        self.own = {action.dest for action in own}
        self.brief = options.main is not None
        if options.main is not None:
            self.add_argument("--config", action=_Config, help="name of a config of smdl, or a YAML file")
            self.add_argument("--help-all", action=_HelpAll, help="show every option and exit")
            jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
            self.add_class_arguments(TrainConfig, as_group=False, skip=set(options.instead_of))
            for action in self._actions:
                action.help = action.help or "default: %(default)s"

    def parse(self, arguments: list[str]) -> dict[str, Any]:
        """Return the command's own options; and the config, if the command trains."""
        try:
            parsed = self.parse_args(arguments)
            given = set(self.parse_args(arguments, defaults=False).as_dict())
            for name, others in self.options.alone.items():
                if name in given and (extra := given - {name, *others}):
                    raise ValueError(f"--{name} cannot be combined with {', '.join(sorted(extra))}")
            result = {name: parsed[name] for name in self.own}
            if self.options.main is not None:
                made = self.instantiate(parsed).as_dict()
                result["config"] = TrainConfig(**{f.name: made[f.name] for f in fields(TrainConfig) if f.name in made})
        except (argparse.ArgumentTypeError, TypeError) as error:
            raise ValueError(" ".join(str(error).split())) from error
        return result

    def check_names(self, values: Any, prefix: str = "--") -> None:
        """Raise a ValueError for a name in a config file that is not an option."""
        for name, value in values.items() if isinstance(values, dict) else ():
            option, known = f"{prefix}{name}", self._option_string_actions
            if isinstance(value, dict) and any(other.startswith(f"{option}.") for other in known):
                self.check_names(value, f"{option}.")
            elif option not in known:
                raise ValueError(self._unknown(option))

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        raise ValueError(" ".join(message.split())) from ex

    def format_help(self, formatter: Any = None) -> str:
        if not self.brief or self.options.main is None:
            return super().format_help() if formatter is None else super().format_help(formatter)
        formatter = self.formatter_class(self.prog)
        formatter.add_usage(self.usage, (), ())
        formatter.add_text(self.description)
        training = [self._option_string_actions[name] for name in self.options.main]
        own = [action for action in self._actions if action.dest in self.own]
        for title, actions in (("options", own), ("training, see --help-all for every option", training)):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _parse_optional(self, arg_string: str) -> Any:
        """Argparse's test whether an argument is an option: an unknown option ends here, with a hint."""
        found = super()._parse_optional(arg_string)
        match found:  # one tuple up to Python 3.11, since then a list of them
            case [None, str(option), *_] | [[None, str(option), *_]]:
                raise ValueError(self._unknown(option.partition("=")[0]))
        return found

    def _unknown(self, option: str) -> str:
        root = option.lstrip("-").partition(".")[0]
        if root in self.options.instead_of:
            return f"{option} is not an option of {self.prog}: {self.options.instead_of[root]}"
        close = get_close_matches(option, self._option_string_actions, n=1)
        hint = f"; did you mean {close[0]}?" if close else "."
        return f"unknown option {option}{hint} {self.prog} {'--help-all' if self.options.main else '--help'} lists all"
