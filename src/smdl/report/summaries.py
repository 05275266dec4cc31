"""The numbers of an experiment as tables: for the page, for the terminal and for Markdown."""

import math
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from smdl.experiments.oracle_gains import gains_nothing, sentences
from smdl.experiments.records import Comparison, Results, Row
from smdl.experiments.regimes import arm_name
from smdl.experiments.statistics import Difference, Estimate
from smdl.experiments.verdicts import excludes_zero

Column = tuple[str, str, str, str]
#: Columns of the page's tables: (group, heading, field of the row, format).
LEARNED: tuple[Column, ...] = (
    ("test accuracy, %", "at the end", "final_accuracy", ".2f"),
    ("test accuracy, %", "mean over epochs", "mean_accuracy", ".2f"),
    ("difference to the baseline", "points", "difference", "+.2f"),
    ("difference to the baseline", "p (Holm)", "p_holm", ".3f"),
    ("test loss", "at the end", "final_loss", ".4f"),
    ("test loss", "mean over epochs", "mean_loss", ".4f"),
)
#: What accuracies by groups are called.
GROUP_NAMES = {
    "balanced_accuracy": "all classes alike, %",
    "rare_accuracy": "rare groups, %",
    "worst_accuracy": "worst group, %",
}
#: Of a comparison with a training function of the user; a column per metric comes first.
OWN_LEARNED: tuple[Column, ...] = (
    ("difference to the baseline", "difference", "difference", "+.3g"),
    ("difference to the baseline", "p (Holm)", "p_holm", ".3f"),
)
TESTS: tuple[Column, ...] = (
    ("paired test", "verdict", "test.verdict", ""),
    ("paired test", "pairs of seeds", "test.pairs", ",d"),
    ("paired test", "90 %: ±", "test.half_90", ".3g"),
    ("paired test", "p", "test.p", ".3f"),
    ("paired test", "seeds needed", "test.seeds_needed", ",d"),
    ("Welch’s test, for comparison", "±", "test.welch.half", ".3g"),
    ("Welch’s test, for comparison", "p", "test.welch.p", ".3f"),
)
TRAINED: tuple[Column, ...] = (
    ("train accuracy, %", "at the end", "final_train_accuracy", ".2f"),
    ("train accuracy, %", "mean over epochs", "mean_train_accuracy", ".2f"),
    ("train loss", "at the end", "final_train_loss", ".4f"),
    ("train loss", "mean over epochs", "mean_train_loss", ".4f"),
    ("batches", "class balance", "class_balance", ".3f"),
)
COST: tuple[Column, ...] = (
    ("whole run", "steps", "steps", ",d"),
    ("whole run", "seconds", "seconds", ",.2f"),
    ("whole run", "of them for the reference model", "reference_seconds", ",.2f"),
    ("whole run", "of them for the last layer", "refit_seconds", ",.2f"),
    ("whole run", "logged time, × baseline’s", "by_the_log", ".2f"),
    ("to the baseline’s final accuracy", "steps", "steps_to_baseline", ",d"),
    ("to the baseline’s final accuracy", "seconds", "seconds_to_baseline", ",.2f"),
    ("to the baseline’s final accuracy", "seeds that reach it", "reached_baseline", ""),
    ("overhead per step, relative to the baseline’s step", "scoring", "overhead.scoring", "+.1%"),
    ("overhead per step, relative to the baseline’s step", "selection", "overhead.selection", "+.1%"),
    ("overhead per step, relative to the baseline’s step", "in total", "overhead.total", "+.1%"),
    ("per step", "extra forwards", "forwards_per_step", ",.1f"),
)
#: Columns of a table in Markdown: heading -> (field of the row, format).
MARKDOWN = {
    "final accuracy, %": ("final_accuracy", ".2f"),
    "difference": ("difference", "+.2f"),
    "p (Holm)": ("p_holm", ""),
    "mean accuracy, %": ("mean_accuracy", ".2f"),
    "all classes alike, %": ("metrics.balanced_accuracy", ".2f"),
    "rare groups, %": ("metrics.rare_accuracy", ".2f"),
    "difference of the rare groups": ("secondary.rare_accuracy", "+.2f"),
    "worst group, %": ("metrics.worst_accuracy", ".2f"),
    "difference of the worst group": ("secondary.worst_accuracy", "+.2f"),
    "final loss": ("final_loss", ".3f"),
    "mean loss": ("mean_loss", ".3f"),
    "train accuracy, %": ("final_train_accuracy", ".2f"),
    "class balance": ("class_balance", ".3f"),
    "steps": ("steps", ",d"),
    "time per step": ("overhead.total", ""),
    "logged time": ("by_the_log", ".2f"),
}
#: Those of them that a comparison of a metric of the user has too.
_ALWAYS = ("steps", "time per step", "logged time")
MISSING = "–"
#: Verdicts as the matrix shows them.
VERDICTS = {
    "better": "▲",
    "worse": "▼",
    "equivalent": "=",
    "unclear": "?",
    "chance": "(at chance)",
    "missing": "(no runs)",
}
LEGEND = (
    "▲ better, ▼ worse, after Holm’s correction over the whole table; △ ▽ the interval of this cell excludes zero;"
    " = equivalent; ? too few seeds to tell; ∅ too few seeds to tell, and knowing what is hidden gains nothing."
)
NOTHING = "∅"
#: What the row of perfect knowledge means.
ORACLE_NOTE = (
    "oracle: drawn by what the regime hides (subclasses equally often, no wrong labels, one copy of each image). It"
    " shows what there is to gain and is no upper bound: a method may gain more. Its marks are not corrected."
)


