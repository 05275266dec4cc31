"""The smdl command: parse, call, print. Heavy modules are imported where they are used."""

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from smdl import __version__
from smdl.cli.row_commands import Options, dedup, display_of, label, score, select
from smdl.common.messages import MissingPackagesError, check_packages, unknown


def main(argv: list[str] | None = None) -> int:
    """Run a command. Return its exit code."""
    try:
        parser = _commands()
        options = parser.parse_args(argv)
        return options.run(options) if options.run else parser.print_help() or 0
    except KeyboardInterrupt as stop:
        return _fail(str(stop) or "interrupted", 128 + getattr(stop, "number", 2))
    except (ValueError, OSError, MissingPackagesError) as error:
        return _fail(str(error), 1 if isinstance(error, OSError) else 2)
    except MemoryError as error:
        return _fail(f"the memory is not large enough: {error}", 1)
    except RuntimeError as error:
        if "can't allocate memory" in str(error):  # torch has no class for it
            return _fail(f"the memory is not large enough: {str(error).splitlines()[0]}", 1)
        loop = sys.modules.get("smdl.training.loop")  # if nothing has imported it, nothing was trained
        if loop is None or not isinstance(error, loop.DivergedError):
            raise
        return _fail(str(error), 1)


def train(options: Options) -> int:
    """Train a network on the batches of a method."""
    from smdl.training import loop

    if options.resume and (others := options.given - {"resume", "quiet", "tracker"}):
        raise ValueError(f"a resumed run keeps its config: leave out {', '.join(sorted(others))}")
    with display_of(options.quiet) as display:
        if options.resume:
            summary = loop.resume(options.resume, display, options.tracker)
        else:
            config = options.config
            name = f"{_file_name(config.data.name)}-{_file_name(config.method_name)}-{config.seed}"
            summary = loop.train(config, options.out or Path("runs") / name, display, options.tracker)
    final = summary["final"]
    print(f"test error {final['test_error']:.2%}, test loss {final['test_loss']:.4f} after {summary['steps']} steps")
    print(f"config, metrics, weights: {summary['folder']}")
    return 0


def compare(options: Options) -> int:
    """Compare methods over several seeds at equal steps and time."""
    from smdl.experiments.experiment import run_plan
    from smdl.experiments.regimes import comparison, method_and_share, method_options
    from smdl.training.build import make_method
    from smdl.training.config import to_dict

    auto, methods, data_name = options.seeds == "auto", options.methods, options.config.data.name
    if auto and options.minutes is not None:
        raise ValueError("give --seeds auto or --minutes, not both")
    for method in methods:
        changes = method_options(method_and_share(method)[0])
        make_method(replace(options.config, **changes))  # one that cannot be made is an error
    plan = comparison(
        f"{data_name}: {', '.join(methods)}",
        to_dict(options.config),
        methods,
        options.regimes or [],
        oracle=bool(options.regimes),
        seeds=1 if auto else options.seeds,
        protocols=options.protocols,
        minutes=options.minutes,
        tune_learning_rate=options.tune_lr,
        # One number of steps for all regimes would make the runs of small ones longer.
        keep_steps=options.minutes is not None and bool({"epochs", "steps"} & options.given or options.regimes),
    )
    out = options.out or Path("runs") / f"compare-{_file_name(data_name)}"
    with display_of(options.quiet) as display:
        jobs = _jobs(options.jobs, options.config.device)
        folder = run_plan(plan, out, auto=auto, jobs=jobs, display=display).folder
    return _show_results(folder, options.quiet)


def preview(options: Options) -> int:
    """Show what a step of each method costs, and what the data looks like."""
    from smdl.experiments.preview import preview_config

    with display_of(options.quiet) as display:
        found = preview_config(options.config, options.methods, options.seconds, display)
    print(found)
    return 0


def ablate(options: Options) -> int:
    """Vary one thing: weights, distance, batch size, ..."""
    from smdl.paper import ablation as ablate

    config, sweep = options.config, options.sweep
    out = options.out or Path("runs") / f"ablate-{sweep}-{_file_name(config.data.name)}"
    with display_of(options.quiet) as display:
        settings = {"seeds": options.seeds, "values": options.values, "jobs": _jobs(options.jobs, config.device)}
        folder = ablate.ablate(sweep, config, out, display=display, **settings)
    return _show_results(folder, options.quiet)


def reproduce(options: Options) -> int:
    """Reproduce the paper's tables and figures."""
    from smdl.paper import reproduction as paper
    from smdl.paper.sweeps import PAPER_ITEMS
    from smdl.report.paper_figures import render_items

    scale, root = options.scale, options.root
    out = options.out or Path("runs") / f"reproduce-{scale}"
    items = list(PAPER_ITEMS) if options.item == "all" else [options.item]
    paper.check(items, scale, root)
    codes: dict[Path, int] = {}
    for item in items:
        with display_of(options.quiet) as display:
            settings = {"seeds": options.seeds, "jobs": _jobs(options.jobs, "auto"), "root": root}
            folders = paper.reproduce(item, scale, out, display=display, **settings)
        codes |= {folder: _show_results(folder, options.quiet) for folder in folders if folder not in codes}
    for path in render_items(out):
        print(f"figure: {path}")
    return max(codes.values())


