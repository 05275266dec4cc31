"""Tables: the numbers of an experiment, for the page and for the terminal."""

import math
from typing import Any

from rich.table import Table
from rich.text import Text

from smdl.experiments.page import text
from smdl.experiments.results import LEVEL

Results = dict[str, Any]
#: Columns of the page's tables: (group, heading, key of the row, how its value is shown).
LEARNED = (
    ("test accuracy, %", "at the end", "final_accuracy", ".2f"),
    ("test accuracy, %", "mean over epochs", "mean_accuracy", ".2f"),
    ("difference to the baseline", "points", "difference", "+.2f"),
    ("difference to the baseline", "p (Holm)", "p_holm", ".3f"),
    ("test loss", "at the end", "final_loss", ".4f"),
    ("test loss", "mean over epochs", "mean_loss", ".4f"),
)
TRAINED = (
    ("train accuracy, %", "at the end", "final_train_accuracy", ".2f"),
    ("train accuracy, %", "mean over epochs", "mean_train_accuracy", ".2f"),
    ("train loss", "at the end", "final_train_loss", ".4f"),
    ("train loss", "mean over epochs", "mean_train_loss", ".4f"),
    ("batches", "class balance", "class_balance", ".3f"),
)
COST = (
    ("whole run", "steps", "steps", ",d"),
    ("whole run", "seconds", "seconds", ",.2f"),
    ("whole run", "by the log, × baseline’s", "by_the_log", ".2f"),
    ("to the baseline’s final accuracy", "steps", "steps_to_baseline", ",d"),
    ("to the baseline’s final accuracy", "seconds", "seconds_to_baseline", ",.2f"),
    ("to the baseline’s final accuracy", "seeds that reach it", "reached_baseline", ""),
    ("overhead a step, of the baseline’s step", "scoring", "overhead.scoring", "+.1%"),
    ("overhead a step, of the baseline’s step", "selection", "overhead.selection", "+.1%"),
    ("overhead a step, of the baseline’s step", "in total", "overhead.total", "+.1%"),
    ("a step", "extra forwards", "forwards_per_step", ",.1f"),
)
#: Columns of a table in Markdown: heading -> key of the row, how its value is shown.
PRINTED = {
    "final accuracy, %": ("final_accuracy", ".2f"),
    "difference": ("difference", "+.2f"),
    "p (Holm)": ("p_holm", ""),
    "mean accuracy, %": ("mean_accuracy", ".2f"),
    "final loss": ("final_loss", ".3f"),
    "mean loss": ("mean_loss", ".3f"),
    "train accuracy, %": ("final_train_accuracy", ".2f"),
    "class balance": ("class_balance", ".3f"),
    "steps": ("steps", ",d"),
    "time a step": ("overhead.total", ""),
    "time by the log": ("by_the_log", ".2f"),
}
NOTHING = "–"


