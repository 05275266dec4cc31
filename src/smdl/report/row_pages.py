"""The pages of commands on files of rows. A page is drawn from one file in the folder beside the output."""

from importlib import import_module
from pathlib import Path

#: A page is drawn from NAME.json, by render_NAME in NAME_page.py.
NAMES = ("selection", "dedup", "score", "labelling", "simulation")


def has_rows(folder: Path) -> bool:
    """Whether this is the folder of a command on rows."""
    return any((folder / f"{name}.json").exists() for name in NAMES)


def render_rows(folder: Path) -> Path:
    """Write report.html into the folder of a command on rows. Return the page."""
    name = next(name for name in NAMES if (folder / f"{name}.json").exists())
    return getattr(import_module(f"smdl.report.{name}_page"), f"render_{name}")(folder)
