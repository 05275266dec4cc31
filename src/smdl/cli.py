"""The smdl command: parse, call, print. Heavy modules are imported where they are used."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smdl import __version__
from smdl.errors import missing_packages

if TYPE_CHECKING:
    from smdl.training.config import TrainConfig
    from smdl.training.progress import Display


def main(argv: list[str] | None = None) -> int:
    """Run a command. Return its exit code."""
    try:
        parser = _commands()
        run = parser.parse_args(argv).run
        return run() if run is not None else print(parser.format_help(), end="") or 0
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "interrupted", 128 + getattr(stop, "number", 2))
    except ValueError as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(str(error), 1)
    except RuntimeError as error:
        from smdl.training.loop import DivergedError

        if not isinstance(error, DivergedError):
            raise
        return _fail(str(error), 1)


def train(config: "TrainConfig", out: Path | None, resume: Path | None, quiet: bool) -> int:
    """Train a network on the batches of a method."""
    from smdl.training import loop

    with _display(quiet) as display:
        if resume is not None:
            summary = loop.resume(resume, display)
        else:
            name = f"{_file_name(config.data.name)}-{_file_name(config.method)}-{config.seed}"
            summary = loop.train(config, out or Path("runs") / name, display)
    final = summary["final"]
    print(f"test error {final['test_error']:.2%}, test loss {final['test_loss']:.4f} after {summary['steps']} steps")
    print(f"config, metrics, weights: {summary['folder']}")
    return 0


def compare(
    config: "TrainConfig",
    methods: list[str],
    seeds: int | str,
    minutes: float | None,
    protocols: list[str],
    jobs: int | None,
    out: Path | None,
    quiet: bool,
) -> int:
    """Compare methods over several seeds at equal steps and time."""
    from smdl.experiments.compare import FEWEST_SEEDS, Plan, run_plan
    from smdl.training.config import to_dict

    if seeds == "auto" and minutes is not None:
        raise ValueError("give --seeds auto or --minutes, not both")
    plan = Plan(
        f"{config.data.name}: {', '.join(methods)}",
        to_dict(config),
        {name: {"method": name} for name in methods},
        baseline="uniform" if "uniform" in methods else methods[0],
        seeds=seeds if isinstance(seeds, int) else FEWEST_SEEDS,
        protocols=protocols,
        minutes=minutes,
    )
    out = out or Path("runs") / f"compare-{_file_name(config.data.name)}"
    with _display(quiet) as display:
        experiment = run_plan(plan, out, auto=seeds == "auto", jobs=jobs or _jobs(config.device), display=display)
    return _show_results(experiment.folder)


def ablate(
    config: "TrainConfig",
    sweep: str,
    values: list[str] | None,
    seeds: int,
    jobs: int | None,
    out: Path | None,
    quiet: bool,
) -> int:
    """Vary one thing: weights, distance, batch size, ..."""
    from smdl.experiments.ablate import ablate

    out = out or Path("runs") / f"ablate-{sweep}-{_file_name(config.data.name)}"
    jobs = jobs or _jobs(config.device)
    with _display(quiet) as display:
        folder = ablate(sweep, config, out, seeds=seeds, values=values, jobs=jobs, display=display)
    return _show_results(folder)


def reproduce(
    item: str,
    scale: str,
    seeds: int | None,
    jobs: int | None,
    out: Path | None,
    root: str | None,
    quiet: bool,
) -> int:
    """Reproduce the paper's tables and figures."""
    from smdl.experiments import panels, paper
    from smdl.experiments.sweeps import PAPER_ITEMS

    out, jobs = out or Path("runs") / f"reproduce-{scale}", jobs or _jobs("auto")
    items = list(PAPER_ITEMS) if item == "all" else [item]
    paper.check(items, scale, root)
    codes: dict[Path, int] = {}
    for name in items:
        with _display(quiet) as display:
            folders = paper.reproduce(name, scale, out, seeds=seeds, jobs=jobs, root=root, display=display)
        codes |= {folder: _show_results(folder) for folder in folders if folder not in codes}
        panels.add_item(out, name, folders)
        if path := panels.write(out, name):
            print(f"figure: {path}")
    return max(codes.values())


