"""The page of a report: page.html.j2, filled in. It is one file that fetches nothing and runs no script."""

from typing import Any

import yaml

from smdl.experiments.comparison_plan import ORACLE
from smdl.experiments.oracle_gains import sentences
from smdl.experiments.records import Comparison, Results
from smdl.experiments.statistics import LEVEL, MARGIN
from smdl.experiments.verdicts import finding
from smdl.report import paper_tables, plots, usage_plots
from smdl.report import summaries as tables
from smdl.report.contents import FigureEntry, pictured
from smdl.report.figures import DASHES, IN_THE_DARK, data_uri, look_of
from smdl.report.panels import fill, picture
from smdl.report.text_tables import tuned_rates
from smdl.report.usage import KINDS, Usage, uneven

#: Most verdicts that are not folded.
LINES = 12
#: What the label of a verdict says.
LABELS = {"unclear": "too few seeds", "chance": "at chance", "missing": "no runs"}
PROTOCOL_NOTES = {
    "time": "Equal time: as many steps as the baseline’s calibrated seconds allow, after the seconds of the reference"
    " model if the method has one.",
    "steps": "Equal steps: each arm trains for the planned number of steps, whatever they cost.",
    "epochs": "Equal epochs: each arm trains for the planned number of epochs, whatever they cost.",
}


def render_page(results: Results, drawn: Results, usage: dict[str, Usage], figures: list[FigureEntry]) -> str:
    """Return the report of an experiment or of a single run as HTML. `drawn` has only the arms that figures show."""
    return fill(
        "page.html.j2",
        results=results,
        compared=bool(results.equal),
        lines=_lines(results),
        open_lines=LINES,
        basis=_basis(results) if results.equal else "",
        data=_data(results) if results.equal else "",
        rates=tuned_rates(results) if results.learning_rates else "",
        facts=[] if results.equal else _facts(results),
        tables={protocol: _tables(results, protocol) for protocol in results.ordered_protocols},
        matrix=tables.matrix(results, results.primary) if results.regimes else None,
        matrix_legend=tables.LEGEND,
        gains=sentences([gain for gain in results.gains if gain.protocol == results.primary]),
        oracle_note=tables.ORACLE_NOTE,
        paper=paper_tables.page_table(results),
        band_notes={protocol: plots.band_note(drawn, protocol) for protocol in results.protocols},
        first_button={protocol: _first_button(results, protocol) for protocol in results.protocols},
        legend=_legend(drawn),
        drawn=len(drawn.arms),
        pictured=len(pictured(drawn, usage)),
        figures=_by_place(drawn, figures),
        galleries=_galleries(drawn, pictured(drawn, usage)),
        environment_rows=_environment(results),
        configs=_configs(results),
    )


def _lines(results: Results) -> list[dict[str, str]]:
    """Return one line per arm: its verdict at the primary endpoint. The label says what the text then need not."""
    found = []
    for test in _candidates(results):
        text = finding(test, bool(results.against)).removeprefix("too few seeds to tell for ")
        found.append({"kind": test.verdict, "label": LABELS.get(test.verdict, test.verdict), "text": text})
    return found


def _candidates(results: Results) -> list[Comparison]:
    """Return the tests at the primary endpoint, without those of an oracle, which is no method to choose."""
    methods = {arm: changes.get("method") for arm, changes in results.overrides.items()}
    return [test for test in results.tests if test.protocol == results.primary and methods.get(test.arm) != ORACLE]


def _basis(results: Results) -> str:
    """Say what the verdicts are based on."""
    runs = {run.folder: run.problem for run in results.runs}  # the baseline's runs count for both protocols
    tests = len(_candidates(results))
    rival = "its own baseline" if results.against else results.baseline
    looks = f" Every interval and p allows for {len(results.looks)} looks." if results.looks else ""
    return " ".join(
        (
            f"Primary endpoint, fixed before any run: {results.endpoint} at equal"
            f" {results.equal[results.primary]}{_direction(results)}. {_count(results.seeds, 'seed')} per arm;",
            f"paired test against {rival}, Holm’s correction over {_count(tests, 'comparison')},",
            f"level {100 * LEVEL:.0f} %; ± is a 95 % interval.{looks} Equivalent: the 90 % interval of the difference"
            f" is within ±{_margin(results)}.",
            *(PROTOCOL_NOTES[equal] for equal in results.equal.values()),
            f"{list(runs.values()).count(None)} of {len(runs)} runs are finished and undamaged.",
        )
    )


def _direction(results: Results) -> str:
    """Say which direction of a metric of the user is better."""
    return "" if not results.metric else f", {'higher' if results.higher_is_better else 'lower'} is better"


def _margin(results: Results) -> str:
    unit = f"in {results.metric}" if results.metric else "points"
    return f"{max((test.margin for test in results.tests), default=MARGIN):.2g} {unit}"


