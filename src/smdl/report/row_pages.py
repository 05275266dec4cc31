"""The pages of commands on files of rows. A page is drawn from one file in the folder beside the output."""

from importlib import import_module
from pathlib import Path

#: The files that pages are drawn from, and the modules that draw them.
FILES = {
    "selection.json": ("selection_page", "render_selection"),
    "dedup.json": ("dedup_page", "render_dedup"),
    "score.json": ("score_page", "render_score"),
    "labelling.json": ("labelling_page", "render_labelling"),
    "simulation.json": ("simulation_page", "render_simulation"),
}


def has_rows(folder: Path) -> bool:
    """Whether this is the folder of a command on rows."""
    return any((folder / name).exists() for name in FILES)


def render_rows(folder: Path) -> Path:
    """Write report.html into the folder of a command on rows. Return the page."""
    module, function = next(FILES[name] for name in FILES if (folder / name).exists())
    return getattr(import_module(f"smdl.report.{module}"), function)(folder)
