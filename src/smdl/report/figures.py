"""The style of all figures: a colour for every arm, in a light and a dark theme, and saving as PNG and SVG."""

import base64
import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter
from PIL import Image

if TYPE_CHECKING:
    from smdl.experiments.records import Results


@dataclass(frozen=True)
class Theme:
    """The colours of a figure. Its background is transparent."""

    ink: str  # text and axes
    baseline: str
    palette: tuple[str, ...]  # arms and terms; distinct for colour-blind readers too
    parts: dict[str, str]  # of a step's time
    box: tuple[str, str]  # background and text of a label on top of points
    diverging: tuple[str, ...]  # from worse to better, the middle is no difference; text in box[1] is legible on all


ORANGE_TO_BLUE = (
    "#e8892f", "#f0a55c", "#f6c08a", "#fad8b5", "#fcebd9", "#f1f2f4",
    "#dceaf5", "#c0dcf0", "#9dcaea", "#7fb9e0", "#62a8d6",
)  # fmt: skip
ORANGE_TO_BLUE_DARK = (
    "#a8540f", "#964d13", "#784016", "#5a3419", "#40291b", "#262c35",
    "#1d3244", "#1a3e5a", "#184b73", "#155a8d", "#1269a8",
)  # fmt: skip
#: All figures are drawn in it. Its ink is legible on black too: the files in plots/ may be put on any page.
LIGHT = Theme(
    ink="#727b87",
    baseline="#7d8998",
    palette=("#0077bb", "#e06c2b", "#009988", "#cc3377", "#7755bb", "#a88200"),
    parts={"training": "#8fa1b5", "data": "#c2a878", "scoring": "#d08a1d", "selection": "#8a63b8"},
    box=("#ffffff", "#333a44"),
    diverging=ORANGE_TO_BLUE,
)
DARK = Theme(
    ink="#a3adba",
    baseline="#93a0b0",
    palette=("#4aa8e8", "#f08a4b", "#2fbfae", "#ef6ba4", "#a98be8", "#d9b13b"),
    parts={"training": "#6d7f94", "data": "#a89368", "scoring": "#dd9a32", "selection": "#a07bd0"},
    box=("#171b22", "#e6eaf0"),
    diverging=ORANGE_TO_BLUE_DARK,
)
#: Colour of the light theme -> the dark theme's in its place.
IN_THE_DARK = {
    LIGHT.ink: DARK.ink,
    LIGHT.baseline: DARK.baseline,
    LIGHT.box[1]: DARK.box[1],
    **dict(zip(LIGHT.palette, DARK.palette, strict=True)),
    **dict(zip(LIGHT.parts.values(), DARK.parts.values(), strict=True)),
    **dict(zip(LIGHT.diverging, DARK.diverging, strict=True)),
}
#: Arms that have the same colour in every report: name -> place in the palette.
KNOWN = {"recommended": 0, "paper": 1, "loss": 2, "paper_subset": 3, "balanced": 4, "fresh": 5}
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: For arms beyond the colours: matplotlib's name -> the style sheet's name.
DASHES = {"-": "solid", "--": "dashed", ":": "dotted"}
STYLE: dict[str, Any] = {
    "font.size": 10,
    "font.sans-serif": ["DejaVu Sans"],  # what matplotlib measures text with; a browser may use another sans-serif
    "axes.labelsize": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 9,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "svg.fonttype": "none",
    "svg.hashsalt": "smdl",
    "text.parse_math": False,  # names are shown as they are, including $
}
#: Settings that have the colour of the ink.
INKED = tuple(
    f"{name}color" for name in ("text.", "axes.label", "axes.title", "axes.edge", "xtick.", "ytick.", "grid.")
)
#: Points across a panel: as wide as a phone, half as wide as a page.
PANEL = 390
#: Letters of a name in a figure.
NAME_LENGTH = 28


