"""A folder of images as rows, with a feature extractor of the user: a function of Python, images -> features."""

import base64
import csv
import inspect
import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.factory import load_object
from smdl.common.storage import disk_errors, write_bytes
from smdl.files.kept_parts import key_of
from smdl.files.texts import DTYPE, TextRows, open_text

#: Files that count as images. Others are passed over.
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
#: Images that the function gets at once.
BATCH = 32
#: The table of the images of a folder, in the folder of the command's results.
LISTING = "images.csv"


@dataclass(frozen=True)
class ImageRows(TextRows):
    """A list of images, a table with the columns `image` (path below `root`) and `folder` (the folder it is in)."""

    root: str = ""

    def paths_at(self, rows: np.ndarray) -> list[Path]:
        """Return the files of rows that ascend."""
        return [Path(self.root) / name for name in self.texts_at(rows)]

    @cached_property
    def stamps_of_images(self) -> str:
        """What changes if an image is added, removed or written again."""
        paths = self.paths_at(np.arange(len(self)))
        found = (path.stat() if path.is_file() else None for path in paths)
        times = [stat and (stat.st_size, stat.st_mtime_ns) for stat in found]
        return key_of([str(path.absolute()) for path in paths], times)

    def fingerprint(self) -> list[Any]:
        return [*super().fingerprint(), self.stamps_of_images]

    def content(self) -> list[Any]:
        return [self.model, self.stamps_of_images]


def open_images(root: str, listing: Path, keep: bool, columns: Mapping[str, str | None], path: str) -> ImageRows:
    """List the images below a folder in a table, and open it. With `keep`, a list that is there stays as it is."""
    if not (keep and listing.is_file()):
        content = _listing(Path(root))
        if not listing.is_file() or listing.read_bytes() != content:
            with disk_errors(listing):
                listing.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(listing, content)
    found = open_text([str(listing)], "image", columns, path)
    return ImageRows(found.shards, found.features, found.columns, path, root=root)


def check_images(source: ImageRows, bad: np.ndarray) -> None:
    """Refuse rows that cannot be used, by the names of their files."""
    if len(bad):
        names = ", ".join(map(str, source.paths_at(bad[:5])))
        raise ValueError(
            f"{len(bad)} images cannot be read, or have features that are not finite or zeros alone: {names}."
            " Repair them, or leave them out by --skip_nan"
        )


def image_paths(root: Path) -> list[Path]:
    """Return the images below a folder, without its own name, in the order of their names."""
    paths = sorted(
        path.relative_to(root)
        for path in root.rglob("*")
        if path.suffix.lower() in SUFFIXES and path.is_file() and not path.name.startswith(".")
    )
    if not paths:
        raise ValueError(f"{root} holds no images: files that end in {', '.join(SUFFIXES)}")
    return paths


def _listing(root: Path) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "folder"])
    writer.writerows([path.as_posix(), path.parent.name] for path in image_paths(root))
    return text.getvalue().encode()


class ImageModel:
    """A function `package.module:function` of the user: a list of RGB images of PIL -> (n, D) numbers."""

    longest = None  # as of a model of texts: all of an image is read

    def __init__(self, name: str, source: ImageRows) -> None:
        self.folder, self._root = name, Path(source.root)
        self._function = _find(name)
        file = inspect.getsourcefile(inspect.unwrap(self._function))
        stamp = os.stat(file) if file and os.path.isfile(file) else None
        self.key = key_of([name, None if stamp is None else [stamp.st_size, stamp.st_mtime_ns]])
        self.width = self._first_width(source)

    def embed(self, texts: Sequence[str | None]) -> np.ndarray:
        """Return one vector per image, (N, width). An image that cannot be read has a vector of NaN."""
        out = np.full((len(texts), self.width), np.nan, DTYPE)
        for start in range(0, len(texts), BATCH):
            opened = {}
            for place, text in enumerate(texts[start : start + BATCH], start):
                if (image := _opened(self._root / str(text))) is not None:
                    opened[place] = image
            if opened:
                found = self._call(list(opened.values()))
                if found.shape[1] != self.width:
                    raise ValueError(
                        f"--model {self.folder} returned {self.width} numbers per image, then {found.shape[1]}"
                    )
                out[list(opened)] = found
        return out

    def _first_width(self, source: ImageRows) -> int:
        for text in source.texts():
            if (image := _opened(self._root / str(text))) is not None:
                return self._call([image]).shape[1]
        raise ValueError(f"none of the {len(source)} images below {self._root} can be read")

    def _call(self, images: list[Any]) -> np.ndarray:
        found = self._function(images)
        found = found.detach().cpu().numpy() if hasattr(found, "detach") else np.asarray(found)
        if found.ndim != 2 or len(found) != len(images) or found.dtype.kind not in "fiu":
            raise ValueError(
                f"--model {self.folder} must return one row of numbers per image, ({len(images)}, D),"
                f" got {found.dtype} of shape {found.shape}"
            )
        largest = float(np.abs(found[np.isfinite(found)]).max(initial=0.0))
        if largest > float(np.finfo(DTYPE).max):
            raise ValueError(f"--model {self.folder} must return numbers up to 65504, got {largest:g}: divide them")
        return found.astype(DTYPE)


def thumbnail(path: Path, side: int = 96) -> str:
    """Return a small image as a data URI; nothing if the file cannot be read."""
    image = _opened(path)
    if image is None:
        return ""
    image.thumbnail((side, side))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"


def _opened(path: Path) -> Any:
    """Return an RGB image; None if the file cannot be read as one."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return image.convert("RGB")
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None


def _find(name: str) -> Callable[[list[Any]], Any]:
    if not all(name.partition(":")):
        raise ValueError(
            f"for a folder of images, --model is a function of Python, package.module:function, got {name!r}:"
            " a list of PIL images -> one row of features per image"
        )
    try:
        found = load_object(name, "--model")
    except ImportError as error:
        raise ValueError(f"--model {name} cannot be imported: {error}") from error
    if not callable(found):
        raise ValueError(f"--model {name} must be a function, got a {type(found).__name__}")
    return found