def report(folders: list[str], markdown: bool) -> int:
    """Render reports again from the files of runs or experiments."""
    from smdl.experiments import paper_tables, tables
    from smdl.experiments.report import render_all
    from smdl.experiments.results import collect

    code = 0
    for folder in folders:
        try:
            if markdown:
                results = collect(Path(folder))
                print("\n".join([tables.markdown(results), *paper_tables.markdown(results)]))
            else:
                print(*render_all(Path(folder)), sep="\n")
        except (ValueError, OSError) as error:
            code = _fail(str(error), 2)
    return code


def _show_results(folder: Path) -> int:
    """Render the report of an experiment, print its table and verdict. Return 1 if a run is missing."""
    from rich.console import Console

    from smdl.experiments import paper_tables, results
    from smdl.experiments.report import render
    from smdl.experiments.tables import summary_table

    path = render(folder)
    found = results.collect(folder)
    write = partial(Console().print, highlight=False, markup=False)
    if found["caption"]:
        write(found["caption"])
    for table in (summary_table(found), *paper_tables.terminal(found)):
        write(table)
    write(found["verdict"], style="bold")
    for problem in found["problems"]:
        write(f"! {problem}")
    print(f"report: {path}")
    return 1 if found["problems"] else 0


def data(action: str, name: str | None, root: Path | None) -> int:
    """List the data sets, or download one."""
    from rich.console import Console
    from rich.table import Column, Table

    from smdl.training.datasets import catalogue

    if action == "get" and name is not None:
        print(f"{name} is in {catalogue.get(name, root)}")
        return 0
    if action == "get":
        raise ValueError("smdl data get needs the name of a data set; smdl data list shows them")
    table = Table("name", "content", "download", Column("folder", overflow="fold"), show_edge=False)
    table.add_row("digits", "1,797 grey digits, 8 × 8, 10 classes", "", "in scikit-learn")
    for row in catalogue.catalogue(root):
        table.add_row(row.name, row.about, f"{row.bytes / 1e6:.0f} MB", str(row.folder or f"smdl data get {row.name}"))
    Console().print(table)
    return 0


def doctor() -> int:
    """Report versions, devices, data sets, and what would fail."""
    from smdl.training import doctor

    return doctor.report()


class _Command(argparse.ArgumentParser):
    """A command whose options are declared when it is called: `smdl --help` answers at once."""

    run: Callable[..., int]

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ARG002
        from smdl.options import Parser

        options = Parser(self.run.__name__, self.run.__doc__ or "").parse(args)
        if self.run is not doctor and (problem := missing_packages()):
            raise ValueError(problem)
        return argparse.Namespace(run=partial(self.run, **options)), []


class _Commands(argparse.ArgumentParser):
    """The tree of commands. Bad input raises a ValueError."""

    def error(self, message: str) -> Any:
        raise ValueError(message)


def _commands() -> argparse.ArgumentParser:
    parser = _Commands(
        "smdl",
        description="smdl, the SubModular Data Loader",
        epilog="smdl COMMAND --help shows the options of a command",
        allow_abbrev=False,
    )
    parser.add_argument("-V", "--version", action="version", version=f"smdl {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Command)
    for command in (train, compare, ablate, reproduce, report, data, doctor):
        commands.add_parser(command.__name__, help=command.__doc__).run = command
    return parser


@contextmanager
def _display(quiet: bool) -> "Iterator[Display]":
    from smdl.training import progress

    display = progress.display(quiet)
    try:
        yield display
    finally:
        display.close()


def _jobs(device: str) -> int:
    """Number of parallel runs: one per core on a CPU, else one."""
    from smdl.training.environment import pick_device

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if pick_device(device).type == "cpu" else 1


def _file_name(name: str) -> str:
    """A part of a file name, from the name or path of a data set or method."""
    return Path(name.replace(":", ".")).name


def _fail(message: str, code: int) -> int:
    print(f"smdl: {message}", file=sys.stderr)
    return code
