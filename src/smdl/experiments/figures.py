"""Figures: one restrained style, a colour for every arm, and the way of a figure to PNG and to SVG.

A PNG has no background and text of a middle tone, legible on white and on black; an SVG follows the reader's theme.
"""

import base64
import io
import re
import warnings
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

#: Text and axes; everything that is neither an arm nor a part of something.
INK = "#727b87"
#: Of the baseline, and of the other arms in turn; told apart by those who see no red or no green as well.
BASELINE = "#7d8998"
PALETTE = ("#0077bb", "#e06c2b", "#009988", "#cc3377", "#7755bb", "#a88200")
#: Arms that every report shows alike, whatever else it compares.
KNOWN = {"recommended": "#0077bb", "paper": "#e06c2b", "loss": "#009988", "paper_subset": "#cc3377"}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: For arms beyond the colours; and what a page calls them.
DASHES = {"-": "solid", "--": "dashed", ":": "dotted"}
#: Where the seconds of a step go.
PARTS = {"training": "#8fa1b5", "data": "#c2a878", "scoring": "#d08a1d", "selection": "#8a63b8"}
#: On a dark page, an SVG shows these instead.
DARK = {
    INK: "#a3adba",
    BASELINE: "#93a0b0",
    "#0077bb": "#4aa8e8",
    "#e06c2b": "#f08a4b",
    "#009988": "#2fbfae",
    "#cc3377": "#ef6ba4",
    "#7755bb": "#a98be8",
    "#a88200": "#d9b13b",
    "#8fa1b5": "#6d7f94",
    "#c2a878": "#a89368",
    "#d08a1d": "#dd9a32",
    "#8a63b8": "#a07bd0",
}
STYLE: Any = {
    "font.size": 10,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "smdl",
    "text.parse_math": False,  # names are shown as they are, a $ too
}
styled = matplotlib.rc_context(STYLE)
#: Points across a panel: as wide as a phone, and half as wide as a page.
PANEL = 390
SHOWN = 28


