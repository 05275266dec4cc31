"""The paper's figures in its own layout, from the results of several experiments."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from smdl.common.storage import read_json, write_bytes
from smdl.experiments.records import Results
from smdl.experiments.results import collect
from smdl.paper.sweeps import ITEMS_FILE
from smdl.report.figures import PANEL, blank, label, look_of, png, tidy
from smdl.report.plots import AXES, QUANTITIES, draw_curves

#: What each figure of the paper draws over the epochs.
SHOWN = {
    "figure-accuracy": ("test_error", "test_loss"),
    "figure-ablation": ("test_error",),
    "figure-terms": ("test_error", "test_loss"),
    "figure-train": ("train_error", "train_loss"),
    "figure-test-loss": ("test_loss",),
}
#: Letters per line of a caption, per panel.
LETTERS = 84


def read_items(folder: Path) -> dict[str, list[str]] | None:
    """Return item -> names of its experiments, in a folder of `smdl reproduce`; None for any other folder."""
    found = read_json(folder / ITEMS_FILE)
    return found if isinstance(found, dict) and all(isinstance(names, list) for names in found.values()) else None


def render_items(folder: Path) -> list[Path]:
    """Draw the figures of the paper that the folder of `smdl reproduce` has the experiments for."""
    paths = []
    for item, names in (read_items(folder) or {}).items():
        if item in SHOWN:
            experiments = [collect(folder / name) for name in names]
            content = png(lambda _, shown=experiments, item=item: figure(shown, SHOWN[item]), look_of(experiments[0]))
            paths.append(folder / f"{item}.png")
            write_bytes(paths[-1], content)
    return paths


def figure(experiments: Sequence[Results], quantities: Sequence[str]) -> Figure:
    """Draw a row per quantity and a column per experiment, as in the paper. One quantity of several experiments fills
    rows of two; the quantities of one experiment stand side by side."""
    places = [(results, quantity) for quantity in quantities for results in experiments]
    across = len(experiments) if 1 < len(experiments) < 4 and len(quantities) > 1 else min(2, len(places))
    down = -(-len(places) // across)
    drawing = blank(PANEL * across, 290 * down)
    for place, (results, quantity) in enumerate(places):
        axes, look = drawing.add_subplot(down, across, place + 1), look_of(results)
        draw_curves(axes, look, results, "steps", "epochs", quantity)
        title = label(results.title.partition(",")[0].partition(":")[0])
        tidy(axes, f"{title}: {QUANTITIES[quantity][0]}", AXES["epochs"])
        lines = [Line2D([], [], **look.line(arm)) for arm in results.arms]
        axes.legend(lines, [label(arm) for arm in results.arms], ncols=2, fontsize=8, handlelength=1.6)
    captions = dict.fromkeys(results.caption for results in experiments if results.caption)
    lines = [line for caption in captions for line in wrap(caption, LETTERS * across)]
    drawing.supxlabel("\n".join(lines), x=0.01, ha="left", size=8.5)
    return drawing
