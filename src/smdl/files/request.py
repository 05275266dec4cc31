"""Requests: the options of the commands on rows of files."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

from smdl.common.environment import cores
from smdl.common.messages import choice, whole_number


@dataclass(frozen=True)
class RowInput:
    """The options that say what the rows are."""

    inputs: tuple[str, ...]
    _: KW_ONLY
    features: tuple[str, ...] = ()
    text: str | None = None
    model: str | None = None
    ids: str | None = None
    skip_nan: bool = False


@dataclass(frozen=True)
class RowRequest(RowInput):
    """The options of every command that writes a table about rows."""

    command: ClassVar[str]

    out: Path = Path("rows.csv")
    _: KW_ONLY
    threads: int | None = None
    spreadsheet_safe: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if self.threads is not None and whole_number("threads", self.threads) > cores():
            raise ValueError(choice("threads", self.threads, f"at most the {cores()} cores of this machine"))
        if not self.out.name:
            raise ValueError(choice("--out", str(self.out), "a file"))

    @property
    def folder(self) -> Path:
        """The folder of partial results and the report: chosen.select beside chosen.parquet."""
        return self.out.with_name(f"{self.out.stem}.{self.command}")

    def settings(self) -> dict[str, Any]:
        """Return the options that are not at their defaults, as a report shows them."""
        given = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        shown = {entry.name: given[entry.name] for entry in fields(self) if given[entry.name] != entry.default}
        return {name: value if isinstance(value, int | float) else _text(value) for name, value in shown.items()}


@dataclass(frozen=True)
class SelectRequest(RowRequest):
    """What the user asks for: the options of `smdl select`."""

    command = "select"

    out: Path = Path("chosen.csv")
    size: int | tuple[int, ...] | None = None
    fraction: float | None = None
    objective: str | Mapping[str, Any] = "facility_location"
    labels: str | None = None
    probabilities: str | None = None
    groups: str | None = None
    costs: str | None = None
    utility: str | None = None
    importance: str | None = None
    per_group: int | None = None
    shares: str | None = None
    at_least: int | None = None
    budget: float | None = None
    exclude: str | None = None
    initial: str | None = None
    query: str | None = None
    away_from: str | None = None
    dedup: float | None = None
    partitions: int | None = None
    seed: int = 0
    engine: str = "local"
    shuffled: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of rows to choose, ascending: the choice of each is the beginning of the next one."""
        given = (self.size,) if isinstance(self.size, int) else self.size or ()
        return tuple(sorted(set(given)))

    def out_of(self, size: int) -> Path:
        """Return the output of a size: chosen-100.csv beside chosen.csv, which has the largest one."""
        return self.out if size == max(self.sizes) else self.out.with_name(f"{self.out.stem}-{size}{self.out.suffix}")


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
