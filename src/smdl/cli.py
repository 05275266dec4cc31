"""The smdl command: parses, calls, prints; no logic. Nothing heavy is imported before it is needed."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from smdl.errors import choice, unknown

USAGE = """smdl, the SubModular Data Loader

usage: smdl COMMAND [options]

  train       train a network on submodular, loss-based or uniform batches
  compare     does selection pay here? strategies over several seeds, at equal steps and equal time
  ablate      vary one thing: weights, distance, learning-rate, batch-size, refresh, ...
  reproduce   the paper's tables and figures, its numbers beside ours
  report      render the report of a run or an experiment anew, from its files
  data        list the data sets, or download one
  doctor      what is here, and what would fail

smdl COMMAND --help tells more.
"""

DATA_USAGE = """usage: smdl data list
       smdl data get NAME [--root DIR]

list   the data sets, their sizes, and where they were found
get    download one, with its checksum verified; a broken download goes on where it stopped
"""

REPORT_USAGE = """usage: smdl report [--markdown] DIR...

Renders report.html, results.json, results.csv and plots/ in each folder from its files alone: of a run, of an
experiment, or of smdl reproduce with all its experiments and figures.
--markdown prints the tables of an experiment instead, for a page of documentation.
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
    options, config = _parse("train", arguments)
    if options.resume == "":
        raise ValueError("--resume needs the folder of a run, got nothing")
    if options.resume and len(arguments) > (1 if arguments[0].startswith("--resume=") else 2):
        raise ValueError("a resumed run keeps its config: leave out all options but --resume DIR")

    from smdl.training import loop

    with _shown(options.quiet) as shown:
        if options.resume:
            summary = loop.resume(Path(options.resume), shown)
        else:
            name = f"{_name(config.data.name)}-{_strategy_name(config)}-{config.seed}"
            summary = loop.train(config, Path(options.out or Path("runs") / name), shown)
    final = summary["final"]
    print(f"test error {final['test_error']:.2%}, test loss {final['test_loss']:.4f} after {summary['steps']} steps")
    print(f"config, metrics, weights: {summary['folder']}")
    return 0


def compare(arguments: list[str]) -> int:
    """smdl compare --strategies uniform,loss,paper,recommended --seeds 5."""
    options, config = _parse("compare", arguments)
    names = [name.strip() for name in options.strategies.split(",") if name.strip()]
    protocols = [name.strip() for name in options.protocols.split(",") if name.strip()]

    from smdl.experiments.arms import overrides_of
    from smdl.experiments.compare import FEWEST_SEEDS, Plan, run_plan
    from smdl.training.config import to_dict

    auto = options.seeds == "auto"
    if not names:
        raise ValueError("--strategies needs names such as uniform,recommended, got none")
    if auto and options.minutes is not None:
        raise ValueError("give --seeds auto or --minutes, not both")
    plan = Plan(
        f"{config.data.name}: {', '.join(names)}",
        to_dict(config),
        {name: overrides_of(name) for name in names},
        baseline=names[0] if "uniform" not in names else "uniform",
        seeds=FEWEST_SEEDS if auto else _whole("seeds", options.seeds),
        protocols=protocols,
        minutes=options.minutes,
    )
    out = Path(options.out or Path("runs") / f"compare-{_name(config.data.name)}")
    with _shown(options.quiet) as shown:
        folder = run_plan(plan, out, auto=auto, jobs=_jobs(options.jobs, config), display=shown).folder
    return _tell(folder)


def ablate(arguments: list[str]) -> int:
    """smdl ablate SWEEP."""
    from smdl.experiments.sweeps import ABOUT

    if not arguments or arguments[0].startswith("-"):
        print("usage: smdl ablate SWEEP [--values A,B,...] [--seeds 3] [--config FILE] [options]\n\nSWEEP is one of")
        print("\n".join(f"  {name:<15}{about}" for name, about in ABOUT.items()))
        return 0 if arguments in ([], ["-h"], ["--help"]) else 2
    sweep = arguments[0]
    if sweep not in ABOUT:
        raise ValueError(unknown("ablation", sweep, ABOUT))
    options, config = _parse("ablate", arguments[1:])

    from smdl.experiments import ablate as ablation

    given = options["values"]  # a Namespace has a method of that name
    values = [value.strip() for value in given.split(",")] if given else None
    out = Path(options.out or Path("runs") / f"ablate-{sweep}-{_name(config.data.name)}")
    with _shown(options.quiet) as shown:
        folder = ablation.ablate(
            sweep,
            config,
            out,
            seeds=_whole("seeds", options.seeds),
            values=values,
            jobs=_jobs(options.jobs, config),
            display=shown,
        )
    return _tell(folder)


