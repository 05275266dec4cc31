"""Plots: matplotlib figures of what results.json says. They read no files and no program, and use no pyplot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from smdl.experiments.figures import INK, PALETTE, PANEL, PARTS, Look, add_legend, blank, label, look, styled, tidy
from smdl.experiments.statistics import estimate

Results = dict[str, Any]
#: What is drawn over training: the name in metrics.jsonl -> (what it is called, what it is multiplied by).
MEASURES = {
    "test_error": ("test error, %", 100.0),
    "test_loss": ("test loss", 1.0),
    "train_error": ("train error, %", 100.0),
    "train_loss": ("train loss", 1.0),
}
BALANCE = {"class_balance": ("class balance of the batches (1 is even)", 1.0)}
AXES = {"epochs": "epochs", "steps": "steps", "seconds": "seconds of training"}
#: Curves with more points than this have no markers; more arms than this no bands; values that span more than this
#: many times a log scale.
MARKED, BANDED, SPAN = 25, 8, 4.0
#: Most points of a curve: finer than the screen.
POINTS = 200


@dataclass(frozen=True)
class Curve:
    """A quantity of an arm over training: mean and band over the seeds, (E,) each; `values` is (seeds, E)."""

    x: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    values: np.ndarray


def finished_runs(results: Results, arm: str, protocol: str) -> list[dict[str, Any]]:
    """The runs of an arm that have something to show."""
    mine = [run for run in results["runs"] if run["arm"] == arm and run["protocol"] == protocol]
    return [run for run in mine if run["epochs"] and not run["problem"]]


def axes_of(results: Results) -> dict[str, str]:
    """What curves can be drawn over: no seconds where nothing was timed."""
    calibrated = {"seconds": f"{AXES['seconds']}, calibrated"} if results["equal"] else {}
    return {axis: said for axis, said in (AXES | calibrated).items() if axis != "seconds" or timed(results)}


def timed(results: Results) -> bool:
    """Whether the arms' steps have a cost."""
    return all(results["calibration"][arm].get("seconds_per_step") for arm in results["arms"])


def curve(results: Results, arm: str, protocol: str, axis: str, measure: str, scale: float = 1.0) -> Curve | None:
    """Over the epochs that every seed has, thinned out where they are many; None where nothing finite is to draw."""
    runs = [run["epochs"] for run in finished_runs(results, arm, protocol)]
    length = min((len(epochs) for epochs in runs), default=0)
    values = np.array([column(epochs[:length], measure) for epochs in runs]).reshape(len(runs), length) * scale
    steps = np.array([column(epochs[:length], "steps") for epochs in runs]).reshape(len(runs), length)
    whole = np.isfinite(values).all(axis=0) & np.isfinite(steps).all(axis=0)
    if not len(runs) or not whole.any():
        return None
    places = np.flatnonzero(whole)
    places = places[np.unique(np.linspace(0, len(places) - 1, POINTS).round().astype(int))]  # the last one always
    values, x = values[:, places], steps[:, places].mean(axis=0) * _per_step(results, arm, axis)
    mean, (low, high) = values.mean(axis=0), _band(values)
    return Curve(x, mean, low, high, values)


def column(epochs: Sequence[dict[str, Any]], name: str) -> np.ndarray:
    """A quantity of the epochs' records, (E,); nan where it is missing or no number."""
    found = [record.get(name) if isinstance(record, dict) else None for record in epochs]
    return np.array([float(value) if isinstance(value, int | float) else np.nan for value in found])


def band_note(results: Results, protocol: str) -> str:
    """What the bands of the curves are."""
    counts = {len(finished_runs(results, arm, protocol)) for arm in results["arms"]} - {0}
    kinds, few = [], len(results["arms"]) <= BANDED
    if few and any(count >= 3 for count in counts):
        kinds.append("95 % interval of the mean (Student’s t)" + ("" if min(counts) >= 3 else " from three seeds on"))
    if few and 2 in counts:
        kinds.append("lowest to highest where there are two seeds")
    seeds = " to ".join(str(count) for count in sorted({min(counts), max(counts)})) if counts else "no"
    line = f"Line: mean over {seeds} seed{'' if counts == {1} else 's'}."
    return f"{line} Band: {'; '.join(kinds)}, cut off at the panel’s edges." if kinds else f"{line} No band."


