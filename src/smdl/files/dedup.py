"""Near-copies in files: find them once, keep one row of each group, and write which row is a copy of which."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smdl import __version__
from smdl.common.local_engine import Engine, Local
from smdl.common.messages import one_of, whole_number
from smdl.common.progress import Display
from smdl.common.storage import write_json
from smdl.engine.near_copies import KEEP, CopySearch, Deduplication, threshold
from smdl.engine.similar_pairs import SimilarPairs
from smdl.engine.unit_rows import UnitRows
from smdl.files.checks import checked_output, guessed_features, numbers_of
from smdl.files.earlier_outputs import input_record
from smdl.files.engines import ENGINES, running
from smdl.files.file_features import features_for
from smdl.files.kept_parts import key_of, read_arrays, work_folder, write_arrays
from smdl.files.output import Table, place_columns, shown_columns, write_output
from smdl.files.outside_rows import OutsideRows, open_against
from smdl.files.request import RowRequest
from smdl.files.rows import Rows
from smdl.files.snapshot import places
from smdl.files.usable_rows import UsableRows, open_input

#: Raise it when the same request may find other pairs.
RULES = 2
#: Pairs on the page at each side of the threshold; largest groups that it lists.
PAIRS, GROUPS = 12, 12
#: Points of the curve of rows kept over the threshold.
POINTS = 21


@dataclass(frozen=True)
class DedupRequest(RowRequest):
    """What the user asks for: the options of `smdl dedup`."""

    command = "dedup"

    out: Path = Path("kept.csv")
    similarity: float = 0.95
    keep: str = "central"
    keep_by: str | None = None
    against: tuple[str, ...] = ()
    seed: int = 0
    engine: str = "local"


class Deduplicator:
    """A request with its input opened and checked. Nothing long has happened yet, and nothing was written."""

    def __init__(self, request: DedupRequest) -> None:
        self.request = request
        threshold(request.similarity)
        one_of("keep", request.keep, KEEP)
        if request.keep != "central" and request.keep_by is not None:
            raise ValueError(f"--keep {request.keep} and --keep_by both say which row is kept: leave out one of them")
        one_of("engine", request.engine, ENGINES)
        whole_number("seed", request.seed, least=0)
        roles = {"ids": request.ids, "keep_by": request.keep_by}
        self.input = UsableRows(open_input(request, roles, request.folder), request)
        self.output = checked_output(request, self.rows)
        if request.keep_by is not None and not request.skip_nan:
            numbers_of(self.rows, "keep_by")
        self.input.use_model()
        self.against: OutsideRows | None = None
        if request.against:
            given = (request.against, bool(request.features), self.rows, self.input.embedder, request.out)
            self.against = open_against(*given)

    @property
    def rows(self) -> Rows:
        return self.input.rows

    def run(self, display: Display) -> dict[str, Any]:
        """Find the near-copies, and write the output. Return the numbers that the page shows."""
        request, started = self.request, time.perf_counter()
        for note in self._notes():
            display.note(note)
        with running(request.threads, request.engine) as engine, work_folder(request.folder):
            stamps = self.rows.stamps()
            used = self.input.load(display, engine)
            prefer = numbers_of(self.rows, "keep_by", among=used).astype(np.float64) if request.keep_by else None
            display.phase("looking for near-copies")
            found = search_copies(
                self.rows, used, request.similarity, request.folder, display, request.keep,
                prefer,
                None if self.against is None else self.against.features, request.seed, engine,
            )  # fmt: skip
            self.rows.check_stamps(stamps)
            only_kept = {"index": used[found.kept]}
            table = only_kept if request.out.suffix == ".npy" else self._table(found, used)
            write_output(self.output, table, request, display, input_record(self.rows, self.input.embedder))
            display.phase("measuring")
            numbers = self._numbers(found, used, time.perf_counter() - started)
            write_json(request.folder / "dedup.json", numbers, checksum=True)
            return numbers

    def _notes(self) -> list[str]:
        """Say which columns are the features, if no option names them."""
        is_table = self.input.embedder is None and not self.request.features
        return guessed_features(self.rows) if is_table else []

    def _table(self, found: Deduplication, used: np.ndarray) -> Table:
        """Return the columns of the output, one line per row that was compared."""
        kept = np.zeros(len(used), bool)
        kept[found.kept] = True
        copy = ~kept & (found.copy_of >= 0)
        groups = np.searchsorted(found.kept, found.copy_of)
        table = place_columns(self.rows, used) | {
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
        return table | shown_columns(self.rows, used)

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
            "settings": self.request.settings(),
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
        both = [UnitRows([self.rows.features_at(rows)])[slice(0, len(rows))] for rows in (one, two)]
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
    features = features_for(rows, used, travels=not isinstance(engine, Local), folder=folder)
    floor, pairs = _read_pairs(folder / "neighbours", key, similarity)
    if pairs is not None:
        display.note("the neighbours are kept from an earlier search")
    search = CopySearch.run(features, similarity, floor, against, keep, prefer, seed, display.step, pairs, engine)
    if pairs is None:
        write_arrays(folder / "neighbours", f"smdl-neighbours {key}", {"floor": search.floor, **search.pairs._asdict()})
    return search.resolve(similarity)


def _read_pairs(path: Path, key: str, similarity: float) -> tuple[float | None, SimilarPairs | None]:
    """Return the pairs of an earlier search and their floor, if the threshold is not below it."""
    found = read_arrays(path, f"smdl-neighbours {key}")
    if found is None:
        return None, None
    floor = float(found.pop("floor"))
    if floor > similarity:
        return None, None
    return floor, SimilarPairs(**{**found, "recall": float(found["recall"])})


def _optional(values: Sequence[Any] | np.ndarray, given: np.ndarray) -> np.ndarray:
    """Return values as objects, None where there is none."""
    found = np.empty(len(given), object)
    found[given] = np.asarray(values)[given].tolist()
    return found
