"""Reports of experiments and runs: one self-contained page, and the pictures as files. Only files are read."""

from pathlib import Path

import numpy as np

from smdl.common.storage import disk_errors, write_bytes
from smdl.experiments.comparison_plan import FolderError
from smdl.experiments.records import Results, RunRecord
from smdl.experiments.results import collect, write
from smdl.experiments.runs import Epoch, is_run, read_config, read_run
from smdl.report.contents import figures_of, thinned
from smdl.report.figures import LIGHT, look_of, png
from smdl.report.page import render_page
from smdl.report.paper_figures import read_items, render_items
from smdl.report.plots import column
from smdl.report.row_pages import has_rows, render_rows
from smdl.report.usage import read_usage


def render(folder: Path) -> Path:
    """Write report.html and plots/*.png into the folder of an experiment or a run, and for an experiment results.json
    and results.csv too; for a selection report.html alone. Return the page."""
    if has_rows(folder):
        return render_rows(folder)
    if (folder / "plan.yaml").exists():
        results = collect(folder)
        write(folder, results)
    elif is_run(folder):
        results = run_results(folder)
    else:
        raise FolderError(
            f"{folder} holds neither an experiment (plan.yaml), nor a training run (config.yaml and metrics.jsonl),"
            " nor a selection (selection.json)"
        )
    drawn = thinned(results)
    usage, problems = read_usage(folder, drawn, results.primary)
    results.problems += problems
    figures = figures_of(drawn, usage)
    with disk_errors(folder / "plots"):
        (folder / "plots").mkdir(exist_ok=True)
    for figure in figures:
        write_bytes(folder / "plots" / f"{figure.name}.png", png(figure.draw, look_of(drawn)))
    path = folder / "report.html"
    write_bytes(path, render_page(results, drawn, usage, figures).encode())
    return path


def render_all(folder: Path) -> list[Path]:
    """Render a folder as `render` does. In a folder of `smdl reproduce`, render every experiment and the paper's
    figures. Return the pages and figures."""
    items = read_items(folder)
    if items is None:
        return [render(folder)]
    experiments = dict.fromkeys(name for names in items.values() for name in names)
    return [*(render(folder / name) for name in experiments), *render_items(folder)]


def run_results(folder: Path) -> Results:
    """Return a single run as results: one arm, one seed, nothing to compare it with."""
    config, problems = read_config(folder)
    files = read_run(folder)
    method, seed, data = str(config.get("method", "run")), config.get("seed", 0), config.get("data")
    name = data.get("name") if isinstance(data, dict) else None
    return Results(
        title=f"{name or folder.name}, {method}, seed {seed}",
        baseline=method,
        arms=[method],
        primary="run",
        protocols=["run"],
        calibration={method: _cost(files.epochs)},
        runs=[RunRecord(method, "run", seed, ".", None, files.epochs, None)],
        problems=[*problems, *files.problems],
        config=config,
        environment=files.summary["environment"] if files.summary else {},
    )


def _cost(epochs: list[Epoch]) -> dict[str, object]:
    """Return the seconds per step that a run measured itself, in the form of a calibration."""
    steps = int(epochs[-1]["steps"]) if epochs else 0
    spent = [record.get("seconds") or {} for record in epochs]
    parts = {part: float(np.nansum(column(spent, part))) / max(1, steps) for part in LIGHT.parts}
    return {
        "seconds_per_step": sum(parts.values()),
        "parts": parts,
        "steps_per_epoch": int(epochs[0]["steps"]) if epochs else 1,
    }
