"""The report of `smdl dedup`: rows kept over the threshold, pairs on both sides of it, the largest groups."""

from functools import partial
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from smdl.report.figures import Look, plot, tidy
from smdl.report.panels import Panel, fill, picture, render_file
from smdl.report.selection_page import place_text


def render_dedup(folder: Path) -> Path:
    """Write report.html into the folder of smdl dedup. Return the page."""
    return render_file(folder / "dedup.json", "the same smdl dedup", _page)


def _page(found: dict[str, Any]) -> str:
    curve = found["curve"]
    caption = f"Rows kept at each similarity. The mark is the threshold of this run, {found['threshold']:g}."
    panel = Panel(partial(_curve, curve=curve, threshold=found["threshold"]), caption, caption)
    return fill(
        "dedup.html.j2",
        title=found["title"],
        facts=_facts(found),
        curve=picture(panel),
        floor=f"{found['floor']:g}",
        above=[_pair(pair) for pair in found["above"]],
        below=[_pair(pair) for pair in found["below"]],
        groups=[(f"{group['rows']:,}", place_text(group["row"])) for group in found["groups"]],
        provenance=[*found["settings"].items(), ("rows left out", found["left_out"])],
    )


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [
        ("rows", f"{found['rows']:,}"),
        ("kept", f"{found['kept']:,}"),
        ("near-copies of kept rows", f"{found['copies']:,}"),
        ("similarity of a near-copy, at least", f"{found['threshold']:g}"),
        ("seconds", f"{found['seconds']:,.1f}"),
    ]
    if found["leaks"] is not None:
        facts.insert(3, ("near-copies of --against", f"{found['leaks']:,}"))
    if found["recall"] is not None:
        facts.append(("recall of the search, on random rows", f"{found['recall']:.4f}"))
    return facts


def _pair(pair: dict[str, Any]) -> tuple[str, str, str]:
    return f"{pair['similarity']:.4f}", place_text(pair["row"]), place_text(pair["other"])


def _curve(look: Look, curve: dict[str, list[float]], threshold: float) -> Figure:
    figure, axes = plot(230)
    axes.plot(curve["similarity"], curve["kept"], color=look.theme.palette[0])
    axes.axvline(threshold, color=look.theme.baseline, linewidth=1)
    tidy(axes, "Rows kept", "similarity of a near-copy")
    axes.set_ylim(bottom=0)
    return figure
