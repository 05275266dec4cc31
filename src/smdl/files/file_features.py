"""FileFeatures: the features of rows of files as an array that holds no numbers, so that a task can take it along."""

from dataclasses import dataclass

import numpy as np

from smdl.engine.unit_rows import RowArray
from smdl.files.file_paths import is_url
from smdl.files.row_files import NpyFile, SafetensorsFile
from smdl.files.rows import Rows
from smdl.files.texts import TextRows


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


def features_for(rows: Rows, used: np.ndarray, travels: bool) -> RowArray:
    """Return the features of the used rows: read from local arrays as they are needed, else read now into memory. An
    array that travels to other processes is not a memory map, which would be sent with its content."""
    if len(used) == len(rows) and not travels and (rows.is_mapped or isinstance(rows, TextRows)):
        return rows.whole()
    is_array = isinstance(rows, TextRows) or (
        len(rows.features) == 1
        and all(isinstance(shard, NpyFile | SafetensorsFile) and not is_url(shard.path) for shard in rows.shards)
    )
    return FileFeatures(rows, used) if is_array else rows.features_at(used)
