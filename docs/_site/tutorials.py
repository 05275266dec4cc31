"""A hook of MkDocs: run the tutorials, and make a page of each with its outputs and figures.

A tutorial is a notebook as text (jupytext, percent format) in docs/tutorials. `mkdocs build` runs it, and a cell that
fails stops the build. `mkdocs serve` shows the tutorials without outputs, so that a page is redrawn at once.
"""

import base64
import logging
import re
import resource
import tempfile
from pathlib import Path
from typing import Any

import jupytext
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

log = logging.getLogger("mkdocs.hooks.tutorials")
_runs = True
#: Colours of a terminal, and what a line of progress shows before its end.
_NOT_TEXT = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[^\n]*\r(?!\n)")


def on_startup(command: str, **_: Any) -> None:
    global _runs
    _runs = command != "serve"


def on_files(files: Files, config: Any) -> Files:
    """Add a page and its figures per tutorial. The notebook itself stays, to be downloaded."""
    total = 0.0
    for notebook in [file for file in files if re.fullmatch(r"tutorials/\w+\.py", file.src_uri)]:
        name = Path(notebook.src_uri).stem
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        text, figures = page(Path(notebook.abs_src_path or ""))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        total += seconds
        log.info("tutorial %s: %.0f CPU s", name, seconds)
        files.append(File.generated(config, f"tutorials/{name}.md", content=text))
        for number, figure in enumerate(figures):
            files.append(File.generated(config, f"tutorials/{name}-{number}.png", content=figure))
    log.info("tutorials together: %.0f CPU s", total)
    return files


def _joined(outputs: Any) -> list[Any]:
    """Join the parts of printed text that arrived one after the other: they are one output."""
    joined: list[Any] = []
    for output in outputs:
        if "text" in output and joined and "text" in joined[-1]:
            joined[-1] = {"text": joined[-1]["text"] + output["text"]}
        else:
            joined.append(output)
    return joined


def page(path: Path) -> tuple[str, list[bytes]]:
    """Return the Markdown of a tutorial and its figures."""
    book = jupytext.read(path, fmt="py:percent")
    if _runs:
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(book, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    figures: list[bytes] = []
    parts: list[str] = []
    for cell in book.cells:
        parts.append(cell.source if cell.cell_type == "markdown" else f"```python\n{cell.source}\n```")
        for output in _joined(cell.get("outputs", ())):
            data = output.get("data", {})
            if "image/png" in data:
                caption = re.search(r"suptitle\(\s*f?\"(.*?)\"|title\(\s*f?\"(.*?)\"", cell.source)
                words = next(filter(None, caption.groups()), "figure") if caption else "figure"
                parts.append(f"![{words}]({path.stem}-{len(figures)}.png)")
                figures.append(base64.b64decode(data["image/png"]))
            elif said := _NOT_TEXT.sub("", output.get("text") or data.get("text/plain", "")).strip("\n"):
                parts.append(f'```{{.text .output title="output"}}\n{said}\n```')
    note = f"[This page as a notebook in text form]({path.name}){{: download }}: `jupytext --to ipynb {path.name}`"
    return "\n\n".join([*parts, "---", note]), figures
