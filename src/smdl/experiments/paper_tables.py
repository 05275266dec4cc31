"""Beside: the paper's own numbers next to ours, where it printed some; else what it says in words."""

from typing import Any

from rich.table import Table

from smdl.experiments.page import text
from smdl.experiments.tables import estimate_text, plain_table, shown

Results = dict[str, Any]
#: How a measure is shown.
FORMS = {"final_accuracy": ".2f", "mean_accuracy": ".2f", "final_loss": ".3f", "mean_loss": ".3f"}
PLAIN = ",.2f"


def page_part(results: Results) -> tuple[str, str, str]:
    """(title, table, note) of the page's section."""
    given = results.get("paper")
    if not given:
        return "", "", ""
    note = f'<p class="note">{text(given["note"])}</p>'
    if not given["rows"]:
        return "What the paper says", "", note
    head = ["", *(f"{name}, {whose}" for name in given["columns"] for whose in ("paper", "ours"))]
    body = [[row["name"], *(said for one in row["cells"] for said in _said(one))] for row in given["rows"]]
    return "The paper’s own numbers beside ours", plain_table(head, body), note


def markdown(results: Results) -> list[str]:
    """The same in lines, for a page of documentation."""
    given = results.get("paper")
    if not given:
        return []
    lines = ["", given["note"], ""]
    if given["rows"]:
        lines += [f"| paper → ours | {' | '.join(given['columns'])} |", "|" + " --- |" * (1 + len(given["columns"]))]
        for row in given["rows"]:
            lines.append(f"| {row['name']} | {' | '.join(' → '.join(_said(one)) for one in row['cells'])} |")
    return lines


def terminal(results: Results) -> list[Table | str]:
    """The same, for 80 columns: the paper's number above ours."""
    given = results.get("paper")
    if not given:
        return []
    if not given["rows"]:
        return [given["note"]]
    table = Table(show_edge=False, box=None, padding=(0, 2, 0, 0))
    table.add_column("paper,\nours below", max_width=16)
    for name in given["columns"]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in given["rows"]:
        table.add_row(row["name"], *("\n".join(_said(one)) for one in row["cells"]))
    return [table, given["note"]]


def _said(one: dict[str, Any]) -> tuple[str, str]:
    """(the paper's, ours), as people read them."""
    form, ours = FORMS.get(one["measure"], PLAIN), one["ours"]
    return shown(one["paper"], form), estimate_text(ours, form) if isinstance(ours, dict) else shown(ours, form)
