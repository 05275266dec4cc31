"""Figures of the selected samples: how often each was used, the map of the features, the galleries."""

import io

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from PIL import Image

from smdl.report.figures import PANEL, Look, blank, label, plot, tidy
from smdl.report.usage import KINDS, Snapshot, Usage

#: Colours of classes on a map. With more classes, all points have the arm's colour.
CLASSES = ("#4477aa", "#ee6677", "#228833", "#b59a1d", "#3fa6c4", "#aa3377", "#8a6d3b", "#7a6fd0", "#5a9e7c", "#8b8f98")
#: Most bars of a histogram; pixels of the longer side of a sample on the page; samples per row of a gallery.
BARS, SIDE, ROW = 40, 40, 12


def evenness(counts: np.ndarray) -> str:
    """Say how evenly samples were used."""
    ordered, total = np.sort(counts)[::-1], max(1, int(counts.sum()))
    tenth = ordered[: max(1, len(ordered) // 10)].sum() / total
    never = 100 * np.mean(counts == 0)
    return f"{never:.0f} % never used; the most used tenth makes up {100 * tenth:.0f} % of the batches"


def histogram(look: Look, usage: dict[str, Usage], width: float = 2 * PANEL) -> Figure:
    """Draw how many samples were used how often, all seeds together, a panel per arm."""
    pooled = {arm: found.all_counts for arm, found in usage.items() if found.counts}
    most = max(int(counts.max()) for counts in pooled.values())
    step = -(-(most + 1) // BARS)
    edges = np.arange(0, most + step + 1, step) - 0.5
    figure = blank(width, 46 + 86 * len(pooled))
    panels = figure.subplots(len(pooled), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (arm, counts) in zip(panels, pooled.items(), strict=True):
        shares = 100 * np.histogram(counts, edges)[0] / len(counts)
        axes.bar(edges[:-1] + step / 2, shares, width=0.82 * step, color=look.colours[arm])
        tidy(axes, label(arm))
        if width > PANEL:
            axes.set_title(evenness(counts), loc="right", weight="normal", size=9.5)
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter("{x:g} %")
        axes.set_ylim(0, 1.08 * max(shares.max(), 1e-9))
    panels[-1].set_xlabel("times used", loc="right")
    panels[-1].xaxis.set_major_locator(MaxNLocator(10, integer=True))
    return figure


def feature_map(
    look: Look, arm: str, usage: Usage, snapshot: Snapshot, frame: tuple[np.ndarray, np.ndarray] | None = None
) -> Figure:
    """Draw two principal components of the features. The larger a point and the stronger its colour, the more often it
    was used; a ring was never used. Colours are classes where there are few. `frame` holds the lowest and highest
    coordinates to show."""
    points, labels, counts = snapshot.points, snapshot.labels, snapshot.counts
    figure, axes = plot(320)
    few = labels.size > 0 and labels.min() >= 0 and labels.max() < len(CLASSES)
    colours = np.array([CLASSES[place] for place in labels] if few else [look.colours[arm]] * len(labels))
    often, skipped = counts / max(1, counts.max(initial=0)), counts == 0
    axes.scatter(
        *points[skipped].T, s=9, facecolors="none", edgecolors=colours[skipped].tolist(), linewidths=0.7, alpha=0.8
    )
    axes.scatter(
        *points[~skipped].T,
        s=5 + 40 * often[~skipped],
        c=colours[~skipped].tolist(),
        alpha=0.2 + 0.65 * often[~skipped],  # type: ignore[arg-type]
        linewidths=0,
    )
    back, ink = look.theme.box
    if few:
        for number in np.unique(labels):
            x, y = np.median(points[labels == number], axis=0)
            axes.annotate(
                label(usage.name_of(int(number))), (x, y), ha="center", va="center", weight="bold", size=9.5,
                bbox={"boxstyle": "round,pad=0.25", "facecolor": back, "edgecolor": CLASSES[number], "alpha": 0.85},
                color=ink,
            )  # fmt: skip
    if frame is not None:
        axes.set(xlim=(frame[0][0], frame[1][0]), ylim=(frame[0][1], frame[1][1]))
    axes.set_axis_off()
    return figure


def gallery(_: Look, arm: str, usage: Usage, snapshot: Snapshot) -> Figure:
    """Draw the most used samples above the least used, each with its class and count."""
    shown = {kind: captioned(usage, snapshot, kind) for kind in KINDS}
    rows = sum(-(-len(samples) // ROW) for samples in shown.values())
    (figure, axes), row = plot(36 + 84 * rows, 2 * PANEL), 0
    for samples in shown.values():
        for place, (pixels, name, count) in enumerate(samples):
            x, y = place % ROW, 1.35 * (row + place // ROW)
            gray = {"cmap": "gray", "vmin": 0, "vmax": 255} if pixels.ndim == 2 else {}
            axes.imshow(pixels, extent=(x, x + 0.9, y + 0.9, y), interpolation="nearest", **gray)  # type: ignore[arg-type]
            axes.text(x + 0.45, y - 0.05, f"{name[:11]}\n{count} ×", ha="center", va="bottom", size=8)
        row += -(-len(samples) // ROW)
    axes.set(xlim=(0, ROW), ylim=(1.35 * rows - 0.4, -0.45))
    axes.set_axis_off()
    axes.set_title(f"{label(arm)}: the most used samples, then the least used")
    return figure


def captioned(usage: Usage, snapshot: Snapshot, kind: str) -> list[tuple[np.ndarray, str, int]]:
    """Return (pixels (H, W) or (H, W, 3), class, count) of the most or the least used samples."""
    samples = snapshot.samples[kind]
    return [
        (_pixels(image), label(usage.name_of(int(number))), int(count))
        for image, number, count in zip(samples.images, samples.labels, samples.counts, strict=True)
    ]


def thumbnail(pixels: np.ndarray) -> bytes:
    """Return a small PNG."""
    image, file = Image.fromarray(pixels), io.BytesIO()
    image.thumbnail((SIDE, SIDE))
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def _pixels(image: np.ndarray) -> np.ndarray:
    """Convert (C, H, W) to (H, W) or (H, W, 3), whatever the number of channels."""
    return np.ascontiguousarray(image[:3].transpose(1, 2, 0) if len(image) >= 3 else image[0])
