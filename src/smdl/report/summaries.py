"""The numbers of an experiment as tables: what a cell holds and how it is written, and the tables of the page."""

import math
from dataclasses import dataclass
from typing import Any

from smdl.experiments.oracle_gains import gains_nothing
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
    "oracle: drawn by what is hidden (groups or subclasses equally often, no wrong labels, one copy of each image). It"
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
    body = [(row.arm, [cell_of(row, test, key, form, results) for *_, key, form in columns]) for row, test in rows]
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


def cell_of(row: Row, test: Comparison | None, key: str, form: str, results: Results) -> Cell:
    value = _value(row, test, key, results)
    if key in ("p_holm", "test.p", "test.welch.p") or key.startswith("secondary_p."):
        return Cell([number(key, value, p_value(value))])
    if not isinstance(value, Estimate | Difference):
        return Cell([number(key, value, value if isinstance(value, str) else shown(value, form))])
    coloured = key == "difference" and test is not None and test.verdict in ("better", "worse")
    numbers = [number(f"{key}.mean", value.mean, shown(value.mean, form), test.verdict if test and coloured else "")]
    if value.half is not None:
        numbers.append(number(f"{key}.half", value.half, f"± {shown(value.half, _half_form(form))}", "half"))
    if key == "difference":
        return Cell(numbers, f" (vs {test and test.against})" if results.against else "")
    missing = key in ("final_accuracy", f"metrics.{results.metric}") and row.seeds != results.seeds
    return Cell(numbers, f" n = {row.seeds}" if missing else "")


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
