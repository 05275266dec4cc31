"""What all pages are made of: templates, and pictures in a light and a dark theme."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from smdl.report.figures import DARK, LIGHT, Draw, Look, Theme, data_uri, png, recoloured, svg


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


def picture(panel: Panel, look: Callable[[Theme], Look]) -> dict[str, Any]:
    """Draw a panel in both themes."""
    if panel.raster:
        light, dark = (data_uri(png(panel.draw, look(theme)), "image/png") for theme in (LIGHT, DARK))
    else:
        drawing = svg(panel.draw, look(LIGHT))
        light, dark = (data_uri(each, "image/svg+xml") for each in (drawing, recoloured(drawing)))
    texts = {"alt": panel.alt, "caption": panel.caption, "title": panel.title, "notes": panel.notes}
    return {"light": light, "dark": dark, **texts}
