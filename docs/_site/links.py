"""A hook of MkDocs: pages link to files outside of docs/ only if the address of the repository is known."""

import re
from typing import Any


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Replace links that leave docs/ by links into the repository, or by their text."""
    linked = rf"[\1]({config.repo_url}/blob/main/\2)" if config.repo_url else r"\1"
    return re.sub(r"\[([^\]]+)\]\(\.\./((?:examples|src|tests)/[^)]+)\)", linked, markdown)
