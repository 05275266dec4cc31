"""Sections: what the report of an experiment, or of a single run, says in which order."""

from typing import Any

from matplotlib.figure import Figure

from smdl.experiments import page, paper_tables, pictures, plots, tables
from smdl.experiments.figures import DARK, DASHES, PANEL, look, png, svg, uri
from smdl.experiments.page import text
from smdl.experiments.results import LEVEL
from smdl.experiments.usage import KINDS, Chosen

Results = dict[str, Any]
#: Arms whose use, maps and galleries are on the page; those of the others are in plots/ alone.
PICTURED = 6
#: Letters from which on a verdict is set smaller.
LONG = 400
CALIBRATED = (
    "Measured before the runs, the arms taking turns. At the end of a bar, and the mark in it: a"
    " step as a multiple of the baseline’s in the same round, the median over the rounds. Line: their range. Colours:"
    " how the parts share it."
)
NUMBERS = (
    "± is a 95 % interval of the mean over seeds. Seconds are steps × the calibrated seconds a step. To the baseline’s"
    " final accuracy: the median over the seeds that reach it, at the first evaluation that does. Overhead: scoring and"
    " selection are parts of the total; the rest of a step varies as well. Extra forwards: samples forwarded for"
    " scoring. Class balance: the entropy of a batch’s classes over the most it could be. By the log: the seconds of"
    " training that the runs themselves logged, over the baseline’s; a check of"
    " equal time, rough where runs went side by side."
)
MAP = (
    "Two principal components of the trained network’s features, up to 1,000 training samples. The larger and fuller a"
    " point, the oftener it was used; rings were never used. Colours are classes where there are few."
)


def experiment_page(results: Results, chosen: dict[str, Chosen]) -> str:
    """The report of an experiment."""
    primary = results["primary"]
    protocols = [primary, *(protocol for protocol in results["protocols"] if protocol != primary)]
    return page.document(
        f"{results['title']}: smdl experiment",
        f'<p class="kicker">smdl experiment</p><h1>{text(results["title"])}</h1>',
        f'<p class="caption">{text(results["caption"])}</p>' if results.get("caption") else "",
        _verdict(results),
        page.panels(_finals(results, protocol) for protocol in protocols),
        page.section("numbers", "Numbers", *(_numbers(results, protocol) for protocol in protocols), _note(NUMBERS)),
        _paper(results),
        page.section("curves", "Curves", _legend(results), *(_curves(results, protocol) for protocol in protocols)),
        _costs(results, CALIBRATED),
        _selected(results, chosen),
        _provenance(results),
        _problems(results),
        _footer("this folder alone; results.json and results.csv hold the numbers, plots/ the pictures"),
    )


def run_page(results: Results, chosen: dict[str, Chosen]) -> str:
    """The report of a single run."""
    return page.document(
        f"{results['title']}: smdl training run",
        f'<p class="kicker">smdl training run</p><h1>{text(results["title"])}</h1>',
        page.facts({name: tables.datum(name, value, said) for name, (value, said) in results["facts"].items()}),
        _pointer(results),
        page.section("curves", "Curves", _curves(results, results["primary"], compared=False)),
        _costs(results, "Means over the run, measured while it went, beside whatever else the machine did."),
        _selected(results, chosen),
        _provenance(results),
        _problems(results),
        _footer("this folder alone; plots/ holds the pictures"),
    )


def _drawing(figure: Figure) -> str:
    return uri(svg(figure), "image/svg+xml")


def _note(said: str) -> str:
    return f'<p class="note">{text(said)}</p>'


def _verdict(results: Results) -> str:
    """The sentence, and all it rests on."""
    runs = {run["folder"]: run["problem"] for run in results["runs"]}  # the baseline's serve both protocols
    others = sum(1 for test in results["tests"] if test["protocol"] == results["primary"])
    equal = {
        "time": "Equal time: as many steps as the baseline’s calibrated seconds buy.",
        "steps": "Equal steps: each arm trains for the steps planned, whatever they cost.",
        "epochs": "Equal epochs: each arm trains for the epochs planned, whatever they cost.",
    }
    rests = (
        f"Primary endpoint, fixed before any run: final test accuracy at equal {results['equal'][results['primary']]}.",
        f"{results['seeds']} seed{'' if results['seeds'] == 1 else 's'} an arm;",
        f"Welch’s test against {'its own baseline' if results['against'] else results['baseline']}, Holm’s correction"
        f" over {others}",
        f"comparison{'' if others == 1 else 's'}, level {100 * LEVEL:.0f} %; ± is a 95 % interval.",
        *(equal[said] for said in results["equal"].values()),
        f"{list(runs.values()).count(None)} of {len(runs)} runs are finished and whole.",
    )
    size = "said" if len(results["verdict"]) < LONG else "said long"
    return (
        f'<div class="verdict"><p class="{size}">{text(results["verdict"])}</p>'
        f'<p class="soft">{text(" ".join(rests))}</p>{_pointer(results)}</div>'
    )


