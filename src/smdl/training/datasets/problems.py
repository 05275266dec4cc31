"""Errors of data sets."""

from pathlib import Path


class DataError(ValueError):
    """A data set is missing or invalid. The message says which one, and the remedy."""


class DamagedError(DataError):
    """A file exists and cannot be read."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(f"{path} is damaged: {problem}")
        self.path = path
