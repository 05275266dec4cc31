"""SelectRequest: the options of `smdl select`."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class SelectRequest:
    """What the user asks for: the options of `smdl select`."""

    inputs: tuple[str, ...]
    out: Path = Path("chosen.csv")
    size: int | tuple[int, ...] | None = None
    fraction: float | None = None
    objective: str | Mapping[str, Any] = "facility_location"
    features: tuple[str, ...] = ()
    text: str | None = None
    model: str | None = None
    labels: str | None = None
    probabilities: str | None = None
    groups: str | None = None
    ids: str | None = None
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
    threads: int | None = None
    skip_nan: bool = False
    shuffled: bool = False
    spreadsheet_safe: bool = False
    force: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of rows to choose, ascending: the choice of each is the beginning of the next one."""
        given = (self.size,) if isinstance(self.size, int) else self.size or ()
        return tuple(sorted(set(given)))

    def out_of(self, size: int) -> Path:
        """Return the output of a size: chosen-100.csv beside chosen.csv, which has the largest one."""
        return self.out if size == max(self.sizes) else self.out.with_name(f"{self.out.stem}-{size}{self.out.suffix}")

    @property
    def folder(self) -> Path:
        """The folder of partial results and the report: chosen.select beside chosen.parquet."""
        return self.out.with_name(f"{self.out.stem}.select")


def settings_of(request: Any) -> dict[str, Any]:
    """Return the options that are not at their defaults, as a report shows them."""
    given = {entry.name: getattr(request, entry.name) for entry in fields(request)}
    defaults = {entry.name: entry.default for entry in fields(request)}
    shown = {name: value for name, value in given.items() if value != defaults[name]}
    return {name: value if isinstance(value, int | float) else _text(value) for name, value in shown.items()}


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
