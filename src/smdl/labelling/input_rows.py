"""The input of a labelling project: rows of files with features, or texts or images that a model embeds."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.progress import Display
from smdl.engine.near_copies import threshold
from smdl.files.dedup import search_copies
from smdl.files.file_paths import suffix_of
from smdl.files.images import ImageRows
from smdl.files.request import RowInput
from smdl.files.rows import FORMATS, Rows, open_columns, open_rows
from smdl.files.texts import TextRows
from smdl.files.usable_rows import UsableRows, open_input
from smdl.labelling.annotation_formats import Line


@dataclass(frozen=True)
class LabelSettings(RowInput):
    """What a project is about: the input, how its rows are embedded, and how rounds are written."""

    labels: str | None = None
    format: str = "csv"
    size: int = 50
    seed: int = 0
    dedup: float | None = None


@dataclass(frozen=True)
class RowsBeside(Rows):
    """Features from their files, and the columns of a `table` with as many rows in the same order."""

    table: Rows

    def values(self, role: str, rows: np.ndarray) -> np.ndarray:
        return self.table.values(role, rows)

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), *self.table.fingerprint()]


class InputRows:
    """Opened rows. After `load`, `features` are those of the rows `kept`, which are all unless some are left out."""

    features: np.ndarray
    kept: np.ndarray

    def __init__(self, path: Path, settings: LabelSettings, keep: bool = False) -> None:
        """Open and check the files. Embeddings are kept in the folder `path`, and with `keep` its list of images."""
        self.settings, self.path = settings, path
        if settings.dedup is not None:
            threshold(settings.dedup, "--dedup")
        self._input = UsableRows(self._open(keep), settings, directions=settings.dedup is not None)
        self._input.use_model()

    @property
    def source(self) -> Rows:
        return self._input.rows

    def _open(self, keep: bool) -> Rows:
        """Open what `smdl select` takes, a folder of images, or tables with a file of features beside them."""
        inputs, features, text = self.settings.inputs, self.settings.features, self.settings.text
        roles = {"ids": self.settings.ids, "labels": self.settings.labels}
        if len(inputs) == 1 and Path(inputs[0]).is_dir():
            if self.settings.model is None or text or features:
                raise ValueError(
                    f"{inputs[0]} is a folder: give --model package.module:function that makes features of its images,"
                    " and neither --text nor --features"
                )
        elif self.settings.model is None:
            if text is not None and not features:
                raise ValueError(
                    f"--text {text} needs features: give --model to embed the texts, or --features with the columns or"
                    " the file of embeddings that you have"
                )
            roles["text"] = text  # for people alone
            if len(features) == 1 and suffix_of(features[0]) in FORMATS:
                return _open_beside(inputs, features[0], roles)
            return open_rows(inputs, features, roles)
        elif text is not None and features:
            raise ValueError("--features and --model both make features: leave out one of them")
        return open_input(self.settings, roles, self.path, keep)

    def load(self, display: Display) -> None:
        """Embed the texts or images, and find the rows that can be used."""
        self.kept = self._input.load(display)
        if self.settings.dedup is not None:
            self._leave_out_copies(display)
        whole = self.source.whole()
        self.features = whole if len(self.kept) == len(whole) else whole[self.kept]

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
        shown: dict[str, list[Any]] = {}
        if "ids" in self.source.columns:
            shown["id"] = self.source.values("ids", ascending).tolist()
        if isinstance(self.source, TextRows):
            shown["image" if isinstance(self.source, ImageRows) else "text"] = self.source.texts_at(ascending)
        elif "text" in self.source.columns:
            texts = self.source.values("text", ascending).tolist()
            shown["text"] = ["" if text is None else str(text) for text in texts]
        for name, values in shown.items():
            for place, value in zip(order, values, strict=True):
                lines[place][name] = value
        return lines


def _open_beside(paths: Sequence[str], features: str, roles: Mapping[str, str | None]) -> RowsBeside:
    """Open tables, and the file with the features of their rows."""
    shards, columns = open_columns(paths, roles)
    table, found = Rows(shards, (), columns), open_rows([features])
    if len(found) != len(table):
        raise ValueError(
            f"--features {features} must have one row per row of the input, got {len(found)} for {len(table)}"
        )
    return RowsBeside(found.shards, found.features, columns, table)


def _digest(values: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for value in values:
        found.update(f"{value!r}\n".encode(errors="surrogatepass"))
    return found.hexdigest()[:16]
