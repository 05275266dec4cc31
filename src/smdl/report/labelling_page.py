"""The report of `smdl label`: what the labels are worth, which rows are next, from labelling.json and map.npz."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from smdl.report.figures import Look, plot, tidy
from smdl.report.panels import Panel, fill, picture, render_file, with_image

MAP = (
    "Two principal components of {sample:,} random rows (grey), of the rows with a label (one colour per class, if"
    " there are at most six) and of the rows that are asked for (crosses). They hold {held:.0%} of the variance: rows"
    " that are near each other here need not be near."
)


def render_labelling(folder: Path) -> Path:
    """Write report.html into the folder of a project. Return the page."""
    return render_file(folder / "labelling.json", f"smdl label {folder}", partial(_page, folder))


def _page(folder: Path, found: dict[str, Any]) -> str:
    forecast = found["forecast"]
    with np.load(folder / "map.npz", allow_pickle=False) as arrays:
        points = {name: arrays[name] for name in ("sample", "labelled", "classes", "asked")}
    return fill(
        "labelling.html.j2",
        title=found["title"],
        facts=_facts(found),
        advice=found["advice"],
        checks=found["checks"],
        curve=picture(_curve_panel(found)) if found["curve"] else None,
        ahead=[_ahead(each) for each in forecast["ahead"]] if forecast else [],
        needed=needed_text(forecast["needed"]) if forecast else "",
        map=picture(_map_panel(points, found["variance_on_map"])),
        asked=[(each["row"], _content(each)) for each in found["asked"]],
        classes=found["classes"],
        alike=[" = ".join(names) for names in found["alike"]],
        disputed=[
            (each["row"], _content(each), ", ".join(f"{name}: {value}" for name, value in each["said"].items()))
            for each in found["disputed"]
        ],
        suspects=[
            (each["row"], _content(each), each["answer"], each["instead"], f"{each['probability']:.2f}")
            for each in found["suspects"]
        ],
        rounds=found["rounds"],
        notes=found["notes"],
        provenance=list(found["settings"].items()),
    )


def _content(each: dict[str, Any]) -> str:
    """Return the text of a row, or its image and path."""
    image = each.get("thumbnail")
    return with_image(image, each["text"]) if image else each["text"]


def _facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    facts = [("labels", f"{found['labelled']:,}"), ("classes", f"{len(found['classes']):,}")]
    accuracy = found["accuracy"]
    if accuracy is not None:
        name = (
            "accuracy, cross-validation of the chosen rows, biased"
            if accuracy["biased"]
            else "accuracy on the check rows"
        )
        facts.append((name, f"{100 * accuracy['value']:.1f} %"))
        facts.append(("its 95 % interval", f"{100 * accuracy['low']:.1f} to {100 * accuracy['high']:.1f} %"))
    facts.append(("answered check rows", f"{found['checks']:,}"))
    if found["cannot_say"]:
        facts.append(("rows that nobody can tell", f"{found['cannot_say']:,}"))
    return facts


def _ahead(each: dict[str, Any]) -> tuple[str, ...]:
    shown = [f"{100 * each[name]:.1f} %" for name in ("value", "low", "high")]
    gains = [f"{100 * each[name]:+.1f}".replace("-", "−") for name in ("gain", "gain_low", "gain_high")]
    return (f"{each['labels']:,}", shown[0], f"{shown[1]} to {shown[2]}", gains[0], f"{gains[1]} to {gains[2]}")


def needed_text(needed: dict[str, int | None]) -> str:
    """Say how many labels reach round accuracies."""
    parts = [f"{100 * float(target):g} % is near {count:,} labels" for target, count in needed.items() if count][:3]
    return f"By the same curve, {', '.join(parts)}." if parts else ""


def _curve_panel(found: dict[str, Any]) -> Panel:
    last = found["curve"][-1]
    text = f"Accuracy on {found['checks']} check rows by the number of labels: {100 * last[1]:.1f} % at {last[0]}"
    caption = f"{text}. The bars are 95 % intervals of the check rows; the dashed line is the forecast."
    return Panel(partial(_curve, found=found), caption, caption)


def _curve(look: Look, found: dict[str, Any]) -> Figure:
    figure, axes = plot(230)
    sizes, values, low, high = (np.array(column) for column in zip(*found["curve"], strict=True))
    colour = look.theme.palette[0]
    bars = 100 * np.array([values - low, high - values])
    axes.errorbar(sizes, 100 * values, bars, color=colour, marker="o", markersize=3.6, elinewidth=0.8)
    ahead = found["forecast"]["ahead"] if found["forecast"] else []
    if ahead:
        then = np.array([[each["labels"], each["value"], each["low"], each["high"]] for each in ahead]).T
        axes.plot([sizes[-1], *then[0]], [100 * values[-1], *100 * then[1]], "--", color=look.theme.palette[1])
        axes.fill_between(then[0], 100 * then[2], 100 * then[3], color=look.theme.palette[1], alpha=0.15, linewidth=0)
    tidy(axes, "Accuracy on the check rows, %", "labels")
    return figure


def _map_panel(points: dict[str, np.ndarray], held: float) -> Panel:
    caption = MAP.format(sample=len(points["sample"]), held=held)
    return Panel(partial(_map, points=points), f"Map of the rows. {caption}", caption, raster=True)


def _map(look: Look, points: dict[str, np.ndarray]) -> Figure:
    figure, axes = plot(320)
    palette, classes = look.theme.palette, points["classes"]
    several = len(classes) and classes.max() < len(palette)
    colours = [palette[number] for number in classes] if several else palette[0]
    axes.scatter(*points["sample"].T, s=5, c=look.theme.baseline, alpha=0.35, linewidths=0)
    axes.scatter(*points["labelled"].T, s=12, c=colours, alpha=0.9, linewidths=0)
    axes.scatter(*points["asked"].T, s=26, c=look.theme.ink, marker="x", linewidths=1.1)
    axes.set_axis_off()
    return figure