def ends(results: Results, protocol: str, measure: str) -> str:
    """Where the curves of a panel end, in words."""
    scale = (MEASURES | BALANCE)[measure][1]
    found = {arm: curve(results, arm, protocol, "steps", measure, scale) for arm in results["arms"]}
    return ", ".join(f"{arm} ends at {drawn.mean[-1]:.4g}" for arm, drawn in found.items() if drawn is not None)


@styled
def curves(
    results: Results, protocol: str, axis: str, measures: Sequence[str] = tuple(MEASURES), legend: bool = True
) -> Figure:
    """A panel for each measure: a line for each arm, and a band over its seeds (see `band_note`)."""
    known, across = MEASURES | BALANCE, min(2, len(measures))
    down = -(-len(measures) // across)
    figure = blank(PANEL * across, 236 * down + (24 if legend else 0))
    for place, measure in enumerate(measures):
        axes, (title, scale) = figure.add_subplot(down, across, place + 1), known[measure]
        drawn = {arm: curve(results, arm, protocol, axis, measure, scale) for arm in results["arms"]}
        draw(axes, {arm: found for arm, found in drawn.items() if found is not None}, look(results))
        tidy(axes, title, axes_of(results)[axis])
    if legend:
        _arm_legend(figure, results)
    return figure


@styled
def costs(results: Results, width: float = 2 * PANEL) -> Figure | None:
    """Seconds a step by part for each arm; at the bar's end, how many times the baseline's. The line across is how far
    that ratio ranged over the rounds of the calibration, the mark on it their median."""
    if not timed(results):
        return None
    arms, calibration = list(results["arms"]), results["calibration"]
    figure = blank(width, 70 + 34 * len(arms))
    axes, starts = figure.add_subplot(), np.zeros(len(arms))
    for part, colour in PARTS.items():
        lengths = np.array([1000 * calibration[arm]["parts"].get(part, 0.0) for arm in arms])
        axes.barh(range(len(arms)), lengths, left=starts, height=0.56, color=colour, label=part)
        starts += lengths
    reference = calibration[results["baseline"]]["seconds_per_step"]
    for place, arm in enumerate(arms):
        whole = calibration[arm]["seconds_per_step"]
        ratios = calibration[arm].get("ratios", [whole / reference])  # sorted
        shortest, longest = 1000 * reference * ratios[0], 1000 * reference * ratios[-1]
        axes.plot([shortest, longest], [place, place], color=INK, linewidth=1.1, solid_capstyle="butt")
        axes.plot([1000 * whole], [place], color=INK, marker="|", markersize=9, markeredgewidth=1.6)
        said = f"{whole / reference:.2f} ×" if len(arms) > 1 else f"{1000 * whole:.3g} ms"
        end = (max(starts[place], longest), place)
        axes.annotate(said, end, (6, 0), textcoords="offset points", va="center", weight="bold")
    tidy(axes, "", "milliseconds a step", grid="x")
    axes.set_yticks(range(len(arms)), [label(arm) for arm in arms])
    axes.set_xlim(0, axes.get_xlim()[1] * (1 + 70 / width))
    axes.invert_yaxis()
    figure.legend(loc="outside upper left", ncols=len(PARTS), handlelength=1, handleheight=1)
    return figure


@styled
def finals(results: Results, protocol: str) -> Figure:
    """Final test accuracy: a dot for each seed, mean and 95 % interval for each arm, a line at the baseline's mean."""
    arms, seen = list(results["arms"]), look(results)
    figure = blank(PANEL, 70 + (36 if len(arms) <= BANDED else 24) * len(arms))
    axes = figure.add_subplot()
    for place, arm in enumerate(arms):
        runs = finished_runs(results, arm, protocol)
        values = 100 * (1 - np.array([column(run["epochs"][-1:], "test_error")[0] for run in runs]))
        values, colour = values[np.isfinite(values)], seen.colours[arm]
        if not len(values):
            axes.text(0.5, place, "no finished run", transform=axes.get_yaxis_transform(), ha="center", va="center")
            continue
        found = estimate(values.tolist())
        axes.plot(values, np.full(len(values), place + 0.2), "o", color=colour, alpha=0.55, markersize=4, mew=0)
        half = found.half or 0.0
        axes.plot([found.mean - half, found.mean + half], [place - 0.1] * 2, color=colour, linewidth=2.2)
        axes.plot([found.mean], [place - 0.1], marker="D", color=colour, markersize=5.5)
        if arm == results["baseline"] and not results["against"]:
            axes.axvline(found.mean, color=colour, linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    tidy(axes, f"final test accuracy, %, at equal {results['equal'][protocol]}", grid="x")
    left, right = axes.get_xlim()
    axes.set_xlim(max(left, 0), min(right, 100))  # an interval may reach further than an accuracy can
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.set_yticks(range(len(arms)), [label(arm) for arm in arms])
    axes.set_ylim(len(arms) - 0.5, -0.5)
    return figure


@styled
def terms(results: Results, protocol: str, arms: Sequence[str] | None = None) -> Figure | None:
    """What each term contributed to F of the first batch of every epoch, mean over seeds; arms with terms alone."""
    found = {arm: _terms_of(results, arm, protocol) for arm in (results["arms"] if arms is None else arms)}
    found = {arm: lines for arm, lines in found.items() if lines}
    if not found:
        return None
    names = list(dict.fromkeys(name for lines in found.values() for name in lines))
    colours = {name: PALETTE[place % len(PALETTE)] for place, name in enumerate(names)}
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


def _terms_of(results: Results, arm: str, protocol: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Term -> (epochs, contributions)."""
    sums: dict[str, dict[int, list[float]]] = {}
    for run in finished_runs(results, arm, protocol):
        for place, record in enumerate(run["epochs"]):
            given = record.get("terms")
            for name, value in given.items() if isinstance(given, dict) else ():
                if isinstance(value, int | float) and np.isfinite(value):
                    sums.setdefault(str(name), {}).setdefault(place + 1, []).append(value)
    return {
        name: (np.array(sorted(found)), np.array([np.mean(found[epoch]) for epoch in sorted(found)]))
        for name, found in sums.items()
    }


def _per_step(results: Results, arm: str, axis: str) -> float:
    """What a step adds on an axis."""
    cost = results["calibration"][arm]
    return {"epochs": 1 / max(1, cost["steps_per_epoch"]), "steps": 1.0, "seconds": cost.get("seconds_per_step")}[axis]


def _band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) over the seeds, (S, E) -> (E,) each: the interval of the mean from three seeds on, else all of it."""
    if len(values) < 3:
        return values.min(axis=0), values.max(axis=0)
    halves = np.array([estimate(column).half for column in values.T.tolist()], float)
    return values.mean(axis=0) - halves, values.mean(axis=0) + halves


def draw(axes: Axes, drawn: dict[str, Curve], seen: Look) -> None:
    """A line for each arm, and bands where they are few."""
    for arm, found in drawn.items():
        axes.plot(found.x, found.mean, **seen.line(arm, len(found.x) <= MARKED))
    if not drawn:
        axes.text(0.5, 0.5, "no finished run", transform=axes.transAxes, ha="center", va="center")
        return
    _scale(axes, np.concatenate([found.values.ravel() for found in drawn.values()]))
    bottom, top = axes.get_ylim()
    for arm, found in drawn.items():
        if len(found.values) > 1 and len(drawn) <= BANDED:  # within the limits: a log scale has no place below zero
            low, high = found.low.clip(bottom, top), found.high.clip(bottom, top)
            axes.fill_between(found.x, low, high, color=seen.colours[arm], alpha=0.14, linewidth=0)
    axes.set_xlim(0, 1.02 * max(found.x[-1] for found in drawn.values()))


def _scale(axes: Axes, values: np.ndarray) -> None:
    """Limits that hold every seed; a log scale where values span several times the smallest."""
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


def _arm_legend(figure: Figure, results: Results) -> None:
    seen = look(results)
    add_legend(figure, results["arms"], [Line2D([], [], **seen.line(arm)) for arm in results["arms"]])
