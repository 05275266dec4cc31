"""`smdl score`: numbers for every row of files, and what the page shows of them."""

import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from smdl.common.environment import cores
from smdl.common.interrupts import Interrupted
from smdl.common.local_engine import Local
from smdl.common.messages import choice, whole_number
from smdl.common.progress import Display
from smdl.common.storage import ProtectedOutput, disk_errors, locked, write_json
from smdl.engine.near_copies import threshold
from smdl.engine.row_scores import RowScores, score
from smdl.files.checks import check_output
from smdl.files.output import Table, marked_table, table_bytes
from smdl.files.request import settings_of
from smdl.files.snapshot import places
from smdl.files.texts import TextRows
from smdl.files.usable_rows import UsableRows

#: Rows that the page shows of each extreme, and points of the curves of sorted scores.
SHOWN, POINTS = 12, 200


@dataclass(frozen=True)
class ScoreRequest:
    """What the user asks for: the options of `smdl score`."""

    inputs: tuple[str, ...]
    out: Path = Path("scores.csv")
    neighbours: int = 16
    similarity: float = 0.95
    features: tuple[str, ...] = ()
    text: str | None = None
    model: str | None = None
    ids: str | None = None
    threads: int | None = None
    skip_nan: bool = False
    spreadsheet_safe: bool = False
    force: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the report: scores.score beside scores.parquet."""
        return self.out.with_name(f"{self.out.stem}.score")


class RowScorer:
    """A request with its input opened and checked. Nothing long has happened yet, and nothing was written."""

    def __init__(self, request: ScoreRequest) -> None:
        self.request = request
        threshold(request.similarity)
        whole_number("neighbours", request.neighbours)
        if request.threads is not None and request.threads > cores():
            raise ValueError(choice("threads", request.threads, f"at most the {cores()} cores of this machine"))
        if not request.out.name or request.out.suffix == ".npy":
            raise ValueError(choice("--out", str(request.out), "a table: .parquet, .csv, .jsonl or .json"))
        self.input = UsableRows(request, {"ids": request.ids})
        self.output = ProtectedOutput(request.out, request.folder, request.force)
        check_output(self.output, request.folder, self.input.rows, request.inputs)
        self.input.use_model()

    def run(self, display: Display) -> dict[str, Any]:
        """Score the rows, and write the output. Return the numbers that the page shows."""
        request, started = self.request, time.perf_counter()
        if request.threads:
            torch.set_num_threads(request.threads)
        try:
            with disk_errors(request.folder):
                request.folder.mkdir(parents=True, exist_ok=True)
            with locked(request.folder):
                used = self.input.load(display, Local())
                display.phase("looking for neighbours")
                rows = self.input.rows
                features = rows.whole() if len(used) == len(rows) else rows.features_at(used)
                found = score(
                    features, neighbours=request.neighbours, similarity=request.similarity, progress=display.step
                )
                table = self._table(found, used)
                safe = request.spreadsheet_safe and request.out.suffix == ".csv"
                if kept := self.output.write(table_bytes(request.out, marked_table(table) if safe else table)):
                    display.note(f"{request.out} was changed after it was written: it is now {kept}")
                numbers = self._numbers(found, used, time.perf_counter() - started)
                write_json(request.folder / "score.json", numbers, checksum=True)
                return numbers
        except KeyboardInterrupt:
            raise Interrupted(signal.SIGINT, "the same command") from None

    def _table(self, found: RowScores, used: np.ndarray) -> Table:
        """Return the columns of the output, one line per row that was scored."""
        rows = self.input.rows
        shards, inside = rows.place(used)
        table: Table = {
            "index": used,
            "shard": np.array([rows.shards[shard].path for shard in shards], dtype=str),
            "row": inside,
            "density": found.density,
            "distance": found.distance,
            "copies": found.copies,
            "rank": found.rank,
            "gain": found.gain,
        }
        if "ids" in rows.columns:
            table["id"] = rows.values("ids", used)
        if isinstance(rows, TextRows):
            table["text"] = np.array([*rows.texts_at(used), None], object)[:-1]
        return table

    def _numbers(self, found: RowScores, used: np.ndarray, seconds: float) -> dict[str, Any]:
        orders = {
            "typical": np.argsort(-found.density, kind="stable"),
            "outliers": np.argsort(-found.distance, kind="stable"),
            "copied": np.argsort(-found.copies, kind="stable"),
            "first": np.argsort(found.rank, kind="stable"),
        }
        some = np.unique(np.linspace(0, len(used) - 1, min(len(used), POINTS)).round().astype(np.int64))
        return {
            "title": f"Scores of {len(used):,} rows",
            "rows": len(self.input.rows),
            "left_out": len(self.input.rows) - len(used),
            "with_copies": int((found.copies > 0).sum()),
            "neighbours": min(self.request.neighbours, len(used) - 1),
            "similarity": self.request.similarity,
            "recall": found.recall,
            "seconds": seconds,
            "settings": settings_of(self.request),
            "curves": {
                name: {"share": (some / max(1, len(used) - 1)).tolist(), "value": np.sort(values)[some].tolist()}
                for name, values in (("density", found.density), ("distance", found.distance))
            },
            "extremes": {name: self._shown(found, used, order[:SHOWN]) for name, order in orders.items()},
        }

    def _shown(self, found: RowScores, used: np.ndarray, some: np.ndarray) -> list[dict[str, Any]]:
        return [
            {
                "row": place,
                "density": float(found.density[row]),
                "distance": float(found.distance[row]),
                "copies": int(found.copies[row]),
                "rank": int(found.rank[row]),
                "gain": float(found.gain[row]),
            }
            for place, row in zip(places(self.input.rows, used[some]), some.tolist(), strict=True)
        ]
