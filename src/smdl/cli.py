"""The smdl command: parses, calls, prints; no logic. Nothing heavy is imported before it is needed."""

import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from smdl.errors import unknown

USAGE = """smdl, the SubModular Data Loader

usage: smdl COMMAND [options]

  train     train a network on submodular, loss-based or uniform batches
  data      list the data sets, or download one
  doctor    what is here, and what would fail

smdl COMMAND --help tells more.
"""

DATA_USAGE = """usage: smdl data list
       smdl data get NAME [--root DIR]

list   the data sets, their sizes, and where they were found
get    download one, with its checksum verified; a broken download goes on where it stopped
"""


def main(argv: list[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] in ("-V", "--version"):
        from smdl import __version__

        print(f"smdl {__version__}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        return _fail(unknown("command", command, COMMANDS), 2)
    try:
        return COMMANDS[command](arguments[1:])
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "interrupted", 128 + getattr(stop, "number", 2))
    except (ValueError, OSError) as error:
        return _fail(str(error), 2 if isinstance(error, ValueError) else 1)
    except RuntimeError as error:
        if type(error).__name__ != "DivergedError":
            raise
        return _fail(str(error), 1)


def train(arguments: list[str]) -> int:
    """smdl train [--config FILE] [overrides]; smdl train --resume DIR."""
    parser = train_parser()
    options = parser.parse_args([*_rewritten(arguments)])
    if options.resume and len(arguments) > (1 if arguments[0].startswith("--resume=") else 2):
        raise ValueError("a resumed run keeps its config: leave out all options but --resume DIR")
    made = parser.instantiate(options)

    from smdl.training import loop
    from smdl.training.config import TrainConfig
    from smdl.training.progress import display

    shown = display(options.quiet)
    if options.resume:
        summary = loop.resume(Path(options.resume), shown)
    else:
        config = TrainConfig(**{name: getattr(made, name) for name in TrainConfig.__dataclass_fields__})
        name = f"{Path(config.data.name.replace(':', '.')).name}-{_strategy_name(config)}-{config.seed}"
        summary = loop.train(config, Path(options.out or Path("runs") / name), shown)
    final = summary["final"]
    print(f"test error {final['test_error']:.2%}, test loss {final['test_loss']:.4f} after {summary['steps']} steps")
    print(f"config, metrics, weights: {summary['folder']}")
    return 0


def data(arguments: list[str]) -> int:
    """smdl data list | get NAME."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(DATA_USAGE, end="")
        return 0
    root = None
    if "--root" in arguments[:-1]:
        at = arguments.index("--root")
        root = arguments[at + 1]
        arguments = arguments[:at] + arguments[at + 2 :]
    from smdl.training.datasets import catalogue

    if arguments == ["list"]:
        from rich.console import Console
        from rich.table import Column, Table

        table = Table("name", "what", "download", Column("where", overflow="fold"), show_edge=False)
        table.add_row("digits", "1,797 grey digits, 8 × 8, 10 classes", "", "in scikit-learn")
        for name, about, size, folder in catalogue.catalogue(root):
            table.add_row(name, about, f"{size / 1e6:.0f} MB", str(folder or f"smdl data get {name}"))
        Console().print(table)
        return 0
    if len(arguments) == 2 and arguments[0] == "get":
        print(f"{arguments[1]} is in {catalogue.get(arguments[1], root)}")
        return 0
    return _fail(f"smdl data takes list, or get NAME; got {' '.join(arguments)}\n\n{DATA_USAGE}", 2)


def doctor(arguments: list[str]) -> int:
    """smdl doctor."""
    if arguments:
        print("usage: smdl doctor\n\nreports versions, devices, threads, data found, and what would fail")
        return 0 if arguments[0] in ("-h", "--help") else 2
    from smdl.training.doctor import report

    return report()


COMMANDS: dict[str, Callable[[list[str]], int]] = {"data": data, "doctor": doctor, "train": train}


def train_parser() -> Any:
    """The parser of `smdl train`: the fields of TrainConfig, and where the run goes."""
    import jsonargparse
    import yaml

    from smdl.training.config import TrainConfig

    class Parser(jsonargparse.ArgumentParser):
        """Errors in one line, with the name that was probably meant."""

        def error(self, message: str, ex: Exception | None = None) -> NoReturn:  # noqa: ARG002
            _fail(_hint(message, [option for action in self._actions for option in action.option_strings]), 2)
            sys.exit(2)

    def read(text: str) -> Any:
        values = yaml.safe_load(text)
        if isinstance(values, dict) and isinstance(values.get("objective"), str):
            values["objective"] = {"preset": values["objective"]}
        return values

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    jsonargparse.set_loader("smdl", read, exceptions=(yaml.YAMLError,))
    parser = Parser(
        prog="smdl train",
        usage="smdl train [--config FILE] [options]\n       smdl train --resume DIR",
        description="Train a network; what is not given has the default shown. --objective paper is short for "
        "--objective.preset paper.",
        parser_mode="smdl",
        default_env=False,
    )
    parser.add_argument("--config", action="config", help="YAML file that says what differs from the defaults")
    parser.add_argument("--out", type=str | None, help="folder of the run; runs/DATA-STRATEGY-SEED unless given")
    parser.add_argument("--resume", type=str | None, help="folder of an interrupted run to go on with")
    parser.add_argument("--quiet", action="store_true", help="show nothing but the result")
    parser.add_class_arguments(TrainConfig, as_group=False)
    return parser


def _rewritten(arguments: list[str]) -> list[str]:
    """--objective paper -> --objective.preset paper."""
    return [re.sub(r"^--objective(?==|$)", "--objective.preset", argument) for argument in arguments]


def _strategy_name(config: Any) -> str:
    if config.strategy == "smdl":
        return config.objective.preset or ("custom" if config.objective.given() else "recommended")
    return config.strategy.replace(":", ".")


def _hint(message: str, options: list[str]) -> str:
    """The message, and for an option that does not exist the one that is nearest."""
    found = re.search(
        r"unrecognized arguments: (--\S+)|Option '([^']+)' is not accepted|does not accept option '([^']+)'", message
    )
    if not found or not any(found.groups()):
        return message
    name = next(group for group in found.groups() if group).lstrip("-").partition("=")[0]
    if group := re.search(r"Group '([^']+)'", message):
        name = f"{group[1]}.{name}"
    close = get_close_matches(name, [option.lstrip("-") for option in options], n=1)
    return (
        f"unknown option {name}" + (f"; did you mean {close[0]}?" if close else "") + " (smdl train --help lists all)"
    )


def _fail(message: str, code: int) -> int:
    print(f"smdl: {message}", file=sys.stderr)
    return code