def report(options: Options) -> int:
    """Render reports again from the files of runs or experiments."""
    from smdl.report.row_pages import has_rows, render_rows

    code = 0
    for folder in map(Path, options.folders):
        try:
            if has_rows(folder) and not options.markdown:
                check_packages("select")
                print(render_rows(folder))
                continue
            check_packages("train")
            from smdl.experiments.results import collect
            from smdl.report import paper_tables, rendering, text_tables

            if options.markdown:
                results = collect(folder)
                print("\n".join([text_tables.markdown(results), *paper_tables.markdown(results)]))
            else:
                print(*rendering.render_all(folder), sep="\n")
        except (ValueError, OSError) as error:
            code = _fail(str(error), 2)
    return code


def _show_results(folder: Path, quiet: bool) -> int:
    """Render the report of an experiment; print its table and verdict. Return 1 if a run is missing or nothing was
    learned."""
    from rich.console import Console

    from smdl.experiments.oracle_gains import sentences
    from smdl.experiments.results import collect
    from smdl.report import paper_tables
    from smdl.report.rendering import render
    from smdl.report.summaries import LEGEND
    from smdl.report.text_tables import matrix_table, summary_table, tuned_rates

    with display_of(quiet) as display:
        display.phase("drawing the report")
        path = render(folder)
    found = collect(folder)
    write = partial(Console().print, highlight=False, markup=False)
    if found.caption:
        write(found.caption)
    for part in (summary_table(found), *paper_tables.terminal(found)):
        write(part)
    if found.regimes:
        write(matrix_table(found))
        write(LEGEND, style="dim")
    for line in sentences([gain for gain in found.gains if gain.protocol == found.primary]):
        write(line)
    if found.learning_rates:
        write(tuned_rates(found))
    write(found.answer, style="bold")
    write(found.verdict)
    for problem in (*found.problems, *found.warnings):
        write(f"! {problem}")
    print(f"report: {path}")
    return 1 if found.problems else 0


def data(options: Options) -> int:
    """List the data sets, or download one."""
    from rich.console import Console
    from rich.table import Column, Table

    from smdl.training.datasets import catalogue

    if options.action == "get":
        if options.name is None:
            raise ValueError("smdl data get needs the name of a data set; smdl data list shows the names")
        print(f"{options.name} is in {catalogue.get(options.name, options.root)}")
        return 0
    table = Table("name", "content", "download", Column("folder", overflow="fold"), show_edge=False)
    table.add_row("digits", "1,797 grey digits, 8 × 8, 10 classes", "", "in scikit-learn")
    for name, entry in catalogue.ENTRIES.items():
        folder = catalogue.search(name, options.root) or f"smdl data get {name}"
        table.add_row(name, entry.about, f"{entry.bytes / 1e6:.0f} MB", str(folder))
    Console().print(table)
    return 0


def doctor(_: Options) -> int:
    """Report versions, devices, data sets, and what would fail."""
    from smdl.training import doctor

    return doctor.report()


class _Commands(argparse.ArgumentParser):
    """The tree of commands. Bad input raises a ValueError."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise ValueError(unknown("command", value, action.choices))


class _Command(argparse.ArgumentParser):
    """A command. Its options are declared when it is called, so that `smdl --help` answers at once."""

    run: Callable[[Options], int]

    def parse_known_args(self, args: Any, _: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        from smdl.cli.options import COMMANDS
        from smdl.cli.parser import parse

        options = parse(self.run.__name__, self.run.__doc__ or "", args)
        check_packages(COMMANDS[self.run.__name__].needs)
        options.run = self.run
        return options, []


def _commands() -> _Commands:
    about = (
        "smdl chooses the data that is worth a budget: the rows worth a label, the rows worth keeping, the rows worth a"
        " training step."
    )
    more = "smdl COMMAND --help shows the options of a command"
    parser = _Commands("smdl", description=about, epilog=more, allow_abbrev=False)
    parser.add_argument("-V", "--version", action="version", version=f"smdl {__version__}")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Command)
    for run in (label, select, dedup, score, train, compare, preview, ablate, reproduce, report, data, doctor):
        commands.add_parser(run.__name__, help=run.__doc__).run = run
    return parser


def _jobs(jobs: int | str, device: str) -> int:
    """Number of parallel runs; auto is one per core on a CPU, else one."""
    if isinstance(jobs, int):
        return jobs
    from smdl.common.environment import cores, pick_device

    return cores() if pick_device(device).type == "cpu" else 1


def _file_name(name: str) -> str:
    """Return a part of a file name for the name or path of a data set or method."""
    return Path(name.replace(":", ".")).name


def _fail(message: str, code: int) -> int:
    print(f"smdl: {message}", file=sys.stderr)
    return code
