"""Embed the texts of a source once: a memory map, written in chunks that survive a kill."""

import hashlib
import io
import os
import shutil
import time
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from smdl.common.progress import Display
from smdl.common.storage import append_line, disk_errors, write_lines
from smdl.common.units import duration, size_text
from smdl.files.checks import NO_TEXT, check_usable
from smdl.files.file_paths import readable
from smdl.files.images import ImageModel, ImageRows, image_paths
from smdl.files.kept_parts import key_of, records_of
from smdl.files.text_model import TextModel
from smdl.files.texts import DTYPE, TextRows, open_text

#: Rows of a chunk: what an interruption can lose.
CHUNK = 1024
#: Texts that are embedded to predict the time.
SAMPLE = 64
#: Suffixes of the folders whose embeddings other commands may copy.
SHARING = (".select", ".dedup", ".score", ".labels")


class Embedder:
    """A model, and a source of texts or images with the width of its embeddings."""

    def __init__(self, name: str, source: TextRows) -> None:
        self.model = ImageModel(name, source) if isinstance(source, ImageRows) else TextModel(name)
        self.source = replace(source, embedding=self.model.width, model=self.model.key)

    def explain(self) -> list[str]:
        """Describe the model, and what the embeddings cost: a few texts are embedded for that."""
        few = self.source.texts_at(np.arange(min(len(self.source), SAMPLE)))
        started = time.perf_counter()
        self.model.embed(few)
        predicted = (time.perf_counter() - started) * len(self.source) / len(few)
        size = len(self.source) * self.source.width * DTYPE.itemsize
        cut = f" of the first {self.model.longest} tokens of each text" if self.model.longest else ""
        return [f"embeddings: by {self.model.folder},{cut}; {size_text(size)} on disk, about {duration(predicted)}"]

    def features_at(self, rows: np.ndarray) -> np.ndarray:
        """Embed the texts of a few rows that ascend."""
        return self.model.embed(self.source.texts_at(rows))

    def query(self, path: str) -> np.ndarray:
        """Embed the texts of another file, in a column of the same name."""
        found = open_text([path], self.source.features[0], {}, "")
        check_usable(found, found.without_text(), NO_TEXT, skip=False)
        return self.model.embed(list(found.texts()))

    def images(self, folder: str) -> tuple[list[str], np.ndarray]:
        """Embed the images of another folder. Return their paths, too."""
        paths = [Path(folder) / path for path in image_paths(Path(folder))]
        return list(map(str, paths)), self.model.embed([str(path.absolute()) for path in paths])

    @cached_property
    def key(self) -> str:
        """What changes if the texts, the images or the model change."""
        return key_of(self.source.content(), CHUNK)

    def write(self, display: Display) -> None:
        """Write the memory map of the embeddings, unless it is complete. Chunks of an earlier start are kept if the
        model, the input and their checksums are the same, also those of outputs beside this one. The map gets its name
        once it is complete."""
        path = Path(self.source.path)
        part, log = path.with_name(f"{path.name}.part"), path.with_suffix(".jsonl")
        with disk_errors(path):
            if path.exists():
                os.replace(path, part)  # until its checksums are known to be right
            if not part.exists() or {"key": self.key} not in records_of(log):
                known = self._copied(part, display)
                if not known:
                    part.write_bytes(_header(self.source))
                write_lines(log, known or [{"key": self.key}])
            with part.open("r+b") as file:
                self._write_chunks(file, log, display)
                os.fsync(file.fileno())
            os.replace(part, path)

    def _copied(self, part: Path, display: Display) -> list[dict[str, Any]]:
        """Copy the same embeddings from the folder of another output beside this one. Return their records, by which
        every chunk is checked; none if there is no such folder. A link would change with the other file."""
        folder = part.parent
        for path in sorted(folder.parent.glob(f"*/{Path(self.source.path).name}")):
            if path.parent.suffix not in SHARING or path.parent == folder:
                continue
            with suppress(OSError, UnicodeDecodeError):  # it cannot be read, or the disk is full: the next write tells
                records = records_of(path.with_suffix(".jsonl"))
                if {"key": self.key} not in records:
                    continue
                shutil.copyfile(path, part)
                display.note(f"embeddings are copied from {path}")
                return records
        return []

    def _write_chunks(self, file: IO[bytes], log: Path, display: Display) -> None:
        source, size = self.source, CHUNK * self.source.width * DTYPE.itemsize
        start, rows = len(_header(source)), len(source)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, start + rows * size // CHUNK)  # a full disk is found now
        places = {number: start + number * size for number in range(-(-rows // CHUNK))}

        def checksum(number: int) -> str:
            file.seek(places[number])
            return hashlib.sha256(file.read(size)).hexdigest()

        kept = [each for each in records_of(log) if "key" in each or checksum(each["chunk"]) == each["sha256"]]
        write_lines(log, kept)  # without what is damaged
        done = {record["chunk"] for record in kept if "chunk" in record}
        if done:
            kept_rows = min(rows, len(done) * CHUNK)
            display.note(f"{kept_rows:,} of {rows:,} embeddings are kept from an earlier start")
        if len(done) == len(places):
            return
        texts = source.texts()
        for number in places:
            chunk = list(islice(texts, CHUNK))
            if number not in done:
                file.seek(places[number])
                file.write(self.model.embed(chunk).tobytes())
                file.flush()
                os.fsync(file.fileno())
                append_line(log, {"chunk": number, "sha256": checksum(number)})
            display.step("embedding, row", min(rows, (number + 1) * CHUNK), rows)


def read_embeddings(path: Path, key: str) -> np.ndarray:
    """Return embeddings as a memory map, if they are complete, undamaged and of this key."""
    records = records_of(path.with_suffix(".jsonl"))
    if not path.exists() or {"key": key} not in records:
        raise ValueError(
            f"the embeddings in {path} are missing, or of other rows: run the command that made them again"
        )
    with readable(str(path)):
        found = np.load(path, mmap_mode="r")
    sums = {record["chunk"]: record["sha256"] for record in records if "chunk" in record}
    for number in range(-(-len(found) // CHUNK)):
        chunk = found[number * CHUNK : (number + 1) * CHUNK]
        if sums.get(number) != hashlib.sha256(chunk.tobytes()).hexdigest():
            raise ValueError(f"{path} is damaged: run the command that made it again")
    return found


def _header(source: TextRows) -> bytes:
    """Return the beginning of the .npy file."""
    file, form = io.BytesIO(), {"descr": DTYPE.str, "fortran_order": False, "shape": (len(source), source.width)}
    np.lib.format.write_array_header_1_0(file, form)
    return file.getvalue()
