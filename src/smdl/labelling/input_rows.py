"""The input of a labelling project: rows of files with features, or texts or images that a model embeds."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.progress import Display
from smdl.engine.near_copies import threshold
from smdl.files.checks import NO_TEXT, check_usable
from smdl.files.dedup import search_copies
from smdl.files.embedding import Embedder
from smdl.files.images import LISTING, ImageRows, check_images, open_images
from smdl.files.rows import Rows, open_rows
from smdl.files.rows_beside import are_beside, open_beside
from smdl.files.texts import TextRows, open_text
from smdl.files.usable_rows import row_check
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
    dedup: float | None = None


class InputRows:
    """Opened rows. After `load`, `features` are those of the rows `kept`, which are all unless some are left out."""

    features: np.ndarray
    kept: np.ndarray

    def __init__(self, path: Path, settings: LabelSettings, keep: bool = False) -> None:
        """Open and check the files. Embeddings are kept in the folder `path`, and with `keep` its list of images."""
        self.settings, self.path = settings, path
        roles = {"ids": settings.ids, "labels": settings.labels}
        self.embedder: Embedder | None = None
        if settings.dedup is not None:
            threshold(settings.dedup)
        if len(settings.inputs) == 1 and Path(settings.inputs[0]).is_dir():
            self._open_images(settings.inputs[0], roles, keep)
            return
        if settings.model is None:
            self._open_features(roles)
            return
        if settings.text is None:
            raise ValueError("--model embeds texts: add --text with their column, or leave out --model")
        if settings.features:
            raise ValueError("--features and --model both make features: leave out one of them")
        source = open_text(settings.inputs, settings.text, roles, str(path / "embeddings.npy"))
        self.embedder = Embedder(settings.model, source)
        self.source = self.embedder.source

    def _open_features(self, roles: dict[str, str | None]) -> None:
        """Open rows with features of their own. A column of text is for people alone."""
        inputs, features, text = self.settings.inputs, self.settings.features, self.settings.text
        if text is not None and not features:
            raise ValueError(
                f"--text {text} needs features: give --model to embed the texts, or --features with the columns or the"
                " file of embeddings that you have"
            )
        roles = {**roles, "text": text}
        self.source: Rows = (
            open_beside(inputs, features[0], roles) if are_beside(features) else open_rows(inputs, features, roles)
        )

    def _open_images(self, root: str, roles: dict[str, str | None], keep: bool) -> None:
        if self.settings.model is None or self.settings.text or self.settings.features:
            raise ValueError(
                f"{root} is a folder: give --model package.module:function that makes features of its images,"
                " and neither --text nor --features"
            )
        source = open_images(root, self.path / LISTING, keep, roles, str(self.path / "embeddings.npy"))
        self.embedder = Embedder(self.settings.model, source)
        self.source = self.embedder.source

    def load(self, display: Display) -> None:
        """Embed the texts or images, and find the rows that can be used."""
        source, skip = self.source, self.settings.skip_nan
        empty = [np.empty(0, np.int64) for _ in source.shards]
        what = "images" if isinstance(source, ImageRows) else "texts"
        if self.embedder is not None:
            display.phase(f"checking the {what}")
            empty = self.embedder.empty_texts()
            check_usable(source, empty, NO_TEXT, skip)
            display.phase(f"embedding the {what}")
            self.embedder.write(display)
        display.phase("checking the input")
        find, fault = row_check(self.settings.dedup)
        bad = [np.union1d(find(source, number), rows) for number, rows in enumerate(empty)]
        if isinstance(source, ImageRows) and not skip:
            check_images(source, bad[0])
        dropped = check_usable(source, bad, fault, skip)
        if len(dropped):
            display.note(f"{len(dropped):,} rows that cannot be used are left out")
        self.kept = np.setdiff1d(np.arange(len(source)), dropped)
        if self.settings.dedup is not None:
            self._leave_out_copies(display)
            dropped = np.setdiff1d(np.arange(len(source)), self.kept)
        whole = source.whole()
        self.features = whole if len(dropped) == 0 else whole[self.kept]

    def _leave_out_copies(self, display: Display) -> None:
        """Keep one row of each group of near-copies: one with a label, if there is one."""
        display.phase("looking for near-copies")
        prefer = None
        if "labels" in self.source.columns:
            given = self.source.column("labels")[self.kept].tolist()
            prefer = np.array([float(str(value).strip() not in ("", "nan")) for value in given])
        similarity = float(self.settings.dedup or 1)
        found = search_copies(self.source, self.kept, similarity, self.path, display, prefer=prefer)
        display.note(f"{len(self.kept) - len(found.kept):,} near-copies are left out")
        self.kept = self.kept[np.sort(found.kept)]

    def digests(self) -> dict[str, str]:
        """Return a checksum of every column that people see or that gives labels: it moves if rows change places."""
        columns = {role: self.source.column(role).tolist() for role in self.source.columns}
        if isinstance(self.source, TextRows):
            columns["text"] = self.source.texts()
        return {role: _digest(values) for role, values in columns.items()}

    def lines(self, rows: list[int]) -> list[Line]:
        """Return what a person needs to see of rows of the input, in this order."""
        order = np.argsort(rows)
        ascending = np.array(rows, np.int64)[order]
        lines: list[Line] = [{"row": int(row)} for row in rows]
        if "ids" in self.source.columns:
            for place, value in zip(order, self.source.values("ids", ascending).tolist(), strict=True):
                lines[place]["id"] = value
        if isinstance(self.source, TextRows):
            shown_as, texts = "image" if isinstance(self.source, ImageRows) else "text", self.source.texts_at(ascending)
        else:
            shown_as, texts = "text", self._texts_at(ascending)
        for place, text in zip(order, texts, strict=False):
            lines[place][shown_as] = text
        return lines

    def _texts_at(self, ascending: np.ndarray) -> list[str]:
        if "text" not in self.source.columns:
            return []
        return ["" if text is None else str(text) for text in self.source.values("text", ascending).tolist()]


def _digest(values: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for value in values:
        found.update(f"{value!r}\n".encode(errors="surrogatepass"))
    return found.hexdigest()[:16]