def _data(results: Results) -> str:
    """Say what the accuracies are measured on, and what their intervals do not cover."""
    data = results.data
    sizes = [
        f"{number:,} {name} samples"
        for name, number in (("training", data and data.train_samples), ("test", data and data.test_samples))
        if number
    ]
    text = f"{' and '.join(sizes)}. " if sizes else ""
    if data is not None and data.points_per_sample is not None:
        text += f"One test sample is worth {data.points_per_sample:.2g} points. "
    text += "Intervals cover the seeds, not the choice of the test samples"
    row = next(row for row in results.rows if (row.arm, row.protocol) == (results.baseline, results.primary))
    mean = row.final_accuracy.mean
    if data is not None and data.test_samples and mean is not None:
        share = mean / 100
        half = 196 * (share * (1 - share) / data.test_samples) ** 0.5
        text += f"; another test set of this size would move an accuracy of {100 * share:.0f} % by about ±{half:.1f}"
    return f"{text}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _facts(results: Results) -> list[tuple[str, tables.Number]]:
    """Return a single run in a few numbers: (what it is, number)."""
    (run,) = results.runs
    if not run.epochs:
        return []
    last, found = run.epochs[-1], []
    for split in ("test", "train"):
        error, loss = last.get(f"{split}_error"), last.get(f"{split}_loss")
        if error is not None:
            found.append((f"{split} accuracy", 100 * (1 - error), f"{1 - error:.2%}"))
        if loss is not None:
            found.append((f"{split} loss", loss, f"{loss:.4f}"))
    seconds = results.calibration[run.arm]["seconds_per_step"] * last["steps"]
    found += [
        ("epochs", len(run.epochs), str(len(run.epochs))),
        ("steps", last["steps"], f"{last['steps']:,}"),
        ("seconds, without evaluation", seconds, f"{seconds:,.1f}"),
    ]
    return [(name, tables.number(name, value, text)) for name, value, text in found]


def _tables(results: Results, protocol: str) -> dict[str, tables.PageTable]:
    """Return the tables of a protocol: title -> table. All but the first are folded."""
    kinds = {
        "Accuracy and loss": tables.learned(results),
        "Other metrics" if results.metric else "Accuracy by groups": tables.besides(results),
        "Tests": tables.TESTS,
        "Training": tables.TRAINED,
        "Cost": tables.COST,
    }
    return {title: tables.page_table(results, protocol, columns) for title, columns in kinds.items()}


def _first_button(results: Results, protocol: str) -> str:
    """Name the axis that is shown first: what the protocol makes equal."""
    return {"time": "over seconds", "steps": "over steps"}.get(results.equal.get(protocol, ""), "over epochs")


def _legend(results: Results) -> list[dict[str, str]]:
    look = look_of(results)
    return [
        {"name": arm, "light": colour, "dark": IN_THE_DARK[colour], "line": DASHES[look.dashes[arm]]}
        for arm in results.arms
        if (colour := look.colours[arm])
    ]


def _by_place(results: Results, figures: list[FigureEntry]) -> dict[str, list[dict[str, Any]]]:
    """Draw the figures of the page: place -> (button, pictures)."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        pictures = [picture(panel, look_of(results)) for panel in figure.panels]
        if pictures:
            found.setdefault(figure.place, []).append({"button": figure.button, "pictures": pictures})
    return found


def _galleries(results: Results, usage: dict[str, Usage]) -> list[dict[str, Any]]:
    """Return the most and the least used samples as small pictures, of the arms whose usage differs."""
    found = []
    for arm in uneven(usage, results.baseline):
        used = usage[arm]
        if used.snapshot is not None:
            kinds = {
                kind: [
                    (data_uri(usage_plots.thumbnail(pixels), "image/png"), name, count)
                    for pixels, name, count in usage_plots.captioned(used, used.snapshot, kind)
                ]
                for kind in KINDS
            }
            found.append({"arm": arm, "seed": used.snapshot.seed, "kinds": kinds})
    return found


def _environment(results: Results) -> list[tuple[str, Any]]:
    found = dict(results.environment)
    packages = found.pop("packages", None)
    if isinstance(packages, dict):
        found["packages"] = ", ".join(f"{name} {version}" for name, version in packages.items())
    return [(name, "unknown" if value is None else value) for name, value in found.items()]


def _configs(results: Results) -> dict[str, str]:
    """Return the configuration as YAML: title -> text."""
    found = {"base config, resolved" if results.overrides else "config, resolved": results.config}
    if results.overrides:
        found["what each arm changes"] = results.overrides
    if results.learning_rates:
        found["learning rates: validation accuracy, %, of each rate"] = results.learning_rates
    return {name: yaml.safe_dump(value, sort_keys=False, allow_unicode=True) for name, value in found.items()}
