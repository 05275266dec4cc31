"""Figures of the results: curves over training, final accuracy, cost of a step, terms of the objective."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from smdl.experiments.records import Results
from smdl.experiments.runs import Epoch, measured
from smdl.experiments.statistics import estimate, half_widths
from smdl.report.figures import PANEL, Look, add_legend, blank, label, plot, tidy

#: What is drawn over training: name in metrics.jsonl -> (title, factor).
QUANTITIES = {
    "test_error": ("test error, %", 100.0),
    "test_loss": ("test loss", 1.0),
    "train_error": ("train error, %", 100.0),
    "train_loss": ("train loss", 1.0),
}
BALANCE = {"class_balance": ("class balance of the batches (1 is even)", 1.0)}
AXES = {"epochs": "epochs", "steps": "steps", "seconds": "seconds of training"}
#: Most points of a curve with markers, most arms with bands, ratio of largest to smallest value for a log scale.
MARKED, BANDED, SPAN = 25, 8, 4.0
#: Most points of a curve: more would make the page larger, not the curve clearer.
POINTS = 60


@dataclass(frozen=True)
class Curve:
    """A quantity of an arm over training: mean and band over the seeds, (E,) each; `values` is (seeds, E)."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    values: np.ndarray


def axes_of(results: Results) -> dict[str, str]:
    """Return the axes that curves can be drawn over: no seconds where nothing was timed."""
    calibrated = {"seconds": f"{AXES['seconds']}, calibrated"} if results.equal else {}
    return {axis: title for axis, title in (AXES | calibrated).items() if axis != "seconds" or results.timed}


def curve(results: Results, arm: str, protocol: str, axis: str, quantity: str) -> Curve | None:
    """Average a quantity over the epochs that every seed has. None where there is nothing finite to draw."""
    runs = [run.epochs for run in results.finished(arm, protocol)]
    length, scale = min((len(epochs) for epochs in runs), default=0), (QUANTITIES | BALANCE)[quantity][1]
    values = np.array([column(epochs[:length], quantity) for epochs in runs]).reshape(len(runs), length) * scale
    steps = np.array([column(epochs[:length], "steps") for epochs in runs]).reshape(len(runs), length)
    whole = np.isfinite(values).all(axis=0) & np.isfinite(steps).all(axis=0)
    if not len(runs) or not whole.any():
        return None
    places = np.flatnonzero(whole)
    places = places[np.unique(np.linspace(0, len(places) - 1, POINTS).round().astype(int))]  # always with the last one
    values, x = values[:, places], steps[:, places].mean(axis=0) * _per_step(results, arm, axis)
    return Curve(x, values.mean(axis=0), *_band(values), values)


def column(epochs: Sequence[Epoch], name: str) -> np.ndarray:
    """Return a quantity of every epoch, (E,); nan where it is missing or not a number."""
    found = [record.get(name) if isinstance(record, dict) else None for record in epochs]
    return np.array([float(value) if isinstance(value, int | float) else np.nan for value in found])


def band_note(results: Results, protocol: str) -> str:
    """Say what the lines and bands of the curves are."""
    counts = {len(results.finished(arm, protocol)) for arm in results.arms} - {0}
    kinds, few = [], len(results.arms) <= BANDED
    if few and any(count >= 3 for count in counts):
        kinds.append("95 % interval of the mean (Student’s t)" + ("" if min(counts) >= 3 else " from three seeds on"))
    if few and 2 in counts:
        kinds.append("lowest to highest where there are two seeds")
    seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else "no"
    line = f"Line: mean over {seeds} seed{'' if counts == {1} else 's'}."
    return f"{line} Band: {'; '.join(kinds)}, cut off at the edges of the panel." if kinds else f"{line} No band."


def ends(results: Results, protocol: str, quantity: str) -> str:
    """Say where the curves of a panel end."""
    found = {arm: curve(results, arm, protocol, "steps", quantity) for arm in results.arms}
    return ", ".join(f"{arm} ends at {drawn.mean[-1]:.4g}" for arm, drawn in found.items() if drawn is not None)


