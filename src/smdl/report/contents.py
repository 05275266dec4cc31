"""The figures of a report. Each is listed once: its file in plots/, its place on the page, and its caption."""

import math
import re
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from smdl.experiments.records import Results
from smdl.report import heat_map, plots, usage_plots
from smdl.report.figures import PANEL, Draw
from smdl.report.panels import Panel
from smdl.report.usage import Usage, aligned, uneven

#: Most arms in the figures, and with usage, maps and galleries; tables have all.
DRAWN, PICTURED = 12, 6
CALIBRATED = (
    "Measured before the runs, the arms taking turns. The number at the end of a bar and the mark in it: the ratio of"
    " the arm’s step time to the baseline’s in the same round, median over the rounds. Line: the range of that ratio."
    " Colours: the parts of a step."
)
MEASURED = "Means over the run, measured during training, whatever else the machine did."
CLASS_BALANCE = (
    "Class balance: the entropy of the class counts of a batch divided by the largest possible entropy, mean over the"
    " batches of an epoch. 1: every class is equally frequent. 0: only one class. Dashed: random batches of the same"
    " size."
)


@dataclass(frozen=True)
class FigureEntry:
    """A figure: drawn as a whole for plots/NAME.png, and in panels for the page."""

    name: str
    draw: Draw
    place: str  # which part of the page shows it
    panels: list[Panel]
    button: str = ""  # where the reader chooses one figure of several


def thinned(results: Results) -> Results:
    """Return the results of the arms that are drawn: all, or the baseline and the best ones."""
    if len(results.arms) <= DRAWN:
        return results
    sign = 1 if results.higher_is_better else -1
    finals = {
        row.arm: math.inf if (mean := results.estimate(row).mean) is None else -sign * mean
        for row in results.rows
        if row.protocol == results.primary
    }
    best = sorted(results.arms, key=lambda arm: (arm != results.baseline, finals[arm]))[:DRAWN]
    return replace(results, arms=[arm for arm in results.arms if arm in best])


def pictured(results: Results, usage: dict[str, Usage]) -> dict[str, Usage]:
    """Return the usage of the arms whose samples the page shows, the baseline first."""
    return {arm: usage[arm] for arm in sorted(usage, key=lambda arm: arm != results.baseline)[:PICTURED]}


def figures_of(results: Results, usage: dict[str, Usage]) -> list[FigureEntry]:
    """Return all figures that there is something to draw for."""
    usage = pictured(results, usage)
    protocols = results.ordered_protocols
    curved = [] if results.metric else protocols  # a training function of the user returns only its final metrics
    return [
        *(_matrix(results, protocol) for protocol in protocols if results.regimes),
        *(_accuracy(results, protocol) for protocol in protocols if results.equal),
        *(_curves(results, protocol, axis) for protocol in curved for axis in plots.axes_of(results)),
        *([_costs(results)] if results.timed else []),
        *([_balance(results)] if curved else []),
        *([_usage(results, usage)] if any(found.counts for found in usage.values()) else []),
        *_terms(results),
        *_maps(results, usage),
    ]


def _matrix(results: Results, protocol: str) -> FigureEntry:
    draw = partial(heat_map.heat_map, results=results, protocol=protocol)
    alt = f"Methods and regimes at equal {results.equal[protocol]}; the table below has the same numbers"
    panels = [Panel(draw, alt, heat_map.CAPTION)] if protocol == results.primary else []
    return FigureEntry(f"matrix-{protocol}", draw, "matrix", panels)


def _accuracy(results: Results, protocol: str) -> FigureEntry:
    draw = partial(plots.accuracy, results=results, protocol=protocol)
    alt = f"{results.endpoint.capitalize()} at equal {results.equal[protocol]}, a dot per seed."
    if not results.metric:
        alt += f" Mean test error, %: {plots.ends(results, protocol, 'test_error')}"
    dashed = "" if results.against else " Dashed: the baseline’s mean."
    caption = f"Dots: seeds. Diamond and bar: mean and its 95 % interval.{dashed}"
    return FigureEntry(f"accuracy-{protocol}", draw, "accuracy", [Panel(draw, alt, caption)])


