"""Near-copies in files: find them once, keep one row of each group, and write which row is a copy of which."""

import io
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smdl import __version__
from smdl.common.environment import cores
from smdl.common.interrupts import Interrupted
from smdl.common.local_engine import Engine, Local
from smdl.common.messages import choice, one_of, whole_number
from smdl.common.progress import Display
from smdl.common.storage import (
    DamagedFileError,
    ProtectedOutput,
    disk_errors,
    locked,
    read_sealed,
    write_json,
    write_sealed,
)
from smdl.engine.near_copies import KEEP, CopySearch, Deduplication, threshold
from smdl.engine.similar_pairs import SimilarPairs
from smdl.engine.unit_rows import UnitRows
from smdl.files.checks import check_output
from smdl.files.engines import ENGINES
from smdl.files.file_features import features_for, features_of
from smdl.files.kept_parts import key_of
from smdl.files.output import Table, marked_table, table_bytes
from smdl.files.outside_rows import OutsideRows, input_record, open_against
from smdl.files.request import settings_of
from smdl.files.rows import Rows
from smdl.files.snapshot import places
from smdl.files.texts import TextRows
from smdl.files.usable_rows import UsableRows

#: Raise it when the same request may find other pairs.
RULES = 1
#: Pairs on the page at each side of the threshold; largest groups that it lists.
PAIRS, GROUPS = 12, 12
#: Points of the curve of rows kept over the threshold.
POINTS = 21


@dataclass(frozen=True)
class DedupRequest:
    """What the user asks for: the options of `smdl dedup`."""

    inputs: tuple[str, ...]
    out: Path = Path("kept.csv")
    similarity: float = 0.95
    features: tuple[str, ...] = ()
    text: str | None = None
    model: str | None = None
    ids: str | None = None
    keep: str = "central"
    keep_by: str | None = None
    against: tuple[str, ...] = ()
    seed: int = 0
    engine: str = "local"
    threads: int | None = None
    skip_nan: bool = False
    spreadsheet_safe: bool = False
    force: bool = False

    @property
    def folder(self) -> Path:
        """The folder of neighbours and the report: kept.dedup beside kept.parquet."""
        return self.out.with_name(f"{self.out.stem}.dedup")


