"""What all pages are made of: templates and pictures."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from smdl.common.storage import read_json, write_bytes
from smdl.experiments.comparison_plan import FolderError
from smdl.report.figures import Draw, Look, data_uri, png, svg

#: Of figures that compare no arms.
ONE_COLOUR = Look([""], "")


@dataclass(frozen=True)
class Panel:
    """A picture on the page."""

    draw: Draw
    alt: str
    caption: str = ""
    title: str = ""  # in bold before the caption
    notes: tuple[str, ...] = ()  # a list after the caption
    raster: bool = False  # a PNG: many points


def fill(name: str, **values: Any) -> str:
    """Return a template of this package, filled in."""
    environment = Environment(
        loader=PackageLoader("smdl.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(name).render(missing="–", **values)


def render_file(path: Path, command: str, page: Callable[[dict[str, Any]], str], name: str = "report.html") -> Path:
    """Write a page beside the JSON file that holds its numbers. Return the page. `command` makes that file again."""
    found = read_json(path)
    if found is None:
        raise FolderError(f"{path} is damaged or missing: run {command} again")
    write_bytes(path.with_name(name), page(found).encode())
    return path.with_name(name)


def picture(panel: Panel, look: Look = ONE_COLOUR) -> dict[str, Any]:
    """Draw a panel."""
    draw, kind = (png, "image/png") if panel.raster else (svg, "image/svg+xml")
    return {**vars(panel), "address": data_uri(draw(panel.draw, look), kind)}


def with_image(address: str, text: str) -> str:
    """Return a small image and a text for a cell of a table."""
    return Markup('<img src="{}" alt=""> {}').format(address, text)
