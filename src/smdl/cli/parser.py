"""The parser of a command: its own options, and the fields of TrainConfig for a command that trains."""

import argparse
import re
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, cast

import jsonargparse
import yaml

from smdl.cli.options import COMMANDS, OPEN, Command
from smdl.common.messages import choice, unknown

#: How jsonargparse names the type of a value, and how a message does.
_KINDS = {
    "int": "a whole number",
    "float": "a finite number",
    "bool": "true or false",
    "str": "a text",
    "list": "a list",
    "dict": "a mapping of names to values",
    "NoneType": "null",
}
_WRONG_KIND = re.compile(
    r"""Parser key "([^"]+)": .*?((?:<class '\w+'>(?:, )?)+).* (?:Got|Given) value: ?(.*)"""
    r"""|Parser key "([^"]+)": Unable to load config '(.*?)' - .*"""
)
CONFIGS = Path(__file__).parents[1] / "training" / "configs"


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
        self._check_repeats(arguments)
        try:
            parsed = self.parse_args(arguments)
            options: dict[str, Any] = {action.dest: parsed[action.dest] for action in self.own}
            if self.command.main:
                from smdl.training.config import TrainConfig

                made = self.instantiate(parsed)
                known = [entry.name for entry in fields(TrainConfig) if entry.name not in self.command.refused]
                options["config"] = TrainConfig(**{name: made[name] for name in known})
        except (argparse.ArgumentTypeError, TypeError) as error:
            self.error(str(error), error)
        given = {re.split("[.=]", argument[2:])[0] for argument in arguments if argument.startswith("--")}
        return argparse.Namespace(**options, given=given)

    def _check_repeats(self, arguments: list[str]) -> None:
        """Raise a ValueError if an option is given twice, or an objective in two ways: argparse would silently take the
        last value. Configs are laid over one another, and an option with a plus, as in `--schedule.milestones+`,
        appends to a list."""
        given = [argument.partition("=")[0] for argument in arguments if argument.startswith("--")]
        for option in dict.fromkeys(given):
            action = self._option_string_actions.get(option)
            is_flag = action is not None and action.nargs == 0
            collects = self.command.own.get(option, {}).get("action") == "extend" or option.endswith("+")
            if given.count(option) > 1 and not (is_flag or collects or isinstance(action, _Config)):
                raise ValueError(f"{option} is given twice: give it once")
            if option.startswith("--objective.") and "--objective" in given:
                raise ValueError(f"--objective and {option} are both given: give its name, or its terms and options")

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
        message = " ".join(message.split())
        if wrong := _WRONG_KIND.fullmatch(message):
            name, kinds, value, group, given = wrong.groups()
            allowed = " or ".join(_KINDS[kind] for kind in re.findall(r"\w+(?='>)", kinds or "'dict'>"))
            message = choice(name or group, value if name else given, allowed)
        elif wrong := re.fullmatch("Group '(.*)' does not accept option '(.*)'", message):
            message = self._unknown(f"--{wrong[1]}.{wrong[2]}")
        raise ValueError(message) from ex

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise ValueError(unknown(str(action.metavar or action.option_strings[0]).lower(), value, action.choices))

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
        known = [*self._option_string_actions, *(f"--{name}.{rest}" for name in OPEN if rest)]
        ending = [other for other in known if other.endswith(f".{option.lstrip('-')}")]
        close = ending or get_close_matches(option, known, n=1)
        hint = f"; did you mean {' or '.join(close)}?" if close else "."
        return f"unknown option {option}{hint} See {self.prog} {'--help-all' if self.command.main else '--help'}"


def parse(name: str, about: str, arguments: list[str]) -> argparse.Namespace:
    """Parse the arguments of a command."""
    parser = Parser(f"smdl {name}", description=about, formatter_class=_Formatter, allow_abbrev=False)
    parser.declare(COMMANDS[name])
    return parser.parse(arguments)
