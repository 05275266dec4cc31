"""The pages of commands on files of rows. A page is drawn from one file in the folder beside the output."""

from pathlib import Path

#: The files that pages are drawn from.
FILES = ("selection.json",)


def has_rows(folder: Path) -> bool:
    """Whether this is the folder beside the output of a command on rows."""
    return any((folder / name).exists() for name in FILES)


def render_rows(folder: Path) -> Path:
    """Write report.html into the folder beside an output. Return the page."""
    from smdl.report.selection_page import render_selection

    return render_selection(folder)
