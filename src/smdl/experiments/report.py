"""Report: an experiment or a single run as plots and one self-contained page. It reads files and nothing else."""

import re
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from smdl.experiments import panels, pictures, plots
from smdl.experiments.figures import look, png
from smdl.experiments.results import ResultsError, collect, write
from smdl.experiments.run_results import is_run, read_run
from smdl.experiments.sections import experiment_page, run_page
from smdl.experiments.usage import Chosen, read_chosen
from smdl.training.files import disk_errors, replacing

Results = dict[str, Any]


def render(folder: Path) -> Path:
    """Write report.html and plots/*.png into the folder of an experiment or of a run; of an experiment results.json and
    results.csv as well. Returns the page."""
    if (folder / "plan.yaml").exists():
        results, page = collect(folder), experiment_page
        write(folder, results)
    elif is_run(folder):
        results, page = read_run(folder), run_page
    else:
        raise ResultsError(
            f"{folder} holds neither an experiment (plan.yaml) nor a training run (config.yaml and metrics.jsonl)"
        )
    chosen, unread = read_chosen(folder, results, results["primary"])
    results = {**results, "problems": [*results["problems"], *unread]}
    with disk_errors(folder / "plots"):
        (folder / "plots").mkdir(exist_ok=True)
    for name, figure in drawn(results, chosen).items():
        _write(folder / "plots" / f"{name}.png", png(figure))
    path = folder / "report.html"
    _write(path, page(results, chosen).encode())
    return path


def render_all(folder: Path) -> list[Path]:
    """What `render` does; in the folder of `smdl reproduce`, for every experiment, and the paper's figures as well."""
    items = panels.items_of(folder)
    if items is None:
        return [render(folder)]
    experiments = dict.fromkeys(name for names in items.values() for name in names)
    pages = [render(folder / name) for name in experiments]
    return [*pages, *(path for item in items if (path := panels.write(folder, item)))]


def drawn(results: Results, chosen: dict[str, Chosen]) -> dict[str, Figure]:
    """The figures of plots/, by file name."""
    seen, primary = look(results), results["primary"]
    figures: dict[str, Figure | None] = {}
    for protocol in results["protocols"]:
        for axis in plots.axes_of(results):
            figures[f"curves-{protocol}-{axis}"] = plots.curves(results, protocol, axis)
        if len(results["arms"]) > 1:
            figures[f"accuracy-{protocol}"] = plots.finals(results, protocol)
    figures["costs"] = plots.costs(results)
    figures["balance"] = plots.curves(results, primary, "epochs", list(plots.BALANCE))
    figures["terms"] = plots.terms(results, primary)
    figures["usage"] = pictures.usage(chosen, seen)
    for place, (arm, found) in enumerate(chosen.items()):
        if found.portrait:
            name = f"{place}-{re.sub(r'[^A-Za-z0-9_-]+', '-', arm)[:40]}"  # arms may be named anything
            figures[f"map-{name}"] = pictures.feature_map(found, seen.colours[arm])
            figures[f"gallery-{name}"] = pictures.gallery(found, arm)
    return {name: figure for name, figure in figures.items() if figure is not None}


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)
