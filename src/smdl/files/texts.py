"""TextRows: rows with a column of text. Their features are embeddings, in a memory map of their own."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from smdl.files.file_paths import is_url, readable
from smdl.files.row_files import BLOCK
from smdl.files.rows import Rows, check_column, open_columns
from smdl.files.tables import CsvFile, TableFile

#: Type of an embedding in the map. Its values are in [-1, 1].
DTYPE = np.dtype(np.float16)


@dataclass(frozen=True)
class TextRows(Rows):
    """Tables with a column of text, the only name in `features`.

    path        the memory map of the embeddings, one row per row of the source; it need not exist yet
    embedding   width of an embedding
    model       what changes if the model changes
    """

    path: str = ""
    embedding: int = 0
    model: str = ""

    @property
    def width(self) -> int:
        return self.embedding

    @property
    def dtype(self) -> np.dtype:
        return DTYPE

    def whole(self) -> np.ndarray:
        return np.load(self.path, mmap_mode="r")

    def features_at(self, rows: np.ndarray) -> np.ndarray:
        return self.whole()[rows]

    def blocks(self, number: int) -> Iterator[np.ndarray]:
        step, values = max(1, BLOCK // (self.width * DTYPE.itemsize)), self.whole()
        stop = int(self.offsets[number + 1])
        for start in range(int(self.offsets[number]), stop, step):
            yield values[start : min(stop, start + step)]

    def fingerprint(self) -> list[Any]:
        return [self.model, *super().fingerprint()]

    def content(self) -> list[Any]:
        """Return what changes if the texts or the model change, from any folder."""
        model, _, *files = replace(self, columns={}).fingerprint()
        places = [path if is_url(path) else os.path.abspath(path) for path, *_ in files]
        return [model, self.features, *([place, *rest] for place, (_, *rest) in zip(places, files, strict=True))]

    def texts(self) -> Iterator[str | None]:
        """Yield the text of every row, in order."""
        for number in range(len(self.shards)):
            yield from self._texts_of(number)

    def without_text(self) -> list[np.ndarray]:
        """Return the rows without text, per shard."""
        rows = np.array([row for row, text in enumerate(self.texts()) if not has_content(text)], np.int64)
        shards, inside = self.place(rows)
        return [inside[shards == number] for number in range(len(self.shards))]

    def texts_at(self, rows: np.ndarray) -> list[str]:
        """Return the texts of rows that ascend. What lies behind the last of them in a file is not read."""
        found, (shards, inside) = [], self.place(rows)
        for number in np.unique(shards).tolist():
            wanted = set(inside[shards == number].tolist())
            read = islice(self._texts_of(number), max(wanted) + 1)
            found += [text or "" for row, text in enumerate(read) if row in wanted]
        return found

    def _texts_of(self, number: int) -> Iterator[str | None]:
        shard = self.shards[number]
        assert isinstance(shard, TableFile)
        with readable(shard.path):
            for block in shard.texts(self.features[0]):
                yield from block


def has_content(text: str | None) -> bool:
    """Whether there is a text, and more than white space in it."""
    return text is not None and bool(text.strip())


def open_text(paths: Sequence[str], text: str, roles: Mapping[str, str | None], path: str) -> TextRows:
    """Open tables with a column of text. `path` is where the embeddings are, or will be."""
    shards, columns = open_columns(paths, roles)
    for shard in shards:
        if not isinstance(shard, TableFile):
            raise ValueError(f"--text reads a column of .parquet, .csv or .jsonl, got {shard.path}")
        check_column("text", text, (shard,))
        column = shard.columns[text]
        if not isinstance(shard, CsvFile) and (column.is_number or column.width):  # in a .csv everything is text
            raise ValueError(f"{shard.path}: --text must be a column of text, got {text} of {np.dtype(column.dtype)}")
    return TextRows(shards, (text,), columns, path)
