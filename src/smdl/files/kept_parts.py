"""The work folder beside the output: results of parts, each under a checksum and the key of its plan."""

import hashlib
import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.storage import DamagedFileError, disk_errors, read_sealed, write_sealed
from smdl.files.job import ChosenPart


def key_of(*parts: Any) -> str:
    """Return a key that changes with any of these values."""
    return hashlib.sha256(json.dumps(parts, default=_plain, sort_keys=True).encode()).hexdigest()


class KeptParts:
    """Results that are kept for the next start of the same command. Those of another plan are removed."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.kind = folder, f"smdl-select {key}"
        with disk_errors(folder):
            for path in folder.glob("part-*"):
                if not self._read(path):
                    path.unlink()

    def read(self, level: int, number: int) -> ChosenPart | None:
        """Return a result, or None if it is missing or damaged."""
        payload = self._read(self._path(level, number))
        if payload is None:
            return None
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            return ChosenPart(arrays["rows"], arrays["gains"], float(arrays["recall"]))

    def write(self, level: int, number: int, part: ChosenPart) -> None:
        """Keep a result."""
        file = io.BytesIO()
        np.savez(file, **part._asdict())
        write_sealed(self._path(level, number), file.getvalue(), self.kind)

    def _path(self, level: int, number: int) -> Path:
        return self.folder / f"part-{level}-{number}"

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_sealed(path, self.kind)
        except (FileNotFoundError, DamagedFileError):
            return None


def _plain(value: Any) -> Any:
    """Return an array as its checksum, other values as JSON can hold them."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return dict(value) if hasattr(value, "keys") else str(value)
