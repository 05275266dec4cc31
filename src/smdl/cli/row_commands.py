"""The commands on rows of files: select, label, dedup and score."""

import argparse
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from smdl.common.progress import Display

Options = argparse.Namespace
Request = TypeVar("Request")


def select(options: Options) -> int:
    """Choose rows of files: a subset that represents them."""
    from smdl.files.choose import Chooser
    from smdl.files.request import SelectRequest
    from smdl.report.selection_page import render_selection

    request = _request(SelectRequest, options)
    chooser = Chooser(request)
    if options.explain:
        print(*chooser.explain(), sep="\n")
        return 0
    count, page = _run(chooser, render_selection, request.folder, options.quiet)
    print(f"{count:,} of {len(chooser.source):,} rows: {options.out}")
    for size in request.sizes[:-1]:
        print(f"the first {min(size, count):,} of them: {request.out_of(size)}")
    if request.sizes and count < request.sizes[-1]:
        print(f"! --size asks for {request.sizes[-1]:,} rows; --per_group and --budget allow no more than {count:,}")
    print(f"report: {page}")
    return 0


def label(options: Options) -> int:
    """Choose the rows worth a label, in rounds; or simulate it."""
    from smdl.labelling.input_rows import LabelSettings
    from smdl.labelling.project import Project
    from smdl.labelling.project_folder import ProjectFolder
    from smdl.labelling.summary import write_summary
    from smdl.report.labelling_page import render_labelling

    first = Path(options.inputs[0])
    if options.inputs[0] == "simulate":
        return _simulate(options)
    if ProjectFolder.is_one(first):
        _refuse(f"{first} keeps its settings", options.given - {"check", "more", "answers", "quiet"})
        project = Project(first)
    else:
        project = Project(options.out or _beside(first, ".labels"), _request(LabelSettings, options))
    with display_of(options.quiet) as display:
        progress = project.run(display, options.check, options.more, options.answers)
        display.phase("drawing the report")
        found = write_summary(project, progress)
        page = render_labelling(project.path)
    for line in (*progress.notes, *progress.problems):
        print(f"! {line}")
    accuracy = project.labels.accuracy or "not known"
    print(f"{found['labelled']:,} labels of {len(found['classes']):,} classes; accuracy: {accuracy}")
    print(found["advice"])
    for name, (left, total) in progress.open.items():
        if left:
            print(f"to fill in: {project.path / name}, {left:,} of {total:,} rows")
    print(f"then: smdl label {project.path}")
    print(f"report: {page}")
    return 1 if progress.problems else 0


def _simulate(options: Options) -> int:
    from rich.console import Console
    from rich.table import Column, Table

    from smdl.labelling.input_rows import LabelSettings
    from smdl.labelling.simulation_job import USUAL, SimulationJob
    from smdl.report.simulation_page import render_simulation, simulation_rows

    _, *inputs = options.inputs
    if not inputs:
        raise ValueError("smdl label simulate needs a file: smdl label simulate FILE --labels COLUMN")
    _refuse("a simulation asks nobody", options.given & {"check", "more", "answers", "format", "ids"})
    folder, settings = options.out or _beside(Path(inputs[0]), ".simulation"), _request(LabelSettings, options, inputs)
    job = SimulationJob(folder, settings, options.methods or USUAL, options.seeds, options.rounds)
    found, page = _run(job, render_simulation, folder, options.quiet)
    names = ("accuracy, %", "against random", "labels", "random needs", "s per round")
    table = Table(Column("method", no_wrap=True), *names, show_edge=False)
    for row in simulation_rows(found):
        table.add_row(*(cell or "" for cell in row))
    Console().print(table)
    print(found["answer"])
    print(f"report: {page}")
    return 0


def dedup(options: Options) -> int:
    """Find near-copies in files, and keep one row of each group."""
    from smdl.files.dedup import Deduplicator, DedupRequest
    from smdl.report.dedup_page import render_dedup

    request = _request(DedupRequest, options)
    found, page = _run(Deduplicator(request), render_dedup, request.folder, options.quiet)
    leaks = f", {found['leaks']:,} of them of --against" if found["leaks"] is not None else ""
    copies = found["copies"] + (found["leaks"] or 0)
    print(f"{found['kept']:,} of {found['rows']:,} rows kept, {copies:,} near-copies{leaks}: {options.out}")
    print(f"report: {page}")
    return 0


def score(options: Options) -> int:
    """Score every row of files: typical, outlier, copied, and its rank."""
    from smdl.files.score_rows import RowScorer, ScoreRequest
    from smdl.report.score_page import render_score

    request = _request(ScoreRequest, options)
    found, page = _run(RowScorer(request), render_score, request.folder, options.quiet)
    print(f"{found['rows'] - found['left_out']:,} rows, {found['with_copies']:,} with a near-copy: {options.out}")
    print(f"report: {page}")
    return 0


def display_of(quiet: bool) -> "closing[Display]":
    """Return the display, to be used by `with`."""
    from smdl.common import progress

    return closing(progress.display(quiet))


def _request(kind: type[Request], options: Options, inputs: list[str] | None = None) -> Request:
    """Return a dataclass of options, filled with those that the command has."""
    given = vars(options) | ({} if inputs is None else {"inputs": inputs})
    values = {entry.name: given[entry.name] for entry in fields(kind)}  # type: ignore[arg-type]
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return kind(**{name: value for name, value in values.items() if value is not None} | lists)


def _run(work: Any, render: Callable[[Path], Path], folder: Path, quiet: bool) -> tuple[Any, Path]:
    """Run the work and draw its page. Return both results."""
    with display_of(quiet) as display:
        found = work.run(display)
        display.phase("drawing the report")
        return found, render(folder)


def _refuse(why: str, others: set[str]) -> None:
    """Raise an error if there are options that the command would not use."""
    if others:
        raise ValueError(f"{why}: leave out {', '.join(sorted(others))}")


def _beside(path: Path, suffix: str) -> Path:
    """Return the folder of results beside an input: reviews.csv -> reviews.labels."""
    return path.with_name(f"{path.stem.strip('*?[]') or 'rows'}{suffix}")
