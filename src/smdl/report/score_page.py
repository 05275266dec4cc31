"""The report of `smdl score`: how the scores are distributed, and the rows at their extremes."""

from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from smdl.report.figures import Look, plot, tidy
from smdl.report.panels import Panel, fill, picture, render_file
from smdl.report.selection_page import place_text

#: The extremes: name in score.json, title, what it means.
EXTREMES = (
    ("typical", "Typical rows", "The highest density: rows like many others."),
    ("outliers", "Outliers", "The greatest distance to the nearest other row: errors, other languages, rare cases."),
    ("copied", "Rows with the most near-copies", "See smdl dedup for which row is a copy of which."),
    ("first", "The first rows of the order", "What facility location takes first: these represent the most others."),
)
COLUMNS = ("density", "distance", "copies", "rank", "gain")


def render_score(folder: Path) -> Path:
    """Write report.html into the folder of smdl score. Return the page."""
    return render_file(folder / "score.json", "the same smdl score", _page)


def _page(found: dict[str, Any]) -> str:
    panels = [
        Panel(partial(_curve, curve=curve, name=name), f"The {name} of the rows, sorted", f"The {name}, sorted.")
        for name, curve in found["curves"].items()
    ]
    return fill(
        "score.html.j2",
        title=found["title"],
        facts=[
            ("rows", f"{found['rows']:,}"),
            ("rows with a near-copy", f"{found['with_copies']:,}"),
            ("similarity of a near-copy, at least", f"{found['similarity']:g}"),
            ("neighbours of each row", f"{found['neighbours']:,}"),
            ("recall of the search, on random rows", f"{found['recall']:.4f}"),
            ("seconds", f"{found['seconds']:,.1f}"),
        ],
        curves=[picture(panel) for panel in panels],
        extremes=[(key, title, note, [_row(row) for row in found["extremes"][key]]) for key, title, note in EXTREMES],
        columns=["row", *COLUMNS],
        provenance=[*found["settings"].items(), ("rows left out", found["left_out"])],
    )


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    whole = (f"{row['copies']:,}", f"{row['rank']:,}")
    return place_text(row["row"]), f"{row['density']:.3f}", f"{row['distance']:.3f}", *whole, f"{row['gain']:.2g}"


def _curve(look: Look, curve: dict[str, list[float]], name: str) -> Figure:
    figure, axes = plot(230)
    axes.plot([100 * share for share in curve["share"]], curve["value"], color=look.theme.palette[0])
    tidy(axes, name.capitalize(), "% of the rows")
    return figure
