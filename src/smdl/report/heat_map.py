"""A picture of methods and regimes: the difference of each method to the baseline of the regime, with its interval."""

from bisect import bisect_right
from functools import partial

from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from smdl.experiments.records import Comparison, Results
from smdl.experiments.regimes import arm_name, baseline_of
from smdl.experiments.statistics import Difference
from smdl.report.figures import Look, blank, label
from smdl.report.summaries import LEGEND, MISSING, ORACLE_NOTE, VERDICTS, estimate_text, regime_mark, rows_of

#: Points of accuracy at which the colour becomes stronger.
LEVELS = (0.5, 1.0, 2.0, 4.0, 8.0)
#: Size of a cell and of the labels around the cells, in points.
CELL_WIDTH, CELL_HEIGHT, ROOM_LEFT, ROOM_RIGHT, ROOM_ABOVE, ROOM_BELOW = 88, 44, 150, 8, 34, 46
#: Width of a colour of the legend.
COLOUR_WIDTH = 26
CAPTION = (
    "Difference to the baseline of the same regime, in points of accuracy, with its 95 % interval. Blue is higher"
    f" accuracy, orange is lower. {LEGEND} Frame and bold type: ▲ and ▼. First row: accuracy of the baseline."
    f" {ORACLE_NOTE}"
)


def heat_map(look: Look, results: Results, protocol: str) -> Figure:
    """Draw a row per method and a column per regime."""
    found = {row.arm: (row, test) for row, test in rows_of(results, protocol)}
    baseline, colours = baseline_of(results.methods), look.theme.diverging
    methods = [baseline, *(method for method in results.methods if method != baseline)]
    width, height = CELL_WIDTH * len(results.regimes), CELL_HEIGHT * len(methods)
    legend = COLOUR_WIDTH * len(colours)
    whole = (ROOM_LEFT + max(width, legend) + ROOM_RIGHT, ROOM_ABOVE + height + ROOM_BELOW)
    figure = blank(*whole)
    figure.set_layout_engine("none")
    axes = figure.add_axes((ROOM_LEFT / whole[0], ROOM_BELOW / whole[1], width / whole[0], height / whole[1]))
    axes.set(xlim=(0, len(results.regimes)), ylim=(len(methods), 0))
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    axes.set_xticks([place + 0.5 for place in range(len(results.regimes))], [label(name) for name in results.regimes])
    axes.set_yticks([place + 0.5 for place in range(len(methods))], [label(name) for name in methods])
    text, write = look.theme.box[1], partial(axes.annotate, ha="center", va="center", fontsize=9.5)
    for down, method in enumerate(methods):
        for across, regime in enumerate(results.regimes):
            middle = (across + 0.5, down + 0.5)
            if arm_name(method, regime) not in found:  # it hides nothing that an oracle could use
                write(MISSING, middle)
                continue
            row, test = found[arm_name(method, regime)]
            if test is None:
                write(estimate_text(results.estimate(row), ".1f").replace(" ± ", " %\n± "), middle)
                continue
            strong = test.verdict in ("better", "worse")
            cell = Rectangle((across + 0.03, down + 0.05), 0.94, 0.9, facecolor=colours[shade(test)], linewidth=0)
            if strong:
                cell.set(edgecolor=text, linewidth=1.6)
            axes.add_patch(cell)
            write(cell_text(test, results, regime), middle, color=text, weight="bold" if strong else "normal")
    _legend(figure, look, whole)
    return figure


def shade(test: Comparison) -> int:
    """Return the place of a difference among the colours: 5 is the middle."""
    if test.difference is None:
        return len(LEVELS)
    strength = bisect_right(LEVELS, abs(test.difference))
    return len(LEVELS) + (strength if test.difference > 0 else -strength)


def cell_text(test: Comparison, results: Results, regime: str) -> str:
    """Return the text of a cell, in two lines."""
    if test.difference is None or test.verdict in ("chance", "missing"):
        return VERDICTS[test.verdict].strip("()")
    gap = estimate_text(Difference(test.difference, test.half, test.p), "+.1f")
    found = regime_mark(results, test, regime)
    return gap.replace(" ± ", f" {found}\n± ") if " ± " in gap else f"{gap} {found}"


def _legend(figure: Figure, look: Look, whole: tuple[float, float]) -> None:
    """Draw the colours in a row, with the levels between them."""
    count = len(look.theme.diverging)
    axes = figure.add_axes((ROOM_LEFT / whole[0], 22 / whole[1], COLOUR_WIDTH * count / whole[0], 9 / whole[1]))
    for place, colour in enumerate(look.theme.diverging):
        axes.add_patch(Rectangle((place, 0), 1, 1, facecolor=colour, linewidth=0))
    levels = [*(-level for level in reversed(LEVELS)), *LEVELS]
    axes.set(xlim=(0, count), ylim=(0, 1), yticks=[])
    axes.set_xticks(range(1, count), [f"{level:+g}".replace("-", "−") for level in levels], fontsize=8)
    axes.tick_params(length=0, pad=2)
    for side in axes.spines.values():
        side.set_visible(False)
