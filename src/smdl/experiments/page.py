"""Page: the pieces of an HTML report. Whatever comes from data passes through `text`; nothing is fetched."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import yaml

from smdl.experiments.theme import STYLE

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def text(value: object) -> str:
    """Anything, safe between tags and inside quotes."""
    return escape(str(value), quote=True)


def image(address: str, alt: str) -> str:
    """A picture that is its own address."""
    return f'<img src="{text(address)}" alt="{text(alt)}">'


def figure(address: str, alt: str, caption: str = "", aside: bool = False) -> str:
    """A picture and, as HTML, what to know about it: below, or beside where there is room."""
    said = f"<figcaption>{caption}</figcaption>" if caption else ""
    kind = ' class="aside"' if aside else ""
    return f"<figure{kind}>{image(address, alt)}{said}</figure>"


def panels(figures: Iterable[str]) -> str:
    """Side by side where there is room."""
    shown = "".join(figures)
    return f'<div class="panels">{shown}</div>' if shown else ""


def switch(name: str, choices: dict[str, str], chosen: str) -> str:
    """One of several panels at a time, by buttons that need no script: {what the button says: the panels}."""
    buttons = "".join(
        f'<input type="radio" name="{text(name)}" id="{text(name)}-{place}"{" checked" if said == chosen else ""}>'
        f'<label for="{text(name)}-{place}">{text(said)}</label>'
        for place, said in enumerate(choices)
    )
    return f'<div class="switch">{buttons}{"".join(choices.values())}</div>'


def legend(looks: dict[str, tuple[str, str, str]]) -> str:
    """Names and their lines: colour on a light page, colour on a dark one, solid or dashed."""
    items = (
        f'<li><i style="--light:{light};--dark:{dark};--line:{line}"></i>{text(name)}</li>'
        for name, (light, dark, line) in looks.items()
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def tiles(samples: Iterable[tuple[str, str, int]]) -> str:
    """Small pictures: (address, class, how often it was used)."""
    items = (
        f"<li>{image(address, f'a sample of class {name}, used {count} times')}"
        f'<span title="{text(name)}">{text(name)}</span><span>{count} ×</span></li>'
        for address, name, count in samples
    )
    return f'<ul class="tiles">{"".join(items)}</ul>'


def section(anchor: str, title: str, *parts: str) -> str:
    """A chapter; nothing where it would be empty."""
    body = "".join(parts)
    return f'<section id="{anchor}"><h2>{text(title)}</h2>{body}</section>' if body else ""


def listed(items: Sequence[str], kind: str) -> str:
    """Lines of text."""
    return f'<ul class="{kind}">{"".join(f"<li>{text(item)}</li>" for item in items)}</ul>' if items else ""


def details(summary: str, value: Any) -> str:
    """YAML that opens on a click."""
    dumped = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    return f"<details><summary>{text(summary)}</summary><pre>{text(dumped)}</pre></details>"


def facts(pairs: dict[str, str]) -> str:
    """Large numbers and, below each, what it is: {what it is: HTML}."""
    return f'<ul class="facts">{"".join(f"<li><b>{b}</b><span>{text(a)}</span></li>" for a, b in pairs.items())}</ul>'


def document(title: str, *parts: str) -> str:
    """The whole page. Browsers are told to run no script in it and to fetch nothing for it, whatever it holds."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )
