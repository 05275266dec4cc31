"""The paper's numbers next to ours, where it printed any; else what it says in words."""

from typing import Any

from rich.table import Table

from smdl.experiments.records import Results
from smdl.experiments.statistics import Estimate
from smdl.report.summaries import estimate_text, shown

#: Format of a measure.
FORMATS = {"final_accuracy": ".2f", "mean_accuracy": ".2f", "final_loss": ".3f", "mean_loss": ".3f"}
OTHER = ",.2f"


def page_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """Return (headings, rows) of the page's table."""
    given = results.paper or {"columns": [], "rows": []}
    head = ["", *(f"{name}, {whose}" for name in given["columns"] for whose in ("paper", "ours"))]
    body = [[row["name"], *(text for cell in row["cells"] for text in _texts(cell))] for row in given["rows"]]
    return head, body


def markdown(results: Results) -> list[str]:
    """Return the table as lines of Markdown."""
    given = results.paper
    if not given:
        return []
    lines = ["", given["note"], ""]
    if given["rows"]:
        lines += [f"| paper → ours | {' | '.join(given['columns'])} |", "|" + " --- |" * (1 + len(given["columns"]))]
        for row in given["rows"]:
            lines.append(f"| {row['name']} | {' | '.join(' → '.join(_texts(cell)) for cell in row['cells'])} |")
    return lines


def terminal(results: Results) -> list[Table | str]:
    """Return the table for a terminal of 80 columns, the paper's number above ours, and its note."""
    given = results.paper
    if not given:
        return []
    if not given["rows"]:
        return [given["note"]]
    table = Table(show_edge=False, box=None, padding=(0, 2, 0, 0))
    table.add_column("paper,\nours below", max_width=16)
    for name in given["columns"]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in given["rows"]:
        table.add_row(row["name"], *("\n".join(_texts(cell)) for cell in row["cells"]))
    return [table, given["note"]]


def _texts(cell: dict[str, Any]) -> tuple[str, str]:
    """Format (the paper's number, ours)."""
    form, ours = FORMATS.get(cell["measure"], OTHER), cell["ours"]
    return shown(cell["paper"], form), estimate_text(ours, form) if isinstance(ours, Estimate) else shown(ours, form)