def _pointer(results: Results) -> str:
    count = len(results["problems"])
    return f'<p><a href="#problems">{count} problem{"s" * (count > 1)} to know of</a></p>' if count else ""


def _finals(results: Results, protocol: str) -> str:
    errors, equal = plots.ends(results, protocol, "test_error"), results["equal"][protocol]
    return page.figure(
        _drawing(plots.finals(results, protocol)),
        f"Final test accuracy at equal {equal}, a dot for every seed. Mean test error, %: {errors}",
        "Dots: seeds. Diamond and bar: mean and its 95 % interval."
        + ("" if results["against"] else " Dashed: the baseline’s mean."),
    )


def _numbers(results: Results, protocol: str) -> str:
    primary = ": the primary endpoint" if protocol == results["primary"] else ""
    said = f"At equal {results['equal'][protocol]}{primary}"
    kinds = (tables.LEARNED, tables.TRAINED, tables.COST)
    shown = (tables.page_table(results, protocol, columns) for columns in kinds)
    return f"<h3>{text(said)}</h3>{''.join(shown)}"


def _paper(results: Results) -> str:
    title, *parts = paper_tables.page_part(results)
    return page.section("paper", title, *parts)


def _legend(results: Results) -> str:
    seen = look(results)
    return page.legend(
        {arm: (seen.colours[arm], DARK[seen.colours[arm]], DASHES[seen.dashes[arm]]) for arm in results["arms"]}
    )


def _curves(results: Results, protocol: str, compared: bool = True) -> str:
    """All measures of a protocol, over the axis the reader picks; first over what the protocol makes equal."""
    equal, choices = results["equal"].get(protocol), {}
    at = f", equal {equal}" if compared else ""
    for axis in plots.axes_of(results):
        choices[f"over {axis}"] = page.panels(
            page.figure(
                _drawing(plots.curves(results, protocol, axis, [measure], legend=False)),
                f"{name} over {axis}{at}: {plots.ends(results, protocol, measure)}",
            )
            for measure, (name, _) in plots.MEASURES.items()
        )
    first = {"time": "over seconds", "steps": "over steps"}.get(equal, "over epochs")
    title = f"<h3>At equal {text(equal)}</h3>" if compared else ""
    note = _note(plots.band_note(results, protocol)) if compared else ""
    return title + page.switch(f"axis-{protocol}", choices, first) + note


def _costs(results: Results, caption: str) -> str:
    drawing = plots.costs(results, PANEL)
    if drawing is None:
        return ""
    cost = {arm: 1000 * results["calibration"][arm]["seconds_per_step"] for arm in results["arms"]}
    load = results["calibration"][results["baseline"]].get("load")
    if load is not None:
        caption += f" The machine’s load average when this began, of whatever else was at work: {load:.1f}."
    alt = "Cost of a step: " + ", ".join(f"{arm} {spent:.3g} ms" for arm, spent in cost.items())
    return page.section("cost", "What a step costs", page.figure(_drawing(drawing), alt, text(caption), aside=True))


def _selected(results: Results, chosen: dict[str, Chosen]) -> str:
    """Class balance, use, terms, maps, galleries: under the primary protocol."""
    arms, seen = results["arms"], look(results)
    under = f"Under equal {results['equal'][results['primary']]}. " if len(arms) > 1 else ""
    first = sorted(arms, key=lambda arm: arm != results["baseline"])[:PICTURED]
    pictured = {arm: chosen[arm] for arm in first if chosen[arm].portrait}
    left = f"Use, maps and galleries of {len(arms) - PICTURED} arms more are in plots/." if len(arms) > PICTURED else ""
    return page.section(
        "selected",
        "What was selected",
        _note(f"{under}These show what a strategy does, not how good it is."),
        _legend(results) if len(arms) > 1 else "",
        _balance(results),
        _usage(results, {arm: chosen[arm] for arm in first}),
        _terms(results),
        _maps(pictured, seen.colours),
        *(_gallery(arm, found) for arm, found in pictured.items()),
        _note(left) if left and pictured else "",
    )


