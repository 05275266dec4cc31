"""UsableRows: the input of a command that compares rows by direction, opened, embedded and checked."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from smdl.common.local_engine import Engine
from smdl.common.progress import Display
from smdl.engine.unit_rows import unusable
from smdl.files.checks import NO_TEXT, NOT_FINITE, check_text_and_model, check_usable, unfinished_rows
from smdl.files.embedding import Embedder
from smdl.files.images import LISTING, ImageRows, check_images, open_images
from smdl.files.rows import Rows, open_rows
from smdl.files.texts import TextRows, open_text

#: What is wrong with rows that have no direction.
NO_DIRECTION = "numbers that, as float32, are not finite or zeros alone"


class RowRequest(Protocol):
    """The options that say what the rows are."""

    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def features(self) -> tuple[str, ...]: ...
    @property
    def text(self) -> str | None: ...
    @property
    def model(self) -> str | None: ...
    @property
    def skip_nan(self) -> bool: ...
    @property
    def folder(self) -> Path: ...


def is_image_folder(request: RowRequest) -> bool:
    """Whether the input is a folder of images: one folder, and a model without a column of texts."""
    given = request.model is not None and request.text is None and not request.features
    return given and len(request.inputs) == 1 and Path(request.inputs[0]).is_dir()


class UsableRows:
    """Rows of files. Texts and images are embedded by `load`, into the folder of the request."""

    def __init__(self, request: RowRequest, roles: Mapping[str, str | None]) -> None:
        self.request, self.embedder = request, None
        if is_image_folder(request):
            self.rows: Rows = open_images(
                request.inputs[0], request.folder / LISTING, False, roles, str(request.folder / "embeddings.npy")
            )
            return
        check_text_and_model(request.text, request.model, request.features)
        if request.text is None:
            self.rows = open_rows(request.inputs, request.features, roles)
            return
        source = open_text(request.inputs, request.text, roles, str(request.folder / "embeddings.npy"))
        self.rows = source

    def use_model(self) -> None:
        """Load the model of texts or images. Everything that needs no model is checked before."""
        if isinstance(self.rows, TextRows):
            self.embedder = Embedder(str(self.request.model), self.rows)
            self.rows = self.embedder.source

    def load(self, display: Display, engine: Engine) -> np.ndarray:
        """Embed the texts, and return the rows that can be compared."""
        dropped = np.empty(0, np.int64) if self.embedder is None else self._embed(self.embedder, display)
        display.phase("checking the input")
        dropped = np.union1d(dropped, self._unusable(dropped, display, engine))
        if len(dropped):
            display.note(f"{len(dropped)} rows with {NO_DIRECTION} are left out")
        return np.setdiff1d(np.arange(len(self.rows)), dropped, assume_unique=True)

    def _embed(self, embedder: Embedder, display: Display) -> np.ndarray:
        what = "images" if isinstance(self.rows, ImageRows) else "texts"
        display.phase(f"checking the {what}")
        dropped = check_usable(self.rows, embedder.empty_texts(), NO_TEXT, self.request.skip_nan)
        display.phase(f"embedding the {what}")
        embedder.write(display)
        return dropped

    def _unusable(self, known: np.ndarray, display: Display, engine: Engine) -> np.ndarray:
        count, found = len(self.rows.shards), dict[int, np.ndarray]()
        for number, rows in engine.run(rows_without_direction, self.rows, {n: (n,) for n in range(count)}):
            found[number] = np.setdiff1d(rows, known - self.rows.offsets[number])
            display.step("checking the input, file", len(found), count)
        bad = [found[number] for number in range(count)]
        if isinstance(self.rows, ImageRows) and not self.request.skip_nan:
            check_images(self.rows, bad[0])
        return check_usable(self.rows, bad, NO_DIRECTION, self.request.skip_nan)


def row_check(dedup: float | None) -> tuple[Callable[[Rows, int], np.ndarray], str]:
    """Return what finds the rows of a shard that a choice cannot use, and what is wrong with them."""
    return (unfinished_rows, NOT_FINITE) if dedup is None else (rows_without_direction, NO_DIRECTION)


def rows_without_direction(source: Rows, number: int) -> np.ndarray:
    """Return the rows of a shard that are not finite as float32, or zeros alone."""
    found, start = [np.empty(0, np.int64)], 0
    for block in source.blocks(number):
        found.append(start + unusable(block))
        start += len(block)
    return np.concatenate(found)
