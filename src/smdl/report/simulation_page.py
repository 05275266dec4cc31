"""The report of `smdl label simulate`: accuracy by labels of each method, and what it saved, from simulation.json."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smdl.report.figures import PANEL, Look, add_legend, plot, tidy
from smdl.report.panels import Panel, fill, picture, render_file


def render_simulation(folder: Path) -> Path:
    """Write report.html into the folder of a simulation. Return the page."""
    return render_file(folder / "simulation.json", "the same smdl label simulate", _page)


def _page(found: dict[str, Any]) -> str:
    names = [row["method"] for row in found["methods"]]
    caption = (
        f"Mean accuracy of {found['seeds']} draws of the rows, by the number of labels. The bands are 95 % intervals of"
        " the mean. Every method but random begins with the rows of facility location."
    )
    panel = Panel(partial(simulation_curves, found=found), caption, caption)
    return fill(
        "simulation.html.j2",
        title=found["title"],
        facts=[("rows", f"{found['rows']:,}"), ("classes", found["classes"]), ("labels per round", found["size"])],
        answer=found["answer"],
        curves=picture(panel, Look(names, "random")),
        methods=simulation_rows(found),
        target=f"{found['target']:.1f}",
        last=found["labels"][-1],
    )


def simulation_rows(found: dict[str, Any]) -> list[tuple[str | None, ...]]:
    """Return a line per method: area, difference, labels needed, how many more random needs, seconds per round."""
    rows = []
    for row in found["methods"]:
        gap, half = row["difference"], row["difference_half"]
        shown = None if gap is None else f"{gap:+.1f}" + ("" if half is None else f" ± {half:.1f}")
        needed = None if row["labels_needed"] is None else f"{row['labels_needed']:.0f}"
        ratio = None if row["ratio"] is None else f"{row['ratio']:.1f} ×"
        area = f"{row['area']:.1f}"
        shown = shown.replace("-", "−") if shown else shown
        rows.append((row["method"], area, shown, needed, ratio, f"{row['seconds']:.2f}"))
    return rows


def simulation_curves(look: Look, found: dict[str, Any]) -> Figure:
    """Draw the accuracy of each method by the number of labels."""
    figure, axes = plot(300, 1.4 * PANEL)
    lines = [curve_with_band(axes, look, found["labels"], row) for row in found["methods"]]
    tidy(axes, "Accuracy on rows that nobody labelled, %", "labels")
    add_legend(figure, [row["method"] for row in found["methods"]], lines, columns=4)
    return figure


def curve_with_band(axes: Axes, look: Look, labels: list[int], row: dict[str, Any], **more: Any) -> Line2D:
    """Draw the accuracy of a method and the interval of its mean. Return the line."""
    values, half, name = np.array(row["accuracy"]), np.array([each or 0.0 for each in row["half"]]), row["method"]
    (line,) = axes.plot(labels, values, **look.line(name), **more)
    axes.fill_between(labels, values - half, values + half, color=look.colours[name], alpha=0.12, linewidth=0)
    return line
