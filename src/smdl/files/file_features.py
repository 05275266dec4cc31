"""FileFeatures: the features of rows of files as an array that holds no numbers, so that a task can take it along."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from smdl.engine.unit_rows import RowArray
from smdl.files.file_paths import is_url
from smdl.files.row_files import NpyFile, SafetensorsFile
from smdl.files.rows import Rows
from smdl.files.texts import TextRows

#: Most bytes of features that are read into memory; more are written to a file, which is mapped.
IN_MEMORY = 1 << 27


@dataclass(frozen=True)
class FileFeatures:
    """Features of the `used` rows (ascending), read from their files where they are asked for."""

    source: Rows
    used: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.used), self.source.width

    def __len__(self) -> int:
        return len(self.used)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return self.source.features_at(self.used[rows])


def features_for(rows: Rows, used: np.ndarray, travels: bool, folder: Path) -> RowArray:
    """Return the features of the used rows: read from local arrays as they are needed, else read now into memory, or,
    if they are many, into a file of this folder that nobody sees. An array that travels to other processes is not a
    memory map, which would be sent with its content."""
    if len(used) == len(rows) and not travels and (rows.is_mapped or isinstance(rows, TextRows)):
        return rows.whole()
    is_array = isinstance(rows, TextRows) or (
        len(rows.features) == 1
        and all(isinstance(shard, NpyFile | SafetensorsFile) and not is_url(shard.path) for shard in rows.shards)
    )
    if is_array:
        return FileFeatures(rows, used)
    is_large = len(used) * rows.width * rows.dtype.itemsize > IN_MEMORY
    return _mapped_copy(rows, used, folder) if is_large and not travels else rows.features_at(used)


def _mapped_copy(rows: Rows, used: np.ndarray, folder: Path) -> np.ndarray:
    """Write the features of the used rows block by block, and map them. The file has no name, so that it is gone as
    soon as nothing reads it. It is written and not mapped at first: a full disk is then an error, and no crash."""
    kind, start = rows.dtype, 0
    with tempfile.TemporaryFile(dir=folder) as file:
        for number in range(len(rows.shards)):
            for block in rows.blocks(number):
                low, high = np.searchsorted(used, (start, start + len(block)))
                file.write(np.ascontiguousarray(block[used[low:high] - start], kind).data)
                start += len(block)
        file.flush()
        return np.memmap(file, kind, "r", shape=(len(used), rows.width))
