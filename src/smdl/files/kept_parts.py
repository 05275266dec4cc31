"""The work folder beside the output: results of parts, each under a checksum and the key of its plan."""

import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.storage import DamagedFileError, disk_errors, locked, read_sealed, write_sealed
from smdl.files.job import ChosenPart


@contextmanager
def work_folder(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock."""
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        yield


def key_of(*parts: Any) -> str:
    """Return a key that changes with any of these values."""
    return hashlib.sha256(json.dumps(parts, default=_plain, sort_keys=True).encode()).hexdigest()


def write_arrays(path: Path, kind: str, arrays: Mapping[str, Any]) -> None:
    """Write arrays under a checksum and the kind of the file, atomically."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    write_sealed(path, file.getvalue(), kind)


def read_arrays(path: Path, kind: str) -> dict[str, np.ndarray] | None:
    """Return what `write_arrays` wrote, or None if it is missing, damaged or of another kind."""
    try:
        payload = read_sealed(path, kind)
    except (FileNotFoundError, DamagedFileError):
        return None
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        return dict(arrays)


def records_of(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a JSONL file, without one that a kill has cut."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        with suppress(json.JSONDecodeError):
            found.append(json.loads(line))
    return found


class KeptParts:
    """Results that are kept for the next start of the same command. Those of another plan are removed."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.kind = folder, f"smdl-select {key}"
        with disk_errors(folder):
            for path in folder.glob("part-*"):
                if read_arrays(path, self.kind) is None:
                    path.unlink()

    def read(self, level: int, number: int) -> ChosenPart | None:
        """Return a result, or None if it is missing or damaged."""
        found = read_arrays(self._path(level, number), self.kind)
        if found is None:
            return None
        return ChosenPart(found["rows"], found["gains"], float(found["recall"]), found["shares"])

    def write(self, level: int, number: int, part: ChosenPart) -> None:
        """Keep a result."""
        write_arrays(self._path(level, number), self.kind, part._asdict())

    def _path(self, level: int, number: int) -> Path:
        return self.folder / f"part-{level}-{number}"


def _plain(value: Any) -> Any:
    """Return an array as its checksum, other values as JSON can hold them."""
    if isinstance(value, np.ndarray):
        return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
    return dict(value) if hasattr(value, "keys") else str(value)
