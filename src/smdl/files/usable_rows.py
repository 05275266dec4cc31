"""UsableRows: the input of a command on rows, opened, embedded and checked."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from smdl.common.local_engine import Engine, Local
from smdl.common.progress import Display
from smdl.engine.unit_rows import unusable
from smdl.files.checks import NO_TEXT, NOT_FINITE, bad_rows, check_text_and_model, check_usable, not_finite
from smdl.files.embedding import Embedder
from smdl.files.images import LISTING, ImageRows, check_images, open_images
from smdl.files.request import RowInput
from smdl.files.rows import Rows, open_rows
from smdl.files.texts import TextRows, open_text

#: What is wrong with rows that have no direction.
NO_DIRECTION = "numbers that, as float32, are not finite or zeros alone"


def open_input(request: RowInput, roles: Mapping[str, str | None], folder: Path, keep: bool = False) -> Rows:
    """Open rows with features, texts, or a folder of images. Embeddings are kept in `folder`, and with `keep` its list
    of images."""
    inputs, embeddings = request.inputs, str(folder / "embeddings.npy")
    given = request.model is not None and request.text is None and not request.features
    if given and len(inputs) == 1 and Path(inputs[0]).is_dir():
        return open_images(inputs[0], folder / LISTING, keep, roles, embeddings)
    check_text_and_model(request.text, request.model, request.features)
    if request.text is None:
        return open_rows(inputs, request.features, roles)
    return open_text(inputs, request.text, roles, embeddings)


class UsableRows:
    """Rows of a command. Texts and images are embedded by `load`. With `directions`, rows are compared by direction,
    else they need only be finite."""

    def __init__(self, rows: Rows, request: RowInput, directions: bool = True) -> None:
        self.rows, self.request, self.embedder = rows, request, None
        if directions and rows.width == 1:
            raise ValueError(
                f"rows are compared by their direction, so they need at least two numbers, got one column:"
                f" {rows.features[0]}. Name the features by --features, or texts by --text and --model"
            )
        self.find, self.fault = (unusable, NO_DIRECTION) if directions else (not_finite, NOT_FINITE)

    def use_model(self) -> None:
        """Load the model of texts or images. Everything that needs no model is checked before."""
        if isinstance(self.rows, TextRows):
            self.embedder = Embedder(str(self.request.model), self.rows)
            self.rows = self.embedder.source
            self.fault = self.fault if isinstance(self.rows, ImageRows) else f"{NO_TEXT}, or {self.fault}"

    def load(self, display: Display, engine: Engine | None = None) -> np.ndarray:
        """Embed the texts, and return the rows that can be used."""
        self.check_texts(display)
        self.embed(display)
        return self.usable(display, engine or Local())

    def check_texts(self, display: Display) -> np.ndarray:
        """Return the rows without text."""
        if self.embedder is None:
            return np.empty(0, np.int64)
        display.phase(f"checking the {self._what}")
        return check_usable(self.rows, self.embedder.source.without_text(), NO_TEXT, self.request.skip_nan)

    def embed(self, display: Display) -> None:
        """Write the embeddings of all texts or images."""
        if self.embedder is not None:
            display.phase(f"embedding the {self._what}")
            self.embedder.write(display)

    def usable(self, display: Display, engine: Engine) -> np.ndarray:
        """Return the rows that can be used. Rows without text have no embedding."""
        display.phase("checking the input")
        count, found = len(self.rows.shards), dict[int, np.ndarray]()
        for number, rows in engine.run(bad_rows, self.rows, {n: (n, self.find) for n in range(count)}):
            found[number] = rows
            display.step("checking the input, file", len(found), count)
        if isinstance(self.rows, ImageRows) and not self.request.skip_nan:
            check_images(self.rows, found[0])
        dropped = check_usable(self.rows, [found[n] for n in range(count)], self.fault, self.request.skip_nan)
        if len(dropped):
            display.note(f"{len(dropped):,} rows with {self.fault} are left out")
        if len(dropped) == len(self.rows):
            raise ValueError(f"no row is left: all {len(self.rows):,} rows have {self.fault}")
        return np.setdiff1d(np.arange(len(self.rows)), dropped, assume_unique=True)

    @property
    def _what(self) -> str:
        return "images" if isinstance(self.rows, ImageRows) else "texts"
