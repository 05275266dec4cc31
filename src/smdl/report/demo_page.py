"""The page of `make demo`: labels first, then training, from labels.json and the folder of a comparison."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from smdl.experiments.results import collect
from smdl.report.figures import Look, blank, data_uri, label, png, tidy
from smdl.report.panels import Panel, fill, picture, render_file
from smdl.report.simulation_page import curve_with_band, simulation_rows

CHOSEN, BY_CHANCE = "labels", "random"
NAMES = {CHOSEN: "chosen by smdl", BY_CHANCE: "at random"}


def render_demo(folder: Path) -> Path:
    """Write index.html into the folder of the demo. Return the page."""
    return render_file(folder / "labels.json", "make demo", partial(_page, folder), "index.html")


def _page(folder: Path, found: dict[str, Any]) -> str:
    at = found["labels"].index(found["shown"])
    scores = {row["method"]: row["accuracy"][at] for row in found["methods"]}
    caption = (
        f"Left: accuracy of a logistic regression by the number of labels, mean of {found['draws']} draws, with 95 %"
        f" intervals. Right: {found['shown']} digits as they are chosen ({found['seen'][CHOSEN]} of 10 classes) and at"
        f" random ({found['seen'][BY_CHANCE]} of 10)."
    )
    panel = Panel(partial(_drawing, found=found), caption, caption)
    return fill(
        "demo.html.j2",
        headline=f"{found['shown']} labels: {scores[CHOSEN]:.0f} % chosen, {scores[BY_CHANCE]:.0f} % at random",
        answer=found["answer"],
        picture=picture(panel, Look([BY_CHANCE, CHOSEN], BY_CHANCE)),
        methods=[(NAMES[row[0]], *row[1:5]) for row in simulation_rows(found) if row[0]],
        target=f"{found['target']:.1f}",
        last=found["labels"][-1],
        training=_training(folder / "training"),
    )


def labels_picture(found: dict[str, Any]) -> bytes:
    """Return the picture of the labels as a PNG."""
    return png(partial(_drawing, found=found), Look([BY_CHANCE, CHOSEN], BY_CHANCE))


def _training(folder: Path) -> dict[str, Any] | None:
    """Return what the comparison says; None while there is none."""
    if not (folder / "plan.yaml").exists():
        return None
    results = collect(folder)
    plots = sorted((folder / "plots").glob("accuracy*.png"))
    shown = data_uri(plots[0].read_bytes(), "image/png") if plots else None
    return {"answer": results.answer, "verdict": results.verdict, "plot": shown, "report": f"{folder.name}/report.html"}


def _drawing(look: Look, found: dict[str, Any]) -> Figure:
    figure = blank(760, 250)
    halves: Any = figure.subfigures(1, 2, width_ratios=(1, 1.15))
    left, right = halves
    axes = left.add_subplot()
    for row in found["methods"]:
        curve_with_band(axes, look, found["labels"], row, label=label(NAMES[row["method"]]))
    axes.legend(loc="lower right")
    tidy(axes, "Accuracy, %", "labels")
    grids = right.subplots(2, 1)
    for axes, name in zip(grids, (CHOSEN, BY_CHANCE), strict=True):
        images = np.array(found["images"][name], float)
        axes.imshow(_sheet(images), cmap="gray_r", interpolation="nearest")
        axes.set_title(f"{len(images)} {NAMES[name]}: {found['seen'][name]} of 10 classes", color=look.theme.ink)
        axes.set_axis_off()
    return figure


def _sheet(images: np.ndarray) -> np.ndarray:
    """Lay small images out on a sheet, ten in a row, with a gap between them."""
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows = [np.concatenate(list(padded[start : start + 10]), axis=1) for start in range(0, len(padded), 10)]
    return np.concatenate(rows)