class Look:
    """How an arm is drawn: colour, marker and dash, the same in every figure of a report."""

    def __init__(self, arms: Sequence[str], baseline: str, against: dict[str, str] | None = None) -> None:
        taken = {KNOWN[arm] for arm in arms if arm in KNOWN and arm != baseline}
        free = [colour for colour in PALETTE if colour not in taken] or list(PALETTE)
        others = [arm for arm in arms if arm != baseline and arm not in KNOWN]
        self.colours = {arm: free[place % len(free)] for place, arm in enumerate(others)}
        self.colours |= {arm: KNOWN[arm] for arm in arms if arm in KNOWN}
        self.colours[baseline] = BASELINE if len(arms) > 1 else PALETTE[0]
        self.markers = {arm: MARKERS[place % len(MARKERS)] for place, arm in enumerate(arms)}
        repeats = {arm: max(0, place // len(free)) for place, arm in enumerate(others)}
        self.dashes = {arm: list(DASHES)[repeats.get(arm, 0) % len(DASHES)] for arm in arms}
        rivals = list((against or {}).values())
        for arm, rival in (against or {}).items():
            if rivals.count(rival) == 1:  # a pair: one colour, the baseline dashed
                self.colours[rival], self.dashes[rival] = self.colours[arm], "--"

    def line(self, arm: str, markers: bool = True) -> dict[str, Any]:
        """Arguments of a line."""
        marker = {"marker": self.markers[arm], "markersize": 3.6} if markers else {}
        return {"color": self.colours[arm], "linestyle": self.dashes[arm], **marker}


def look(results: dict[str, Any]) -> Look:
    """Of the arms of these results."""
    return Look(results["arms"], results["baseline"], results.get("against"))


def blank(width: float, height: float) -> Figure:
    """An empty figure; in points, which are the pixels of its SVG."""
    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def tidy(axes: Axes, title: str = "", label: str = "", grid: str = "y") -> None:
    """No box, no ticks, faint lines to read values off; the title says what the values are."""
    axes.set_title(title)
    axes.set_xlabel(label, loc="right")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(alpha=0.5, linewidth=0.7)
    axes.tick_params(which="both", length=0)
    axes.grid(axis=grid, color=INK, alpha=0.22, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(number))


def number(value: float, _: Any = None) -> str:
    """As an axis shows it."""
    return f"{value:,.8g}".replace("-", "−")


def label(name: object) -> str:
    """A name as a figure shows it: printable, and not too long."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in str(name))
    return shown if len(shown) <= SHOWN else shown[: SHOWN - 1] + "…"


def add_legend(figure: Figure, names: Sequence[str], lines: Sequence[Line2D], columns: int = 6) -> None:
    """Above the panels."""
    shown = [label(name) for name in names]
    figure.legend(
        list(lines), shown, loc="outside upper left", ncols=min(columns, max(1, len(names))), handlelength=1.6
    )


@styled
def png(figure: Figure, scale: float = 2.0) -> bytes:
    """A PNG without background, of so many pixels a point."""
    file = io.BytesIO()
    with _any_letters():
        figure.savefig(file, format="png", dpi=72 * scale, transparent=True)
    return _fewer_colours(file.getvalue())


@styled
def svg(figure: Figure) -> str:
    """An SVG in the reader's own font and theme: nothing in it refers to anything outside."""
    file = io.StringIO()
    with _any_letters():
        figure.savefig(
            file, format="svg", transparent=True, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    text = file.getvalue()
    text = text[text.index("<svg ") :]
    text = re.sub(r'style="[^"]*"', _own_font, text)
    text = re.sub(r' transform="rotate\(-0 [^)]*\)"', "", text)
    text = re.sub(r' id="(?:figure|axes|patch|line2d|text|xtick|ytick|legend|matplotlib\.axis)_\d+"', "", text)
    text = re.sub(r"(fill|stroke): (#[0-9a-f]{6})", _themed, text)
    text = re.sub(r' (?:d|x|y)="[^"]*"', _rounded, text)
    text = re.sub(r"\s*\n\s*", "\n", text)
    colours = "".join(f"--c{light[1:]}:{light};" for light in DARK)
    darker = "".join(f"--c{light[1:]}:{dark};" for light, dark in DARK.items())
    fonts = 'ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif'
    style = f":root{{{colours}--font:{fonts}}}@media (prefers-color-scheme:dark){{:root{{{darker}}}}}"
    return text.replace("<defs>", f"<style>{style}</style><defs>", 1)


def uri(content: bytes | str, kind: str) -> str:
    """The content itself, as an address."""
    raw = content.encode() if isinstance(content, str) else content
    return f"data:{kind};base64,{base64.b64encode(raw).decode()}"


def _themed(found: re.Match[str]) -> str:
    colour = found[2]
    return f"{found[1]}: var(--c{colour[1:]})" if colour in DARK else found[0]


def _own_font(style: re.Match[str]) -> str:
    """Within a style alone: a name may read like one."""
    return re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", style[0])


def _rounded(found: re.Match[str]) -> str:
    """Tenths of a point are finer than any screen."""
    return re.sub(r"-?\d+\.\d+", lambda number: f"{float(number[0]):.1f}", found[0]).replace(" \n", " ")


def _fewer_colours(content: bytes) -> bytes:
    """The same picture in a palette of 256 colours: a third of the bytes."""
    from PIL import Image

    file = io.BytesIO()
    image = Image.open(io.BytesIO(content)).convert("RGBA")
    image.quantize(256, Image.Quantize.FASTOCTREE).save(file, "PNG", optimize=True)
    return file.getvalue()


def _any_letters() -> warnings.catch_warnings:
    """Names may hold letters that matplotlib's font lacks; the reader's font will have them."""
    return warnings.catch_warnings(action="ignore", category=UserWarning)