class Deduplicator:
    """A request with its input opened and checked. Nothing long has happened yet, and nothing was written."""

    def __init__(self, request: DedupRequest) -> None:
        self.request = request
        threshold(request.similarity)
        one_of("keep", request.keep, KEEP)
        one_of("engine", request.engine, ENGINES)
        whole_number("seed", request.seed, least=0)
        if request.threads is not None and request.threads > cores():
            raise ValueError(choice("threads", request.threads, f"at most the {cores()} cores of this machine"))
        if not request.out.name:
            raise ValueError(choice("--out", str(request.out), "a file"))
        self.input = UsableRows(request, {"ids": request.ids, "keep_by": request.keep_by})
        self.output = ProtectedOutput(request.out, request.folder, request.force)
        check_output(self.output, request.folder, self.rows, request.inputs)
        self.prefer = self._prefer()
        self.input.use_model()
        self.against: OutsideRows | None = None
        if request.against:
            given = (request.against, request.features, self.rows, self.input.embedder, request.out)
            self.against = open_against(*given)

    @property
    def rows(self) -> Rows:
        return self.input.rows

    def run(self, display: Display) -> dict[str, Any]:
        """Find the near-copies, and write the output. Return the numbers that the page shows."""
        request, started = self.request, time.perf_counter()
        if request.threads:
            torch.set_num_threads(request.threads)
        engine = ENGINES[request.engine]()
        try:
            with disk_errors(request.folder):
                request.folder.mkdir(parents=True, exist_ok=True)
            with locked(request.folder):
                stamps = self.rows.stamps()
                used = self.input.load(display, engine)
                display.phase("looking for near-copies")
                found = search_copies(
                    self.rows, used, request.similarity, request.folder, display, request.keep,
                    None if self.prefer is None else self.prefer[used],
                    None if self.against is None else self.against.features, request.seed, engine,
                )  # fmt: skip
                for number, stamp in enumerate(stamps):
                    self.rows.check_stamp(number, stamp)
                table = self._table(found, used)
                if kept := self.output.write(table_bytes(request.out, self._shown(table, used[found.kept]))):
                    display.note(f"{request.out} was changed after it was written: it is now {kept}")
                display.phase("measuring")
                numbers = self._numbers(found, used, time.perf_counter() - started)
                numbers["input"] = input_record(self.rows, self.input.embedder)
                write_json(request.folder / "dedup.json", numbers, checksum=True)
                return numbers
        except KeyboardInterrupt:
            raise Interrupted(signal.SIGINT, "the same command") from None
        finally:
            engine.close()

    def _prefer(self) -> np.ndarray | None:
        """Return the numbers by which a row of a group is kept."""
        if "keep_by" not in self.rows.columns:
            return None
        found = self.rows.column("keep_by")
        if found.dtype.kind not in "fiub" or not np.isfinite(found).all():
            raise ValueError("--keep_by must be a column of finite numbers")
        return found.astype(np.float64)

    def _table(self, found: Deduplication, used: np.ndarray) -> Table:
        """Return the columns of the output, one line per row that was compared."""
        shards, inside = self.rows.place(used)
        kept = np.zeros(len(used), bool)
        kept[found.kept] = True
        copy = ~kept & (found.copy_of >= 0)
        groups = np.searchsorted(found.kept, found.copy_of)
        table: Table = {
            "index": used,
            "shard": np.array([self.rows.shards[shard].path for shard in shards], dtype=str),
            "row": inside,
            "kept": kept,
            "group": _optional(groups, found.copy_of >= 0),
            "copy_of": _optional(used[found.copy_of], copy),
            "similarity": _optional(found.similarity, ~kept),
        }
        if self.against is not None:
            leaks = found.against >= 0
            for name, values in (("against", self.against.files), ("copy_of_against", self.against.rows)):
                table[name] = np.full(len(used), None, object)
                table[name][leaks] = values[found.against[leaks]].tolist()
        if "ids" in self.rows.columns:
            table["id"] = self.rows.values("ids", used)
        if isinstance(self.rows, TextRows):
            table["text"] = np.array([*self.rows.texts_at(used), None], object)[:-1]
        return table

    def _shown(self, table: Table, kept: np.ndarray) -> Table:
        if self.request.out.suffix == ".npy":
            return {"index": kept}
        return marked_table(table) if self.request.spreadsheet_safe and self.request.out.suffix == ".csv" else table

    def _numbers(self, found: Deduplication, used: np.ndarray, seconds: float) -> dict[str, Any]:
        thresholds, counts = found.curve(POINTS)
        sizes = np.bincount(found.copy_of[found.copy_of >= 0], minlength=len(used))
        largest = np.argsort(-sizes, kind="stable")[:GROUPS]
        return {
            "title": f"{len(found.kept):,} of {len(self.rows):,} rows kept",
            "rows": len(self.rows),
            "left_out": len(self.rows) - len(used),
            "kept": len(found.kept),
            "copies": int((found.copy_of >= 0).sum()) - len(found.kept),
            "leaks": int((found.against >= 0).sum()) if self.against is not None else None,
            "threshold": found.threshold,
            "floor": found.floor,
            "recall": None if np.isnan(found.recall) else found.recall,
            "seconds": seconds,
            "settings": settings_of(self.request),
            "curve": {"similarity": thresholds.tolist(), "kept": counts.tolist()},
            "groups": [
                {"row": place, "rows": int(sizes[row])}
                for place, row in zip(places(self.rows, used[largest]), largest, strict=True)
                if sizes[row] > 1
            ],
            **{
                name: self._pairs(pairs, used)
                for name, pairs in zip(("above", "below"), found.pairs(PAIRS), strict=True)
            },
        }

    def _pairs(self, pairs: np.ndarray, used: np.ndarray) -> list[dict[str, Any]]:
        if not len(pairs):
            return []
        one, two = (used[pairs[:, side]] for side in (0, 1))
        both = [UnitRows([features_of(self.rows, rows)])[slice(0, len(rows))] for rows in (one, two)]
        values = (both[0] * both[1]).sum(dim=1)
        shown = zip(places(self.rows, one), places(self.rows, two), values.tolist(), strict=True)
        return [{"row": row, "other": other, "similarity": value} for row, other, value in shown]


def search_copies(
    rows: Rows,
    used: np.ndarray,
    similarity: float,
    folder: Path,
    display: Display,
    keep: str = "central",
    prefer: np.ndarray | None = None,
    against: np.ndarray | None = None,
    seed: int = 0,
    engine: Engine | None = None,
) -> Deduplication:
    """Find near-copies among the used rows of files. The neighbours are kept in the folder: another threshold above
    their floor needs no other search. The engine changes no neighbour."""
    engine = engine or Local()
    key = key_of(__version__, RULES, rows.fingerprint(), used, keep, prefer, against, seed)
    features = features_for(rows, used, travels=not isinstance(engine, Local))
    floor, pairs = _read_pairs(folder / "neighbours", key, similarity)
    if pairs is not None:
        display.note("the neighbours are kept from an earlier search")
    search = CopySearch.run(features, similarity, floor, against, keep, prefer, seed, display.step, pairs, engine)
    if pairs is None:
        file = io.BytesIO()
        np.savez(file, floor=search.floor, **search.pairs._asdict())
        write_sealed(folder / "neighbours", file.getvalue(), f"smdl-neighbours {key}")
    return search.resolve(similarity)


def _read_pairs(path: Path, key: str, similarity: float) -> tuple[float | None, SimilarPairs | None]:
    """Return the pairs of an earlier search and their floor, if the threshold is not below it."""
    try:
        payload = read_sealed(path, f"smdl-neighbours {key}")
    except (FileNotFoundError, DamagedFileError):
        return None, None
    with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    floor = float(found.pop("floor"))
    if floor > similarity:
        return None, None
    return floor, SimilarPairs(**{**found, "recall": float(found["recall"])})


def _optional(values: Sequence[Any] | np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return values as objects, None where there is none."""
    found = np.empty(len(given), object)
    found[given] = np.asarray(values)[given].tolist()
    return found