def _balance(results: Results) -> str:
    return page.figure(
        _drawing(plots.curves(results, results["primary"], "epochs", list(plots.BALANCE), legend=False)),
        f"Class balance of the batches over epochs: {plots.ends(results, results['primary'], 'class_balance')}",
        "Class balance: the entropy of a batch’s class counts over the most it could be, mean over the batches of an"
        " epoch. 1 is as many of each class, 0 is one class alone.",
        aside=True,
    )


def _usage(results: Results, chosen: dict[str, Chosen]) -> str:
    drawing = pictures.usage(chosen, look(results), PANEL)
    if drawing is None:
        return ""
    said = [f"{arm}: {pictures.used(found.all_counts)}" for arm, found in chosen.items() if found.counts]
    caption = f"How many of the training samples were used how often{_over(results, ', all seeds together')}."
    caption += page.listed(said, "plain")
    return page.figure(_drawing(drawing), "How often samples were used. " + "; ".join(said), caption, aside=True)


def _over(results: Results, said: str) -> str:
    """What is to be said of seeds, where there is more than one."""
    return said if len(results["runs"]) > 1 else ""


def _terms(results: Results) -> str:
    drawings = {arm: plots.terms(results, results["primary"], [arm]) for arm in results["arms"]}
    return page.panels(
        page.figure(
            _drawing(drawing),
            f"What each term contributed to the score of {arm}’s batches, over epochs",
            f"Of the first batch of every epoch, weights included{_over(results, '; mean over seeds')}.",
        )
        for arm, drawing in drawings.items()
        if drawing is not None
    )


def _maps(chosen: dict[str, Chosen], colours: dict[str, str]) -> str:
    shown = [
        page.figure(
            uri(png(pictures.feature_map(found, colours[arm]), 1.8), "image/png"),
            f"Map of {arm}’s features: {int((found.portrait['map_counts'] == 0).sum())} of"
            f" {len(found.portrait['map'])} samples were never used",
            f"<b>{text(arm)}</b>, seed {text(found.seed)}",
        )
        for arm, found in chosen.items()
    ]
    return f"<h3>Chosen and skipped</h3>{_note(MAP)}{page.panels(shown)}" if shown else ""


def _gallery(arm: str, found: Chosen) -> str:
    def tiles(kind: str) -> str:
        shown = pictures.captioned(found, kind)
        return page.tiles((uri(pictures.thumbnail(pixels), "image/png"), name, count) for pixels, name, count in shown)

    columns = (f"<div><h4>The {kind} used, seed {text(found.seed)}</h4>{tiles(kind)}</div>" for kind in KINDS)
    return f'<h3>Samples of {text(arm)}</h3><div class="gallery">{"".join(columns)}</div>'


def _provenance(results: Results) -> str:
    """Where and of what the numbers come: environment, commit, command, configs."""
    environment = dict(results["environment"])
    packages = environment.pop("packages", None)
    if isinstance(packages, dict):
        environment["packages"] = ", ".join(f"{name} {version}" for name, version in packages.items())
    rows = [[name, "unknown" if value is None else value] for name, value in environment.items()]
    table = tables.plain_table(["environment", "of the first whole run"], rows, "left")
    arms = [page.details(f"{arm}: what it changes", changes) for arm, changes in results["overrides"].items()]
    return page.section(
        "provenance",
        "Where the numbers come from",
        table if rows else "<p>No whole run says where it took place.</p>",
        "<h3>Configuration</h3>",
        page.details("base config, resolved" if arms else "config, resolved", results["config"]),
        *arms,
    )


def _problems(results: Results) -> str:
    found = page.listed(results["problems"], "problems")
    return page.section("problems", "Problems", found or "<p>None: every run is finished and whole.</p>")


def _footer(source: str) -> str:
    return f"<footer>Made by smdl from the files of {text(source)}.</footer>"
