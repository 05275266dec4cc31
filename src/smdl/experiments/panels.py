"""Panels: the paper's figures in its own layout, out of the results of several experiments."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smdl.experiments.figures import INK, PANEL, blank, label, look, png, styled, tidy
from smdl.experiments.plots import AXES, MEASURES, curve, draw
from smdl.experiments.results import collect
from smdl.training.files import read_json, replacing, write_json

#: What each figure of the paper draws over the epochs.
SHOWS = {
    "figure-accuracy": ("test_error", "test_loss"),
    "figure-ablation": ("test_error",),
    "figure-terms": ("test_error", "test_loss"),
    "figure-train": ("train_error", "train_loss"),
    "figure-test-loss": ("test_loss",),
}
ITEMS = "items.json"
#: Of a caption's line, a panel's width.
LETTERS = 84


def add_item(out: Path, item: str, folders: Sequence[Path]) -> None:
    """Note in items.json which experiments an item of the paper is made of."""
    write_json(out / ITEMS, {**(items_of(out) or {}), item: [folder.name for folder in folders]})


def items_of(out: Path) -> dict[str, list[str]] | None:
    """{item: names of its experiments}; None where a folder is not one of `smdl reproduce`, or that is damaged."""
    found = read_json(out / ITEMS)
    return found if isinstance(found, dict) and all(isinstance(names, list) for names in found.values()) else None


def write(out: Path, item: str) -> Path | None:
    """The picture of an item, if it is a figure."""
    if item not in SHOWS:
        return None
    names = (items_of(out) or {})[item]
    with replacing(out / f"{item}.png") as file:
        file.write(png(figure([collect(out / name) for name in names], SHOWS[item])))
    return out / f"{item}.png"


@styled
def figure(experiments: Sequence[dict[str, Any]], measures: Sequence[str]) -> Figure:
    """A row a measure and a column an experiment, as in the paper; one measure of several experiments goes two in a
    row, one experiment's measures side by side."""
    places = [(results, measure) for measure in measures for results in experiments]
    across = len(experiments) if 1 < len(experiments) < 4 and len(measures) > 1 else min(2, len(places))
    down = -(-len(places) // across)
    drawing = blank(PANEL * across, 290 * down)
    for place, (results, measure) in enumerate(places):
        axes, (title, scale) = drawing.add_subplot(down, across, place + 1), MEASURES[measure]
        found = {arm: curve(results, arm, "steps", "epochs", measure, scale) for arm in results["arms"]}
        seen = look(results)
        draw(axes, {arm: drawn for arm, drawn in found.items() if drawn is not None}, seen)
        tidy(axes, f"{label(results['title'].partition(',')[0].partition(':')[0])}: {title}", AXES["epochs"])
        lines = [Line2D([], [], **seen.line(arm)) for arm in results["arms"]]
        axes.legend(lines, [label(arm) for arm in results["arms"]], ncols=2, fontsize=8, handlelength=1.6)
    captions = dict.fromkeys(results["caption"] for results in experiments if results["caption"])
    lines = [line for caption in captions for line in wrap(caption, LETTERS * across)]
    drawing.supxlabel("\n".join(lines), x=0.01, ha="left", size=8.5, color=INK)
    return drawing
