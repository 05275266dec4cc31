"""The paper's figures in its own layout, from the results of several experiments."""

from collections.abc import Sequence
from pathlib import Path
from textwrap import wrap

from matplotlib.axes import Axes
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
#: Most arms in one panel, and the width of a panel that holds only an arm and its baseline.
FEW, SMALL_PANEL = 4, 230


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
    rows of two; the quantities of one experiment stand side by side. Where an experiment has many arms, every
    experiment has a row, with a panel for each arm beside its baseline: bands would lie over each other."""
    if any(len(results.arms) > FEW for results in experiments):
        panels = [
            (results, quantity, pair, (row, column))
            for row, (quantity, results) in enumerate((name, each) for name in quantities for each in experiments)
            for column, pair in enumerate(_pairs(results))
        ]
        down, across = (1 + max(panel[3][k] for panel in panels) for k in (0, 1))
        drawing = blank(SMALL_PANEL * across, 210 * down)
    else:
        places = [(results, quantity) for quantity in quantities for results in experiments]
        across = len(experiments) if 1 < len(experiments) < 4 and len(quantities) > 1 else min(2, len(places))
        down = -(-len(places) // across)
        panels = [(*each, each[0].arms, divmod(place, across)) for place, each in enumerate(places)]
        drawing = blank(PANEL * across, 290 * down)
    firsts: dict[int, Axes] = {}
    for results, quantity, arms, (row, column) in panels:
        small = arms is not results.arms
        axes, look = drawing.add_subplot(down, across, row * across + column + 1), look_of(results)
        draw_curves(axes, look, results, "steps", "epochs", quantity, arms)
        title = label(results.title.partition(",")[0].partition(":")[0])
        tidy(axes, "" if small and column else f"{title}: {QUANTITIES[quantity][0]}", AXES["epochs"])
        lines = [Line2D([], [], **look.line(arm)) for arm in arms]
        axes.legend(lines, [label(arm) for arm in arms], ncols=1 if small else 2, fontsize=8, handlelength=1.6)
        if small:
            _share_range(axes, firsts.setdefault(row, axes))
    captions = dict.fromkeys(results.caption for results in experiments if results.caption)
    letters = int(drawing.get_figwidth() * 72 / PANEL * LETTERS)
    lines = [line for caption in captions for line in wrap(caption, letters)]
    drawing.supxlabel("\n".join(lines), x=0.01, ha="left", size=8.5)
    return drawing


def _pairs(results: Results) -> list[list[str]]:
    """Return every arm that is tested, with its baseline before it."""
    rivals = results.against or {arm: results.baseline for arm in results.arms if arm != results.baseline}
    return [[rival, arm] for arm, rival in rivals.items()]


def _share_range(axes: Axes, first: Axes) -> None:
    """Give the panels of a row one range, which holds the ranges of all."""
    if axes is first:
        return
    bottom, top = zip(axes.get_ylim(), first.get_ylim(), strict=True)
    axes.sharey(first)
    first.set_ylim(min(bottom), max(top))
    axes.tick_params(labelleft=False)
