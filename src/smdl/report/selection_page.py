"""The report of `smdl select`: a map, the gains, groups and distances, from selection.json and map.npz."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from smdl.common.units import share_text
from smdl.report.figures import Look, plot, tidy
from smdl.report.panels import Panel, fill, picture, render_file, with_image

#: Shares of the value for which the page names the number of rows.
SHARES = (0.5, 0.9, 0.95, 0.99)
MAP = (
    "Two principal components of {sample:,} random rows (grey) and of {chosen} (colour). The axes are those of"
    " the random rows and hold {held:.0%} of their variance: rows that are near each other here need not be near."
)


def render_selection(folder: Path) -> Path:
    """Write report.html into the folder of a selection. Return the page."""
    return render_file(folder / "selection.json", "the same smdl select", partial(_page, folder))


def _page(folder: Path, found: dict[str, Any]) -> str:
    gains, distance = np.array(found["gains"]), found["distance"]
    groups = found["groups"]
    with np.load(folder / "map.npz", allow_pickle=False) as arrays:
        points = {name: arrays[name] for name in ("sample", "chosen")}
    return fill(
        "selection.html.j2",
        title=found["title"],
        facts=_facts(found, gains),
        map=picture(_map_panel(points, len(gains), found["variance_on_map"])),
        gains=[picture(panel) for panel in _gain_panels(gains)],
        paying=paying(gains),
        groups=_group_rows(groups, found["rows"], len(gains)) if groups else [],
        groups_note=_groups_note(groups) if groups else "",
        distances=[
            (name, *(f"{distance[key][part]:.4g}" for part in ("mean", "p95", "max")))
            for name, key in (("this one", "chosen"), ("random", "random"))
        ]
        if distance["chosen"]
        else [],
        sizes=_size_rows(found.get("sizes") or [], gains.sum()),
        measured=f"{distance['rows']:,}",
        pairs=[
            (place_text(pair["row"]), place_text(pair["nearest"]), f"{pair['rank']:,}", f"{pair['distance']:.4g}")
            for pair in found["pairs"]
        ],
        provenance=[
            *found["settings"].items(),
            ("width and type", f"{found['width']} × {found['dtype']}"),
            ("files", found["shards"]),
            ("rows left out", found["left_out"]),
            *(("plan", line) for line in found["plan"]),
        ],
    )


def _facts(found: dict[str, Any], gains: np.ndarray) -> list[tuple[str, str]]:
    facts = [
        ("rows", f"{found['rows']:,}"),
        ("chosen", f"{len(gains):,}"),
        ("value of the objective", f"{gains.sum():.4g}"),
        *((f"of the value from {name}", share_text(share)) for name, share in found.get("shares", {}).items()),
        ("seconds", f"{found['seconds']:,.1f}"),
    ]
    if found.get("recall") is not None:
        facts.append(("lowest recall of a graph of neighbours, on random rows", f"{found['recall']:.4f}"))
    distance = found["distance"]
    if distance["chosen"] and distance["random"]["mean"] > 0:
        ratio = distance["chosen"]["mean"] / distance["random"]["mean"]
        facts.append(("mean distance to the nearest chosen row, divided by that of a random choice", f"{ratio:.3f}"))
    return facts


def _size_rows(sizes: list[dict[str, Any]], total: float) -> list[tuple[str | None, ...]]:
    """Return the rows of the table of sizes; none if there is one size only."""
    return [
        (
            f"{each['size']:,}",
            f"{each['value']:.4g}",
            f"{each['value'] / total:.1%}" if total > 0 else None,
            f"{each['chosen']:.4g}",
            f"{each['random']:.4g}",
            f"{each['chosen'] / each['random']:.3f}" if each["random"] else None,
        )
        for each in sizes
        if len(sizes) > 1 and each["chosen"] is not None
    ]


def paying(gains: np.ndarray) -> str:
    """Say how many rows reach which share of the value, and what the last row adds."""
    total = gains.sum()
    if total <= 0 or (gains < 0).any():
        return "Some gains are not positive, so there are no shares of the value."
    shares = ", ".join(f"{100 * share:g} % by {count:,}" for share, count in zip(SHARES, _counts(gains), strict=True))
    last = 100 * gains[-1] * len(gains) / total
    return (
        f"How many of the first rows reach a share of the value of all {len(gains):,}: {shares}."
        f" The last row adds {last:.2g} % of what a row adds on average."
    )


def _counts(gains: np.ndarray) -> list[int]:
    """Return how many of the first rows reach each of SHARES."""
    reached = np.cumsum(gains) / gains.sum()
    return [int(np.searchsorted(reached, share * (1 - 1e-12)) + 1) for share in SHARES]


def _map_panel(points: dict[str, np.ndarray], size: int, held: float) -> Panel:
    shown = len(points["chosen"])
    chosen = f"the {size:,} chosen rows" if shown == size else f"the first {shown:,} of {size:,} chosen rows"
    caption = MAP.format(sample=len(points["sample"]), chosen=chosen, held=held)
    return Panel(partial(_map, points=points), f"Map of the rows. {caption}", caption, raster=True)


def _map(look: Look, points: dict[str, np.ndarray]) -> Figure:
    figure, axes = plot(320)
    axes.scatter(*points["sample"].T, s=5, c=look.theme.baseline, alpha=0.45, linewidths=0)
    axes.scatter(*points["chosen"].T, s=11, c=look.theme.palette[1], alpha=0.85, linewidths=0)
    axes.set_axis_off()
    return figure


def _gain_panels(gains: np.ndarray) -> list[Panel]:
    return [
        Panel(
            partial(_gain_curve, gains=gains), f"Gain of each row by its rank, from {gains[0]:.3g} to {gains[-1]:.3g}"
        ),
        Panel(partial(_value_curve, gains=gains), f"Value of the first rows: {paying(gains)}"),
    ]


def _gain_curve(look: Look, gains: np.ndarray) -> Figure:
    figure, axes = plot(230)
    places = _places(len(gains))
    axes.plot(places, gains[places - 1], color=look.theme.palette[0])
    if len(gains) > 20:
        axes.set_xscale("log")
    if (gains > 0).all():
        axes.set_yscale("log")
    tidy(axes, "Gain of the row at each rank", "rank")
    return figure


def _value_curve(look: Look, gains: np.ndarray) -> Figure:
    figure, axes = plot(230)
    places, value = np.concatenate([[0], _places(len(gains))]), np.concatenate([[0.0], np.cumsum(gains)])
    axes.plot(places, value[places], color=look.theme.palette[0])
    if (gains > 0).all():
        for share, count in zip(SHARES, _counts(gains), strict=True):
            axes.plot(count, value[count], "o", markersize=4, color=look.theme.palette[0])
            text = f"{100 * share:g} %"
            axes.annotate(text, (count, value[count]), (4, -4), textcoords="offset points", va="top", fontsize=8)
    tidy(axes, "Value of the objective", "rows chosen")
    axes.set_ylim(bottom=0)
    return figure


def _places(size: int, most: int = 400) -> np.ndarray:
    """Return the ranks (from 1) that a curve goes through: all, or some in equal ratios."""
    return (
        np.unique(np.geomspace(1, size, min(size, most)).round().astype(int)) if size > most else np.arange(1, size + 1)
    )


def _group_rows(groups: list[dict[str, Any]], rows: int, size: int) -> list[tuple[str | None, ...]]:
    return [
        (
            each["group"],
            f"{each['rows']:,}",
            f"{each['rows'] / rows:.1%}",
            f"{each['chosen']:,}",
            f"{each['chosen'] / size:.1%}",
            None if each["distance"] is None else f"{each['distance']:.4g}",
        )
        for each in groups
    ]


def _groups_note(groups: list[dict[str, Any]]) -> str:
    missed = [each["group"] for each in groups if not each["chosen"]]
    text = f"The {len(groups)} largest groups. " if len(groups) >= 40 else ""
    return text + (f"No row was chosen from {len(missed)} of them." if missed else "Every group has chosen rows.")


def place_text(place: dict[str, Any]) -> str:
    """Describe a row: its file, its number, and its text if it has one."""
    row = f"{Path(place['shard']).name}, row {place['row']:,}"
    if place.get("thumbnail"):
        return with_image(place["thumbnail"], place["text"])
    return f"{row}: {place['text']}" if "text" in place else row