def reproduce(arguments: list[str]) -> int:
    """smdl reproduce ITEM --scale smoke|small|paper."""
    import argparse

    from smdl.experiments.sweeps import PAPER_ITEMS, SCALES

    parser = argparse.ArgumentParser("smdl reproduce", description="The paper's tables and figures.")
    parser.add_argument("item", nargs="?", help=f"{', '.join(PAPER_ITEMS)} or all")
    parser.add_argument("--list", action="store_true", help="what there is to reproduce")
    parser.add_argument("--scale", default="smoke", help="smoke (a minute), small (half an hour), paper (a GPU)")
    parser.add_argument("--seeds", type=int, help="2, 3 and 5 by scale unless given")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--out", help="runs/reproduce-SCALE unless given")
    parser.add_argument("--data.root", dest="root", help="folder of the data")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args(arguments)
    if options.list or options.item is None:
        print("\n".join(f"  {name:<18}{about}" for name, about in PAPER_ITEMS.items()))
        print(f"\nsmdl reproduce ITEM --scale {'|'.join(SCALES)}; all runs every one")
        return 0

    from smdl.experiments import panels, paper
    from smdl.training.config import TrainConfig

    out = Path(options.out or Path("runs") / f"reproduce-{options.scale}")
    items = list(PAPER_ITEMS) if options.item == "all" else [options.item]
    paper.check(items, options.scale, options.root)
    given = {"seeds": options.seeds, "jobs": _jobs(options.jobs, TrainConfig()), "root": options.root}
    codes: dict[Path, int] = {}
    for item in items:
        with _shown(options.quiet) as shown:
            folders = paper.reproduce(item, options.scale, out, display=shown, **given)
        codes |= {folder: _tell(folder) for folder in folders if folder not in codes}
        panels.add_item(out, item, folders)
        if path := panels.write(out, item):
            print(f"figure: {path}")
    return max(codes.values())


def report(arguments: list[str]) -> int:
    """smdl report DIR..."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(REPORT_USAGE, end="")
        return 0 if arguments else 2
    from smdl.experiments.paper_tables import markdown as beside
    from smdl.experiments.report import render_all
    from smdl.experiments.results import collect
    from smdl.experiments.tables import markdown

    folders = [argument for argument in arguments if not argument.startswith("-")]
    strange = [argument for argument in arguments if argument.startswith("-") and argument != "--markdown"]
    if strange or not folders:
        return _fail(f"smdl report takes folders, and --markdown; got {' '.join(arguments)}", 2)
    failed = 0
    for argument in folders:
        try:
            if "--markdown" in arguments:
                found = collect(Path(argument))
                print("\n".join([markdown(found), *beside(found)]))
            else:
                print(*render_all(Path(argument)), sep="\n")
        except (ValueError, OSError) as error:
            failed = _fail(str(error), 2)
    return failed


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
    from smdl.training.doctor import report as examine

    return examine()


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "ablate": ablate,
    "compare": compare,
    "data": data,
    "doctor": doctor,
    "report": report,
    "reproduce": reproduce,
    "train": train,
}


def _parse(command: str, arguments: list[str]) -> tuple[Any, Any]:
    from smdl.options import parse

    return parse(command, arguments)


class _shown:  # noqa: N801
    """The display, closed at the end whatever happens."""

    def __init__(self, quiet: bool) -> None:
        from smdl.training.progress import display

        self._display = display(quiet)

    def __enter__(self) -> Any:
        return self._display

    def __exit__(self, *_: object) -> None:
        self._display.close()


def _tell(folder: Path) -> int:
    """The table, the verdict and where the report is; 1 if a run is missing."""
    from rich.console import Console

    from smdl.experiments import paper_tables, results
    from smdl.experiments.report import render
    from smdl.experiments.tables import summary_table

    path = render(folder)
    found = results.collect(folder)
    console = Console()
    if found["caption"]:
        console.print(found["caption"], highlight=False, markup=False)
    console.print(summary_table(found))
    for part in paper_tables.terminal(found):
        console.print(part, highlight=False, markup=False)
    console.print(found["verdict"], style="bold", highlight=False, markup=False)
    for problem in found["problems"]:
        console.print(f"! {problem}", highlight=False, markup=False)
    print(f"report: {path}")
    return 1 if found["problems"] else 0


def _jobs(given: int | None, config: Any) -> int:
    if given is not None:
        return _whole("jobs", given)
    if config.device not in ("auto", "cpu"):
        return 1
    from smdl.training.environment import pick_device

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if pick_device(config.device).type == "cpu" else 1


def _whole(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(choice(name, value, "a whole number ≥ 1"))
    return value


def _name(data_name: str) -> str:
    return Path(data_name.replace(":", ".")).name


def _strategy_name(config: Any) -> str:
    if config.strategy == "smdl":
        return config.objective.preset or ("custom" if config.objective.given() else "recommended")
    return config.strategy.replace(":", ".")


def _fail(message: str, code: int) -> int:
    print(f"smdl: {message}", file=sys.stderr)
    return code
