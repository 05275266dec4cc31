"""What all pages are made of: templates and pictures."""

from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from smdl.report.figures import Draw, Look, data_uri, png, svg


@dataclass(frozen=True)
class Panel:
    """A picture on the page."""

    draw: Draw
    alt: str
    caption: str = ""
    title: str = ""  # in bold before the caption
    notes: tuple[str, ...] = ()  # a list after the caption
    raster: bool = False  # a PNG: many points


def template(name: str) -> Template:
    """Return a template of this package."""
    environment = Environment(
        loader=PackageLoader("smdl.report", ""),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    return environment.get_template(name)


def picture(panel: Panel, look: Look) -> dict[str, Any]:
    """Draw a panel."""
    draw, kind = (png, "image/png") if panel.raster else (svg, "image/svg+xml")
    texts = {"alt": panel.alt, "caption": panel.caption, "title": panel.title, "notes": panel.notes}
    return {"address": data_uri(draw(panel.draw, look), kind), **texts}


def with_image(address: str, text: str) -> str:
    """Return a small image and a text for a cell of a table."""
    return Markup('<img src="{}" alt=""> {}').format(address, text)
