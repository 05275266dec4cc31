"""The numbers of an experiment as tables for the terminal and in Markdown."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from smdl.experiments.oracle_gains import sentences
from smdl.experiments.records import Comparison, Results, Row
from smdl.experiments.statistics import Difference
from smdl.report.summaries import (
    MISSING,
    ORACLE_NOTE,
    cell_of,
    estimate_text,
    learned,
    matrix,
    p_value,
    rows_of,
    shown,
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
    lines += [] if results.regimes else oracle_lines(results, results.primary)
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
    cell = cell_of(row, test, key, form, results)
    return " ".join(number.text for number in cell.numbers) + cell.note


def oracle_lines(results: Results, protocol: str) -> list[str]:
    """Return what perfect knowledge gains in each regime, as a list in Markdown; nothing where there is no oracle."""
    found = sentences([gain for gain in results.gains if gain.protocol == protocol])
    return ["", *(f"- {line}" for line in found), "", ORACLE_NOTE] if found else []