@dataclass(frozen=True)
class Number:
    """A number on the page: its key, its exact value, its text, and how it is set."""

    key: str
    exact: str
    text: str
    kind: str = ""


@dataclass(frozen=True)
class Cell:
    """A cell of the page's table."""

    numbers: list[Number]
    note: str = ""


@dataclass(frozen=True)
class PageTable:
    """A table of the page: a row per arm."""

    groups: list[tuple[str, int]]  # (name, columns)
    headings: list[str]
    rows: list[tuple[str, list[Cell]]]  # (arm, cells)


def shown(value: Any, form: str) -> str:
    """Format a number for a reader; a dash where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return MISSING
    return format(value, form).replace("-", "−").replace("%", " %")


def p_value(p: float | None) -> str:
    """Format a p-value, never as 0."""
    return "< 0.001" if p is not None and p < 0.001 else shown(p, ".3f")


def estimate_text(value: Estimate | Difference, form: str) -> str:
    """Format a mean and, where there is one, its interval."""
    half = "" if value.half is None else f" ± {shown(value.half, _half_form(form))}"
    return shown(value.mean, form) + half


def _half_form(form: str) -> str:
    """Return the format of an interval: as many decimals as the mean has, or two digits."""
    return ".2g" if form.endswith("g") else form.lstrip("+")


def rows_of(results: Results, protocol: str) -> list[tuple[Row, Comparison | None]]:
    """Return the rows of a protocol, each with its test against its baseline."""
    tests = {test.arm: test for test in results.tests if test.protocol == protocol}
    return [(row, tests.get(row.arm)) for row in results.rows if row.protocol == protocol]


def number(key: str, value: Any, text: str, kind: str = "") -> Number:
    """Make a number of the page."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return Number(key, "" if missing else value if isinstance(value, str) else repr(value), text, kind)


def page_table(results: Results, protocol: str, columns: tuple[Column, ...]) -> PageTable:
    """Make a table of the page. A column without a value for any arm, such as seconds that were not measured, is left
    out."""
    rows = rows_of(results, protocol)
    columns = tuple(column for column in columns if any(_known(_value(*row, column[2], results)) for row in rows))
    groups: dict[str, int] = {}
    for group, *_ in columns:
        groups[group] = groups.get(group, 0) + 1
    body = [(row.arm, [_cell(row, test, key, form, results) for *_, key, form in columns]) for row, test in rows]
    return PageTable(list(groups.items()), [heading for _, heading, *_ in columns], body)


def learned(results: Results) -> tuple[Column, ...]:
    """Return the columns of the first table: accuracy and loss, or the metrics of the user."""
    if not results.metric:
        return LEARNED
    names = dict.fromkeys([results.metric, *(name for row in results.rows for name in row.metrics)])
    return (*(("metrics of the training function", name, f"metrics.{name}", ".4g") for name in names), *OWN_LEARNED)


def besides(results: Results) -> tuple[Column, ...]:
    """Return the columns of what is tested besides the primary endpoint: accuracy by groups, or the other metrics."""
    forms = (".4g", "+.3g") if results.metric else (".2f", "+.2f")
    found = []
    for name in dict.fromkeys(test.measure for test in results.secondary):
        group = GROUP_NAMES.get(name, name)
        found += [
            (group, "at the end", f"metrics.{name}", forms[0]),
            (group, "difference", f"secondary.{name}", forms[1]),
            (group, "p (Holm)", f"secondary_p.{name}", ".3f"),
        ]
    return tuple(found)