class Look:
    """How arms are drawn: colour, marker and dash, the same in every figure of a report."""

    theme = LIGHT

    def __init__(self, arms: Sequence[str], baseline: str, against: dict[str, str] | None = None) -> None:
        theme = self.theme
        taken = {KNOWN[arm] for arm in arms if arm in KNOWN and arm != baseline}
        free = [place for place in range(len(theme.palette)) if place not in taken] or list(range(len(theme.palette)))
        others = [arm for arm in arms if arm != baseline and arm not in KNOWN]
        places = {arm: free[number % len(free)] for number, arm in enumerate(others)}
        places |= {arm: KNOWN[arm] for arm in arms if arm in KNOWN}
        self.colours = {arm: theme.palette[place] for arm, place in places.items()}
        self.colours[baseline] = theme.baseline if len(arms) > 1 else theme.palette[0]
        self.markers = {arm: MARKERS[number % len(MARKERS)] for number, arm in enumerate(arms)}
        repeats = {arm: number // len(free) for number, arm in enumerate(others)}
        self.dashes = {arm: list(DASHES)[repeats.get(arm, 0) % len(DASHES)] for arm in arms}
        rivals = list((against or {}).values())
        for arm, rival in (against or {}).items():
            if rivals.count(rival) == 1:  # a pair: the same colour, the baseline dashed
                self.colours[rival], self.dashes[rival] = self.colours[arm], "--"

    def line(self, arm: str, markers: bool = True) -> dict[str, Any]:
        """Return the arguments of an arm's line."""
        marker = {"marker": self.markers[arm], "markersize": 3.6} if markers else {}
        return {"color": self.colours[arm], "linestyle": self.dashes[arm], **marker}


Draw = Callable[[Look], Figure]


def look_of(results: "Results") -> Look:
    """Return the look of the arms of these results."""
    return Look(results.arms, results.baseline, results.against)


def blank(width: float, height: float) -> Figure:
    """Return an empty figure. A point is a pixel of its SVG."""
    return Figure(figsize=(width / 72, height / 72), layout="constrained")


def plot(height: float, width: float = PANEL) -> tuple[Figure, Axes]:
    """Return an empty figure with one panel."""
    figure = blank(width, height)
    return figure, figure.add_subplot()


def tidy(axes: Axes, title: str = "", label: str = "", grid: str = "y") -> None:
    """Remove the box and the ticks and draw faint grid lines. The title says what the values are."""
    axes.set_title(title)
    axes.set_xlabel(label, loc="right")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set(alpha=0.5, linewidth=0.7)
    axes.tick_params(which="both", length=0)
    axes.grid(axis=grid, alpha=0.22, linewidth=0.6)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(number))


def number(value: float, _: Any = None) -> str:
    """Format a number for an axis."""
    return f"{value:,.8g}".replace("-", "−")


def label(name: object) -> str:
    """Shorten a name for a figure, and replace what cannot be printed."""
    shown = "".join(letter if letter.isprintable() else "�" for letter in str(name))
    return shown if len(shown) <= NAME_LENGTH else shown[: NAME_LENGTH - 1] + "…"


def add_legend(figure: Figure, names: Sequence[str], lines: Sequence[Line2D], columns: int = 6) -> None:
    """Add a legend above the panels."""
    shown = [label(name) for name in names]
    figure.legend(
        list(lines), shown, loc="outside upper left", ncols=min(columns, max(1, len(names))), handlelength=1.6
    )


def png(draw: Draw, look: Look) -> bytes:
    """Draw a figure as a PNG with two pixels per point."""
    file, small = io.BytesIO(), io.BytesIO()
    _save(draw, look, file, format="png", dpi=144)
    image = Image.open(file).convert("RGBA")
    image.quantize(256, Image.Quantize.FASTOCTREE).save(small, "PNG", optimize=True)  # a third of the bytes
    return small.getvalue()


def svg(draw: Draw, look: Look) -> bytes:
    """Draw a figure as an SVG in the theme of the reader's system. Its text stays text, in the reader's font."""
    file = io.BytesIO()
    _save(draw, look, file, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    pattern = rb"(?<=fill: |roke: )#([0-9a-f]{6})"
    used = sorted({f"#{found.decode()}" for found in re.findall(pattern, file.getvalue())} & set(IN_THE_DARK))
    light, dark = (
        "".join(f"--c{colour[1:]}:{shown[colour]};" for colour in used) for shown in ({c: c for c in used}, IN_THE_DARK)
    )
    style = f"<style>:root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"

    def variable(found: re.Match[bytes]) -> bytes:
        return b"var(--c%b)" % found[1] if f"#{found[1].decode()}" in IN_THE_DARK else found[0]

    return re.sub(pattern, variable, file.getvalue()).replace(b"<defs>", f"{style}<defs>".encode(), 1)


def data_uri(content: bytes, kind: str) -> str:
    """Return an address that contains the content itself."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def _save(draw: Draw, look: Look, file: io.BytesIO, **options: Any) -> None:
    style: Any = STYLE | dict.fromkeys(INKED, look.theme.ink)
    # matplotlib's font lacks some letters that names may have; a browser's fonts have them.
    with matplotlib.rc_context(style), warnings.catch_warnings(action="ignore", category=UserWarning):
        draw(look).savefig(file, transparent=True, **options)