def curves(
    look: Look, results: Results, protocol: str, axis: str, quantities: Sequence[str], legend: bool = True
) -> Figure:
    """Draw a panel per quantity: a line per arm, and a band over its seeds (see `band_note`)."""
    across = min(2, len(quantities))
    down = -(-len(quantities) // across)
    figure = blank(PANEL * across, 236 * down + (24 if legend else 0))
    for place, quantity in enumerate(quantities):
        axes = figure.add_subplot(down, across, place + 1)
        draw_curves(axes, look, results, protocol, axis, quantity)
        tidy(axes, (QUANTITIES | BALANCE)[quantity][0], axes_of(results)[axis])
    if legend:
        add_legend(figure, results.arms, [Line2D([], [], **look.line(arm)) for arm in results.arms])
    return figure


def balance(look: Look, results: Results, legend: bool = True) -> Figure:
    """Draw the class balance of the batches over epochs, dashed where random batches of the same size would be."""
    figure = curves(look, results, results.primary, "epochs", list(BALANCE), legend)
    (axes,) = figure.axes
    low, high = axes.get_ylim()
    for level in {level for arm in results.arms if (level := results.calibration[arm].get("random_balance"))}:
        axes.axhline(level, color=look.theme.ink, linewidth=1.2, linestyle=(0, (4, 3)))
        low, high = min(low, level - 0.02), max(high, level + 0.02)
    axes.set_ylim(low, high)
    return figure


def draw_curves(
    axes: Axes,
    look: Look,
    results: Results,
    protocol: str,
    axis: str,
    quantity: str,
    arms: Sequence[str] | None = None,
) -> None:
    """Draw a line per arm, of all arms or of some, and bands where there are few."""
    found = {arm: curve(results, arm, protocol, axis, quantity) for arm in arms or results.arms}
    drawn = {arm: each for arm, each in found.items() if each is not None}
    for arm, each in drawn.items():
        axes.plot(each.x, each.mean, **look.line(arm, len(each.x) <= MARKED))
    if not drawn:
        axes.text(0.5, 0.5, "no finished run", transform=axes.transAxes, ha="center", va="center")
        return
    _scale(axes, np.concatenate([each.values.ravel() for each in drawn.values()]))
    bottom, top = axes.get_ylim()
    for arm, each in drawn.items():
        if len(each.values) > 1 and len(drawn) <= BANDED:  # clipped: a log scale has no place below zero
            low, high = each.low.clip(bottom, top), each.high.clip(bottom, top)
            axes.fill_between(each.x, low, high, color=look.colours[arm], alpha=0.14, linewidth=0)
    axes.set_xlim(0, 1.02 * max(each.x[-1] for each in drawn.values()))


def costs(look: Look, results: Results, width: float = 2 * PANEL) -> Figure:
    """Draw the time per step of each arm by part, and its ratio to the baseline's at the end of the bar. The line
    across is the range of that ratio over the rounds of the calibration, the mark on it their median."""
    arms, calibration = results.arms, results.calibration
    (figure, axes), starts = plot(70 + 34 * len(arms), width), np.zeros(len(arms))
    for part, colour in look.theme.parts.items():
        lengths = np.array([1000 * calibration[arm]["parts"].get(part, 0.0) for arm in arms])
        axes.barh(range(len(arms)), lengths, left=starts, height=0.56, color=colour, label=part)
        starts += lengths
    reference, ink = calibration[results.baseline]["seconds_per_step"], look.theme.ink
    for place, arm in enumerate(arms):
        whole = calibration[arm]["seconds_per_step"]
        ratios = calibration[arm].get("ratios", [whole / reference])  # sorted
        shortest, longest = 1000 * reference * ratios[0], 1000 * reference * ratios[-1]
        axes.plot([shortest, longest], [place, place], color=ink, linewidth=1.1, solid_capstyle="butt")
        axes.plot([1000 * whole], [place], color=ink, marker="|", markersize=9, markeredgewidth=1.6)
        text = f"{whole / reference:.2f} ×" if len(arms) > 1 else f"{1000 * whole:.3g} ms"
        end = (max(starts[place], longest), place)
        axes.annotate(text, end, (6, 0), textcoords="offset points", va="center", weight="bold")
    tidy(axes, "", "milliseconds per step", grid="x")
    axes.set_yticks(range(len(arms)), [label(arm) for arm in arms])
    axes.set_xlim(0, axes.get_xlim()[1] * (1 + 70 / width))
    axes.invert_yaxis()
    figure.legend(loc="outside upper left", ncols=len(look.theme.parts), handlelength=1, handleheight=1)
    return figure


def accuracy(look: Look, results: Results, protocol: str) -> Figure:
    """Draw the primary endpoint, final test accuracy or a metric of the user: a dot per seed, mean and 95 % interval of
    each arm, a line at the baseline's mean."""
    arms = results.arms
    figure, axes = plot(70 + (36 if len(arms) <= BANDED else 24) * len(arms))
    for place, arm in enumerate(arms):
        runs = results.finished(arm, protocol)
        values = np.array(
            [measured(run.epochs)[results.metric or results.endpoints.get(arm, "final_accuracy")] for run in runs]
        )
        values, colour = values[np.isfinite(values)], look.colours[arm]
        found = estimate(values.tolist())
        if found.mean is None:
            axes.text(0.5, place, "no finished run", transform=axes.get_yaxis_transform(), ha="center", va="center")
            continue
        axes.plot(values, np.full(len(values), place + 0.2), "o", color=colour, alpha=0.55, markersize=4, mew=0)
        half = found.half or 0.0
        axes.plot([found.mean - half, found.mean + half], [place - 0.1] * 2, color=colour, linewidth=2.2)
        axes.plot([found.mean], [place - 0.1], marker="D", color=colour, markersize=5.5)
        if arm == results.baseline and not results.against:
            axes.axvline(found.mean, color=colour, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    tidy(axes, f"{results.endpoint}{'' if results.metric else ', %'}, at equal {results.equal[protocol]}", grid="x")
    if not results.metric:
        left, right = axes.get_xlim()
        axes.set_xlim(max(left, 0), min(right, 100))  # an interval may be wider than the range of an accuracy
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_yticks(range(len(arms)), [label(arm) for arm in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    return figure


def terms(look: Look, results: Results, protocol: str, arms: Sequence[str]) -> Figure:
    """Draw what each term contributed to F of the first batch of every epoch, mean over seeds, a panel per arm."""
    found = {arm: terms_of(results, arm, protocol) for arm in arms}
    names = list(dict.fromkeys(name for lines in found.values() for name in lines))
    palette = look.theme.palette
    colours = {name: palette[place % len(palette)] for place, name in enumerate(names)}
    across = min(2, len(found))
    down = -(-len(found) // across)
    figure = blank(PANEL * across, 226 * down + 24)
    for place, (arm, lines) in enumerate(found.items()):
        axes = figure.add_subplot(down, across, place + 1)
        for name, (x, y) in lines.items():
            axes.plot(x, y, color=colours[name], marker="o" if len(x) <= MARKED else None, markersize=3.6)
        tidy(axes, f"{label(arm)}: contributions to F(S)", "epochs")
        bottom, top = axes.get_ylim()
        axes.set_ylim(min(0.0, bottom), top + 0.05 * (top - min(0.0, bottom)))
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    add_legend(figure, names, [Line2D([], [], color=colours[name]) for name in names], 2 * across)
    return figure


def terms_of(results: Results, arm: str, protocol: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the terms of an arm: name -> (epochs, contributions)."""
    sums: dict[str, dict[int, list[float]]] = {}
    for run in results.finished(arm, protocol):
        for place, record in enumerate(run.epochs):
            given = record.get("terms")
            for name, value in given.items() if isinstance(given, dict) else ():
                if isinstance(value, int | float) and np.isfinite(value):
                    sums.setdefault(str(name), {}).setdefault(place + 1, []).append(value)
    return {
        name: (np.array(sorted(found)), np.array([np.mean(found[epoch]) for epoch in sorted(found)]))
        for name, found in sums.items()
    }


def _per_step(results: Results, arm: str, axis: str) -> float:
    """Return how far a step advances on an axis."""
    cost = results.calibration[arm]
    return {"epochs": 1 / max(1, cost["steps_per_epoch"]), "steps": 1.0, "seconds": cost.get("seconds_per_step")}[axis]


def _band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (low, high) over the seeds, (S, E) -> (E,) each: the interval of the mean for three seeds or more, else
    lowest and highest."""
    if len(values) < 3:
        return values.min(axis=0), values.max(axis=0)
    mean, halves = values.mean(axis=0), half_widths(values)
    return mean - halves, mean + halves


def _scale(axes: Axes, values: np.ndarray) -> None:
    """Set limits that show every seed; a log scale where the largest value is several times the smallest."""
    low, high = float(values.min()), float(values.max())
    if low > 0 and high / low > SPAN:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.25, high * 1.25)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high / low < 300 else (1.0,)))
        axes.yaxis.set_minor_locator(NullLocator())
        return
    room = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    axes.set_ylim(max(low - room, 0.0) if low >= 0 else low - room, high + room)
    axes.yaxis.set_major_locator(MaxNLocator(5))