def _known(value: Any) -> bool:
    """Whether there is something to show."""
    return value is not None and not (isinstance(value, Estimate) and value.count == 0)


def _value(row: Row, test: Comparison | None, key: str, results: Results) -> Any:
    """Return a field of a row or of its test by a dotted name; None where a part of it is None."""
    kind, _, name = key.partition(".")
    if kind in ("secondary", "secondary_p"):
        wanted = (row.arm, row.protocol, name)
        found = next((each for each in results.secondary if (each.arm, each.protocol, each.measure) == wanted), None)
        if found is None or kind == "secondary_p":
            return found and found.p_holm
        return Difference(found.difference, found.half, found.p)
    if key == "difference":
        return test and Difference(test.difference, test.half, test.p)
    if key == "p_holm":
        return test and test.p_holm
    if key.startswith("metrics."):
        return row.metrics.get(key.removeprefix("metrics."))
    value: Any = test if key.startswith("test.") else row
    for part in key.removeprefix("test.").split("."):
        value = None if value is None else getattr(value, part)
    return value


def _rival(test: Comparison | None, results: Results) -> str:
    """Name the arm's baseline, where not all arms have the same."""
    return f" (vs {test.against if test else None})" if results.against else ""


def _cell(row: Row, test: Comparison | None, key: str, form: str, results: Results) -> Cell:
    value = _value(row, test, key, results)
    if key in ("p_holm", "test.p", "test.welch.p") or key.startswith("secondary_p."):
        return Cell([number(key, value, p_value(value))])
    if not isinstance(value, Estimate | Difference):
        return Cell([number(key, value, value if isinstance(value, str) else shown(value, form))])
    kind = _significance(test) if key == "difference" else ""
    numbers = [number(f"{key}.mean", value.mean, shown(value.mean, form), kind)]
    if value.half is not None:
        numbers.append(number(f"{key}.half", value.half, f"± {shown(value.half, _half_form(form))}", "half"))
    if key == "difference":
        return Cell(numbers, _rival(test, results))
    missing = key in ("final_accuracy", f"metrics.{results.metric}") and row.seeds != results.seeds
    return Cell(numbers, f" n = {row.seeds}" if missing else "")


def _significance(test: Comparison | None) -> str:
    """Return the class of a difference: coloured only where the test is significant."""
    return test.verdict if test is not None and test.verdict in ("better", "worse") else ""


def mark(test: Comparison) -> str:
    """Return the mark of a verdict. A hollow triangle: the interval excludes zero, the corrected test does not."""
    if test.verdict == "unclear" and excludes_zero(test):
        return "△" if (test.difference or 0.0) > 0 else "▽"
    return VERDICTS[test.verdict]


def regime_mark(results: Results, test: Comparison, regime: str) -> str:
    """Return the mark of a verdict in a regime: an open one is of no interest where there is nothing to gain."""
    gains = [gain for gain in results.gains if (gain.regime, gain.protocol) == (regime, test.protocol)]
    return NOTHING if test.verdict == "unclear" and gains_nothing(gains) else mark(test)


def matrix(results: Results, protocol: str) -> tuple[list[str], list[list[str]]]:
    """Return the headings and rows of a table of methods and regimes: accuracy of the baseline, difference to it and
    verdict of the others. A regime that hides nothing has no oracle."""
    found = {row.arm: (row, test) for row, test in rows_of(results, protocol)}

    def cell(method: str, regime: str) -> str:
        if arm_name(method, regime) not in found:
            return MISSING
        row, test = found[arm_name(method, regime)]
        if test is None:
            return f"{estimate_text(results.estimate(row), '.1f')} %"
        gap = estimate_text(Difference(test.difference, test.half, test.p), "+.1f")
        return f"{gap} {regime_mark(results, test, regime)}"

    rows = [[method, *(cell(method, regime) for regime in results.regimes)] for method in results.methods]
    return [f"equal {results.equal[protocol]}", *results.regimes], rows


def oracle_lines(results: Results, protocol: str) -> list[str]:
    """Return what perfect knowledge gains in each regime, as a list in Markdown; nothing where there is no oracle."""
    found = sentences([gain for gain in results.gains if gain.protocol == protocol])
    return ["", *(f"- {line}" for line in found), "", ORACLE_NOTE] if found else []


def matrix_table(results: Results) -> Table:
    """Make the matrix of the primary endpoint for a terminal of 80 columns: cells have two lines."""
    headings, rows = matrix(results, results.primary)
    table = Table(show_edge=False, box=None, padding=(0, 1, 0, 0))
    table.add_column(headings[0].replace(" ", "\n"), max_width=15, overflow="fold")
    for heading in headings[1:]:
        table.add_column(heading, justify="right", vertical="top")
    for row in rows:
        table.add_row(*(Text(_two_lines(cell)) for cell in row))
    return table