def shown(value: Any, form: str) -> str:
    """A number as people read it; a dash where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return NOTHING
    return format(value, form).replace("-", "−").replace("%", " %")


def p_value(p: float | None) -> str:
    """Never 0."""
    return "< 0.001" if p is not None and p < 0.001 else shown(p, ".3f")


def rows_of(results: Results, protocol: str) -> list[dict[str, Any]]:
    """The rows of a protocol, each with its test against its baseline as `difference`, `p_holm` and `against`."""
    tests = {test["arm"]: test for test in results["tests"] if test["protocol"] == protocol}
    rows = [row for row in results["rows"] if row["protocol"] == protocol]
    return [{**row, **_tested(tests.get(row["arm"]))} for row in rows]


def _tested(test: dict[str, Any] | None) -> dict[str, Any]:
    if test is None:
        return {"difference": None, "p_holm": None, "against": None}
    gap = {"mean": test["difference"], "half": test["half"]}
    return {"difference": gap, "p_holm": test["p_holm"], "against": test["against"]}


def page_table(results: Results, protocol: str, columns: tuple[tuple[str, str, str, str], ...]) -> str:
    """Rows are arms. Each number carries its key and its full-precision value. What no arm has, such as seconds where
    nothing was timed, is no column."""
    rows = rows_of(results, protocol)
    columns = tuple(column for column in columns if any(_value(row, column[2]) is not None for row in rows))
    groups: list[list[Any]] = []
    for group, *_ in columns:
        if groups and groups[-1][0] == group:
            groups[-1][1] += 1
        else:
            groups.append([group, 1])
    above = "".join(f'<th colspan="{width}" scope="colgroup">{text(group)}</th>' for group, width in groups)
    below = "".join(f'<th scope="col">{text(heading)}</th>' for _, heading, _, _ in columns)
    body = ""
    for row in rows:
        kind = ' class="baseline"' if row["arm"] == results["baseline"] else ""
        cells = "".join(f"<td>{_cell(row, key, form, results)}</td>" for _, _, key, form in columns)
        body += (
            f'<tr{kind} data-protocol="{text(protocol)}" data-arm="{text(row["arm"])}">'
            f'<th scope="row">{text(row["arm"])}</th>{cells}</tr>'
        )
    return (
        f'<div class="wide"><table><thead><tr class="groups"><td></td>{above}</tr>'
        f'<tr><th scope="col">arm</th>{below}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def datum(key: str, value: Any, said: str, kind: str = "") -> str:
    """A number with what it is, exactly, for whoever checks it."""
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    exact = "" if missing else value if isinstance(value, str) else repr(value)
    marked = f' class="{kind}"' if kind else ""
    return f'<span{marked} data-key="{text(key)}" data-value="{text(exact)}">{text(said)}</span>'


def _value(row: dict[str, Any], key: str) -> Any:
    """By a dotted key; None where a part of it is."""
    value: Any = row
    for part in key.split("."):
        value = None if value is None else value[part]
    return value


def _named(row: dict[str, Any], results: Results) -> str:
    """Whom an arm is tested against, where that is not the same for all."""
    return f" (vs {row['against']})" if results["against"] else ""


def _cell(row: dict[str, Any], key: str, form: str, results: Results) -> str:
    value = _value(row, key)
    if key == "p_holm":
        return datum(key, value, p_value(value))
    if not isinstance(value, dict):
        return datum(key, value, value if isinstance(value, str) else shown(value, form))
    cell = datum(f"{key}.mean", value["mean"], shown(value["mean"], form), _kind(row) if key == "difference" else "")
    if value["half"] is not None:
        cell += " " + datum(f"{key}.half", value["half"], f"± {shown(value['half'], form.lstrip('+'))}", "half")
    if key == "final_accuracy" and value["count"] != results["seeds"]:
        cell += f" <small>n = {value['count']}</small>"
    if key == "difference":
        cell += f"<small>{text(_named(row, results))}</small>"
    return cell


def _kind(row: dict[str, Any]) -> str:
    """Coloured only where the test says so."""
    if row["p_holm"] is None or row["p_holm"] >= LEVEL:
        return ""
    return "better" if row["difference"]["mean"] > 0 else "worse"


def plain_table(columns: list[Any], rows: list[list[Any]], kind: str = "") -> str:
    """Text in rows and columns."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in columns)
    body = "".join(
        f"<tr>{''.join(f'<td>{text(NOTHING if cell is None else cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    marked = f' class="{kind}"' if kind else ""
    return f'<div class="wide"><table{marked}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def summary_table(results: Results) -> Table:
    """For a terminal of 80 columns: what each arm reached, how it differs from the baseline, what it costs."""
    primary = results["primary"]
    protocols = [primary, *(protocol for protocol in results["protocols"] if protocol != primary)]
    table = Table(show_edge=False, box=None, padding=(0, 2, 0, 0))
    rival = "its own" if results["against"] else _short(results["baseline"])
    table.add_column("arm", max_width=14, overflow="fold")
    table.add_column(f"test acc., %\nequal {results['equal'][primary]}", justify="right", no_wrap=True)
    for protocol in protocols:
        table.add_column(f"vs {rival}\nequal {results['equal'][protocol]}", justify="right", no_wrap=True)
    table.add_column("time\na step", justify="right", no_wrap=True)
    table.add_column("steps to\nbaseline", justify="right", no_wrap=True)
    found = {protocol: {row["arm"]: row for row in rows_of(results, protocol)} for protocol in protocols}
    for arm in results["arms"]:
        row = found[primary][arm]
        steps = f"{shown(row['steps_to_baseline'], ',d')}\n({row['reached_baseline']})"
        cells = [
            estimate_text(row["final_accuracy"], ".2f"),
            *(_against(found[protocol][arm]) for protocol in protocols),
            NOTHING if row["overhead"] is None else f"{1 + row['overhead']['total']:.2f} ×",
            steps,
        ]
        style = "dim" if arm == results["baseline"] else ""
        table.add_row(Text(arm), *(Text(cell) for cell in cells), style=style)  # Text: a name is no markup
    return table


def _short(name: str) -> str:
    return name if len(name) <= 10 else name[:9] + "…"


def estimate_text(value: dict[str, Any], form: str) -> str:
    """A mean and, where there is one, its interval."""
    half = "" if value["half"] is None else f" ± {shown(value['half'], form.lstrip('+'))}"
    return shown(value["mean"], form) + half


def _against(row: dict[str, Any]) -> str:
    """Two lines: the difference, and Holm's p."""
    if row["difference"] is None:
        return "baseline"
    p = p_value(row["p_holm"])
    return estimate_text(row["difference"], "+.2f") + (f"\np {p}" if p != NOTHING else "")


def markdown(results: Results) -> str:
    """The numbers for a page of documentation: the verdict, and a table a protocol. What no arm has is no column."""
    lines = [f"**{results['verdict']}**"]
    for protocol in results["protocols"]:
        rows = rows_of(results, protocol)
        columns = {name: [_printed(row, key, form, results) for row in rows] for name, (key, form) in PRINTED.items()}
        columns = {name: cells for name, cells in columns.items() if set(cells) != {NOTHING}}
        lines += ["", f"| equal {results['equal'][protocol]} | {' | '.join(columns)} |"]
        lines += ["|" + " --- |" * (1 + len(columns))]
        for place, row in enumerate(rows):
            lines.append(f"| {' | '.join([row['arm'], *(cells[place] for cells in columns.values())])} |")
    return "\n".join(lines)


def _printed(row: dict[str, Any], key: str, form: str, results: Results) -> str:
    value = _value(row, key)
    if key == "overhead.total" and value is not None:
        return f"{1 + value:.2f} ×"
    if key == "p_holm" or not isinstance(value, dict):
        return p_value(value) if key == "p_holm" else shown(value, form)
    return estimate_text(value, form) + (_named(row, results) if key == "difference" else "")
