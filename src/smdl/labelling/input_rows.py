"""The input of a labelling project: rows of files with features, or with texts that a model embeds."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smdl.common.progress import Display
from smdl.files.checks import NO_TEXT, NOT_FINITE, check_usable, unfinished_rows
from smdl.files.embedding import Embedder
from smdl.files.rows import Rows, open_rows
from smdl.files.texts import TextRows, open_text
from smdl.labelling.annotation_formats import Line


@dataclass(frozen=True)
class LabelSettings:
    """What a project is about: the input, how its rows are embedded, and how rounds are written."""

    inputs: tuple[str, ...]
    features: tuple[str, ...] = ()
    text: str | None = None
    model: str | None = None
    ids: str | None = None
    labels: str | None = None
    format: str = "csv"
    size: int = 50
    seed: int = 0
    skip_nan: bool = False


class InputRows:
    """Opened rows. After `load`, `features` are those of the rows `kept`, which are all unless some are left out."""

    features: np.ndarray
    kept: np.ndarray

    def __init__(self, path: Path, settings: LabelSettings) -> None:
        """Open and check the files. Embeddings are kept in the folder `path`."""
        self.settings = settings
        roles = {"ids": settings.ids, "labels": settings.labels}
        self.embedder: Embedder | None = None
        if (settings.text is None) != (settings.model is None):
            raise ValueError("--text and --model belong together: give both, or neither")
        if settings.text is None:
            self.source: Rows = open_rows(settings.inputs, settings.features, roles)
            return
        if settings.features:
            raise ValueError("give --features or --text, not both")
        source = open_text(settings.inputs, settings.text, roles, str(path / "embeddings.npy"))
        self.embedder = Embedder(str(settings.model), source)
        self.source = self.embedder.source

    def load(self, display: Display) -> None:
        """Embed the texts, and find the rows that can be used."""
        source, skip = self.source, self.settings.skip_nan
        empty = [np.empty(0, np.int64) for _ in source.shards]
        if self.embedder is not None:
            display.phase("checking the texts")
            empty = self.embedder.empty_texts()
            check_usable(source, empty, NO_TEXT, skip)
            display.phase("embedding the texts")
            self.embedder.write(display)
        display.phase("checking the input")
        bad = [np.union1d(unfinished_rows(source, number), rows) for number, rows in enumerate(empty)]
        dropped = check_usable(source, bad, NOT_FINITE, skip)
        self.kept = np.setdiff1d(np.arange(len(source)), dropped)
        whole = source.whole()
        self.features = whole if len(dropped) == 0 else whole[self.kept]

    def lines(self, rows: list[int]) -> list[Line]:
        """Return what a person needs to see of rows of the input, in this order."""
        order = np.argsort(rows)
        ascending = np.array(rows, np.int64)[order]
        lines: list[Line] = [{"row": int(row)} for row in rows]
        if "ids" in self.source.columns:
            for place, value in zip(order, self.source.values("ids", ascending).tolist(), strict=True):
                lines[place]["id"] = value
        if isinstance(self.source, TextRows):
            for place, text in zip(order, self.source.texts_at(ascending), strict=True):
                lines[place]["text"] = text
        return lines