def _curves(results: Results, protocol: str, axis: str) -> FigureEntry:
    draw = partial(plots.curves, results=results, protocol=protocol, axis=axis)
    at = f", equal {results.equal[protocol]}" if results.equal else ""
    panels = [
        Panel(
            partial(draw, quantities=[quantity], legend=False),
            f"{title} over {axis}{at}: {plots.ends(results, protocol, quantity)}",
        )
        for quantity, (title, _) in plots.QUANTITIES.items()
    ]
    whole = partial(draw, quantities=list(plots.QUANTITIES))
    return FigureEntry(f"curves-{protocol}-{axis}", whole, f"curves-{protocol}", panels, f"over {axis}")


def _costs(results: Results) -> FigureEntry:
    draw = partial(plots.costs, results=results)
    spent = {arm: 1000 * results.calibration[arm]["seconds_per_step"] for arm in results.arms}
    alt = "Time per step: " + ", ".join(f"{arm} {milliseconds:.3g} ms" for arm, milliseconds in spent.items())
    caption = CALIBRATED if results.equal else MEASURED
    load = results.calibration[results.baseline].get("load")
    if load is not None:
        caption += f" Load average of the machine before the calibration, from other programs: {load:.1f}."
    return FigureEntry("costs", draw, "cost", [Panel(partial(draw, width=PANEL), alt, caption)])


def _balance(results: Results) -> FigureEntry:
    draw = partial(plots.balance, results=results)
    ends = plots.ends(results, results.primary, "class_balance")
    panel = Panel(partial(draw, legend=False), f"Class balance of the batches over epochs: {ends}", CLASS_BALANCE)
    return FigureEntry("balance", draw, "balance", [panel])


def _usage(results: Results, usage: dict[str, Usage]) -> FigureEntry:
    notes = tuple(f"{arm}: {usage_plots.evenness(found.all_counts)}" for arm, found in usage.items() if found.counts)
    seeds = ", all seeds together" if len(results.runs) > 1 else ""
    panel = Panel(
        partial(usage_plots.histogram, usage=usage, width=PANEL),
        "How often samples were used. " + "; ".join(notes),
        f"Share of the training samples by how often they were used{seeds}.",
        notes=notes,
    )
    return FigureEntry("usage", partial(usage_plots.histogram, usage=usage), "usage", [panel] if notes else [])


def _terms(results: Results) -> list[FigureEntry]:
    arms = [arm for arm in results.arms if plots.terms_of(results, arm, results.primary)][:PICTURED]
    draw = partial(plots.terms, results=results, protocol=results.primary)
    seeds = "; mean over seeds" if len(results.runs) > 1 else ""
    panels = [
        Panel(
            partial(draw, arms=[arm]),
            f"What each term contributed to the score of {arm}’s batches, over epochs",
            f"First batch of every epoch, weights included{seeds}.",
        )
        for arm in arms
    ]
    return [FigureEntry("terms", partial(draw, arms=arms), "terms", panels)] if arms else []


def _maps(results: Results, usage: dict[str, Usage]) -> list[FigureEntry]:
    """List a map per arm, and a gallery where usage differs. The page shows the samples themselves instead."""
    found, shown, usage = [], uneven(usage, results.baseline), aligned(usage, results.baseline)
    points = [used.snapshot.points for used in usage.values() if used.snapshot is not None]
    frame = None
    if points:
        corners = [reach(np.concatenate(points), axis=0) for reach in (np.min, np.max)]
        room = 0.03 * (corners[1] - corners[0]) + 1e-9
        frame = (corners[0] - room, corners[1] + room)
    for place, (arm, used) in enumerate(usage.items()):
        if used.snapshot is None:
            continue
        file = f"{place}-{re.sub(r'[^A-Za-z0-9_-]+', '-', arm)[:40]}"  # arms may have any name
        draw = partial(usage_plots.feature_map, arm=arm, usage=used, snapshot=used.snapshot, frame=frame)
        never = int((used.snapshot.counts == 0).sum())
        alt = f"Map of {arm}’s features: {never} of {len(used.snapshot.counts)} samples were never used"
        panel = Panel(draw, alt, f"seed {used.snapshot.seed}", title=arm, raster=True)
        found.append(FigureEntry(f"map-{file}", draw, "maps", [panel]))
        if arm in shown:
            tiles = partial(usage_plots.gallery, arm=arm, usage=used, snapshot=used.snapshot)
            found.append(FigureEntry(f"gallery-{file}", tiles, "", []))
    return found