def _two_lines(cell: str) -> str:
    """Move the interval of a cell to a second line: '+1.2 ± 0.4 ▲' -> '+1.2 ▲' and '± 0.4'."""
    mean, interval, rest = cell.partition(" ± ")
    half, _, mark = rest.partition(" ")
    return f"{mean} {mark}\n± {half} {' ' * len(mark)}" if interval else cell.replace(" (", "\n(")


def as_text(table: Table) -> str:
    """Return a table as plain text of 80 columns."""
    console = Console(width=80, no_color=True)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def tuned_rates(results: Results) -> str:
    """Say which learning rate each arm got, and how."""
    found = ", ".join(f"{arm} {tuned['rate']:g}" for arm, tuned in results.learning_rates.items())
    return (
        "Learning rates, the best of ½, 1 and 2 × the config’s on a validation split, one run per rate for each arm:"
        f" {found}."
    )


def summary_table(results: Results) -> Table:
    """Make a table for a terminal of 80 columns: accuracy, difference to the baseline and cost of each arm."""
    protocols = results.ordered_protocols
    table = Table(show_edge=False, box=None, padding=(0, 2, 0, 0))
    rival = "its own" if results.against else _short(results.baseline)
    table.add_column("arm", max_width=14, overflow="fold")
    against = [f"vs {rival}\nequal {results.equal[protocol]}" for protocol in protocols]
    measure = f"{_short(results.metric, 14) or 'test acc., %'}\nequal {results.equal[results.primary]}"
    for heading in (measure, *against, "time\n/ step", *([] if results.metric else ["steps to\nbaseline"])):
        table.add_column(heading, justify="right", no_wrap=True)
    found = {protocol: {row.arm: (row, test) for row, test in rows_of(results, protocol)} for protocol in protocols}
    for arm in results.arms:
        row = found[results.primary][arm][0]
        cells = [
            estimate_text(results.estimate(row), ".4g" if results.metric else ".2f"),
            *(_against(found[protocol][arm][1]) for protocol in protocols),
            MISSING if row.overhead is None else f"{1 + row.overhead.total:.2f} ×",
        ]
        if row.reached_baseline is not None:
            cells.append(f"{shown(row.steps_to_baseline, ',d')}\n({row.reached_baseline})")
        style = "dim" if arm == results.baseline else ""
        table.add_row(Text(arm), *(Text(cell) for cell in cells), style=style)  # Text: a name is not markup
    return table


def _short(name: str, most: int = 10) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def _against(test: Comparison | None) -> str:
    """Format a difference and, on a second line, Holm's p."""
    if test is None:
        return "baseline"
    p = p_value(test.p_holm)
    difference = estimate_text(Difference(test.difference, test.half, test.p), "+.3g" if test.metric else "+.2f")
    return difference + (f"\np {p}" if p != MISSING else "")


def markdown(results: Results) -> str:
    """Format the verdict and a table per protocol as Markdown. A column without any value is left out."""
    lines = [f"**{results.verdict}**"]
    for protocol in results.protocols if results.regimes else ():
        headings, cells = matrix(results, protocol)
        table = [headings, ["---"] * len(headings), *cells]
        lines += ["", *(f"| {' | '.join(row)} |" for row in table), *oracle_lines(results, protocol)]
    for protocol in results.protocols:
        rows = rows_of(results, protocol)
        own = {name: (key, form) for _, name, key, form in learned(results)} if results.metric else {}
        kinds = {**own, **{name: what for name, what in MARKDOWN.items() if not own or name in _ALWAYS}}
        columns = {name: [_markdown_cell(*row, *what, results) for row in rows] for name, what in kinds.items()}
        columns = {name: cells for name, cells in columns.items() if set(cells) != {MISSING}}
        lines += ["", f"| equal {results.equal[protocol]} | {' | '.join(columns)} |"]
        lines += ["|" + " --- |" * (1 + len(columns))]
        for place, (row, _) in enumerate(rows):
            lines.append(f"| {' | '.join([row.arm, *(cells[place] for cells in columns.values())])} |")
    return "\n".join(lines)


def _markdown_cell(row: Row, test: Comparison | None, key: str, form: str, results: Results) -> str:
    if key == "overhead.total" and row.overhead is not None:
        return f"{1 + row.overhead.total:.2f} ×"
    cell = _cell(row, test, key, form, results)
    return " ".join(number.text for number in cell.numbers) + cell.note
