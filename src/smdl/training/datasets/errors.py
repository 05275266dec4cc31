"""What can be wrong with data."""

from pathlib import Path


class DataError(ValueError):
    """Data that is missing, or is not what it should be; the message says which and what to do."""


class DamagedError(DataError):
    """A file that is there and cannot be read."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} is damaged: {problem}")
        self.path = path
