"""Options: the command line of whatever trains, made of TrainConfig's fields."""

import re
import sys
from difflib import get_close_matches
from typing import Any, NoReturn

from smdl.training.config import TrainConfig

_TEXT = {"type": str | None, "default": None}
_QUIET = {"action": "store_true", "help": "show nothing but the result"}
_JOBS = {
    "type": int | None,
    "default": None,
    "help": "runs side by side, one thread each; as many as cores by default",
}

#: command -> (usage, what it does, its own options)
COMMANDS: dict[str, tuple[str, str, dict[str, dict[str, Any]]]] = {
    "train": (
        "smdl train [--config FILE] [options]\n       smdl train --resume DIR",
        "Train a network.",
        {
            "--out": {**_TEXT, "help": "folder of the run; runs/DATA-STRATEGY-SEED unless given"},
            "--resume": {**_TEXT, "help": "folder of an interrupted run to go on with"},
            "--quiet": _QUIET,
        },
    ),
    "compare": (
        "smdl compare [--strategies A,B,...] [--seeds N|auto | --minutes M] [--config FILE] [options]",
        "Train every strategy over several seeds and say whether it pays. The same command goes on where it stopped.",
        {
            "--strategies": {
                "type": str,
                "default": "uniform,loss,paper,recommended",
                "help": "of uniform (the baseline), loss, paper, paper_subset, recommended and package.module:Class",
            },
            "--seeds": {"type": int | str, "default": 5, "help": "or auto: until differences are known to 0.5 points"},
            "--minutes": {"type": float | None, "default": None, "help": "as many seeds and steps as fit"},
            "--protocols": {"type": str, "default": "steps,time", "help": "equal steps, equal time"},
            "--jobs": _JOBS,
            "--out": {**_TEXT, "help": "folder of the comparison; runs/compare-DATA unless given"},
            "--quiet": _QUIET,
        },
    ),
    "ablate": (
        "smdl ablate SWEEP [--values A,B,...] [--seeds 3] [--config FILE] [options]",
        "Vary one thing at equal epochs.",
        {
            "--values": {**_TEXT, "help": "instead of the paper's"},
            "--seeds": {"type": int, "default": 3, "help": "runs of each"},
            "--jobs": _JOBS,
            "--out": {**_TEXT, "help": "folder; runs/ablate-SWEEP-DATA unless given"},
            "--quiet": _QUIET,
        },
    ),
}


def parser_of(command: str) -> Any:
    """The parser of `smdl COMMAND`: its own options, and all of TrainConfig."""
    import jsonargparse
    import yaml

    class Parser(jsonargparse.ArgumentParser):
        """Errors in one line, with the name that was probably meant."""

        def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
            known = [option for action in self._actions for option in action.option_strings]
            print(f"smdl: {_hint(message, known, command)}", file=sys.stderr)
            sys.exit(2)

    def read(text: str) -> Any:
        values = yaml.safe_load(text)
        if isinstance(values, dict) and isinstance(values.get("objective"), str):
            values["objective"] = {"preset": values["objective"]}
        return values

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    jsonargparse.set_loader("smdl", read, exceptions=(yaml.YAMLError,))
    usage, about, extra = COMMANDS[command]
    parser = Parser(
        prog=f"smdl {command}",
        usage=usage,
        description=f"{about} What is not given has the default shown; --objective X is --objective.preset X.",
        parser_mode="smdl",
        default_env=False,
    )
    parser.add_argument("--config", action="config", help="YAML file that says what differs from the defaults")
    for name, options in extra.items():
        parser.add_argument(name, **options)
    parser.add_class_arguments(TrainConfig, as_group=False)
    return parser


def parse(command: str, arguments: list[str]) -> tuple[Any, TrainConfig]:
    """(the command's own options, the config)."""
    parser = parser_of(command)
    options = parser.parse_args([_rewritten(argument) for argument in arguments])
    made = parser.instantiate(options)
    return options, TrainConfig(**{name: getattr(made, name) for name in TrainConfig.__dataclass_fields__})


def _rewritten(argument: str) -> str:
    """--objective paper -> --objective.preset paper."""
    return re.sub(r"^--objective(?==|$)", "--objective.preset", argument)


def _hint(message: str, options: list[str], command: str) -> str:
    """The message, and for an option that does not exist the one that is nearest."""
    pattern = r"unrecognized arguments: (--\S+)|Option '([^']+)' is not accepted|does not accept option '([^']+)'"
    found = re.search(pattern, message)
    if not found:
        return message
    name = next(group for group in found.groups() if group).lstrip("-").partition("=")[0]
    if group := re.search(r"Group '([^']+)'", message):
        name = f"{group[1]}.{name}"
    close = get_close_matches(name, [option.lstrip("-") for option in options], n=1)
    meant = f"; did you mean {close[0]}?" if close else ""
    return f"unknown option {name}{meant} (smdl {command} --help lists all)"
