"""The page of a report: page.html.j2, filled in. It is one file that fetches nothing and runs no script."""

from typing import Any

import yaml
from jinja2 import Environment, PackageLoader, StrictUndefined

from smdl.experiments.records import Results
from smdl.experiments.statistics import LEVEL
from smdl.report import paper_tables, plots, tables, usage_plots
from smdl.report.contents import PICTURED, FigureEntry, Panel, pictured
from smdl.report.figures import DARK, DASHES, LIGHT, data_uri, look_of, png, svg
from smdl.report.usage import KINDS, Usage

#: Letters from which on a verdict is set smaller.
LONG = 400
PROTOCOL_NOTES = {
    "time": "Equal time: as many steps as the baseline’s calibrated seconds allow.",
    "steps": "Equal steps: each arm trains for the planned number of steps, whatever they cost.",
    "epochs": "Equal epochs: each arm trains for the planned number of epochs, whatever they cost.",
}


def render_page(results: Results, usage: dict[str, Usage], figures: list[FigureEntry]) -> str:
    """Return the report of an experiment or of a single run as HTML."""
    environment = Environment(
        loader=PackageLoader("smdl.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template("page.html.j2").render(
        results=results,
        compared=bool(results.equal),
        verdict_long=len(results.verdict) >= LONG,
        basis=_basis(results) if results.equal else "",
        facts=[] if results.equal else _facts(results),
        tables={protocol: _tables(results, protocol) for protocol in results.ordered_protocols},
        paper=paper_tables.page_table(results),
        band_notes={protocol: plots.band_note(results, protocol) for protocol in results.protocols},
        first_button={protocol: _first_button(results, protocol) for protocol in results.protocols},
        legend=_legend(results),
        figures=_by_place(results, figures),
        galleries=_galleries(pictured(results, usage)),
        more_arms=len(results.arms) - PICTURED,
        environment_rows=_environment(results),
        configs=_configs(results),
        missing=tables.MISSING,
    )


def _basis(results: Results) -> str:
    """Say what the verdict is based on."""
    runs = {run.folder: run.problem for run in results.runs}  # the baseline's runs count for both protocols
    tests = sum(test.protocol == results.primary for test in results.tests)
    rival = "its own baseline" if results.against else results.baseline
    return " ".join(
        (
            "Primary endpoint, fixed before any run: final test accuracy at equal"
            f" {results.equal[results.primary]}. {_count(results.seeds, 'seed')} per arm;",
            f"Welch’s test against {rival}, Holm’s correction over {_count(tests, 'comparison')},",
            f"level {100 * LEVEL:.0f} %; ± is a 95 % interval.",
            *(PROTOCOL_NOTES[equal] for equal in results.equal.values()),
            f"{list(runs.values()).count(None)} of {len(runs)} runs are finished and undamaged.",
        )
    )


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


def _tables(results: Results, protocol: str) -> list[tables.PageTable]:
    return [tables.page_table(results, protocol, columns) for columns in (tables.LEARNED, tables.TRAINED, tables.COST)]


def _first_button(results: Results, protocol: str) -> str:
    """Name the axis that is shown first: what the protocol makes equal."""
    return {"time": "over seconds", "steps": "over steps"}.get(results.equal.get(protocol, ""), "over epochs")


def _legend(results: Results) -> list[dict[str, str]]:
    light, dark = look_of(results, LIGHT), look_of(results, DARK)
    return [
        {"name": arm, "light": light.colours[arm], "dark": dark.colours[arm], "line": DASHES[light.dashes[arm]]}
        for arm in results.arms
    ]


def _by_place(results: Results, figures: list[FigureEntry]) -> dict[str, list[dict[str, Any]]]:
    """Draw the figures of the page: place -> (button, pictures)."""
    found: dict[str, list[dict[str, Any]]] = {}
    for figure in figures:
        pictures = [_picture(results, panel) for panel in figure.panels]
        if pictures:
            found.setdefault(figure.place, []).append({"button": figure.button, "pictures": pictures})
    return found


def _picture(results: Results, panel: Panel) -> dict[str, Any]:
    """Draw a panel in both themes."""
    draw, kind = (png, "image/png") if panel.raster else (svg, "image/svg+xml")
    drawn = {
        name: data_uri(draw(panel.draw, look_of(results, theme)), kind)
        for name, theme in (("light", LIGHT), ("dark", DARK))
    }
    return {**drawn, "alt": panel.alt, "caption": panel.caption, "title": panel.title, "notes": panel.notes}


def _galleries(usage: dict[str, Usage]) -> list[dict[str, Any]]:
    """Return the most and the least used samples of each arm as small pictures."""
    found = []
    for arm, used in usage.items():
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
    found |= {f"{arm}: what it changes": changes for arm, changes in results.overrides.items()}
    return {name: yaml.safe_dump(value, sort_keys=False, allow_unicode=True) for name, value in found.items()}
