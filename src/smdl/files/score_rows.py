"""`smdl score`: numbers for every row of files, and what the page shows of them."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smdl.common.messages import choice, whole_number
from smdl.common.progress import Display
from smdl.common.storage import write_json
from smdl.engine.near_copies import threshold
from smdl.engine.row_scores import RowScores, score
from smdl.files.checks import checked_output
from smdl.files.earlier_outputs import input_record
from smdl.files.engines import running
from smdl.files.kept_parts import work_folder
from smdl.files.output import place_columns, shown_columns, write_output
from smdl.files.request import RowRequest
from smdl.files.snapshot import places, spread
from smdl.files.usable_rows import UsableRows, open_input

#: Columns of the output, in this order.
SCORES = ("density", "distance", "copies", "rank", "gain")
#: Rows that the page shows of each extreme, and points of the curves of sorted scores.
SHOWN, POINTS = 12, 200


@dataclass(frozen=True)
class ScoreRequest(RowRequest):
    """What the user asks for: the options of `smdl score`."""

    command = "score"

    out: Path = Path("scores.csv")
    neighbours: int = 16
    similarity: float = 0.95


class RowScorer:
    """A request with its input opened and checked. Nothing long has happened yet, and nothing was written."""

    def __init__(self, request: ScoreRequest) -> None:
        self.request = request
        threshold(request.similarity)
        whole_number("neighbours", request.neighbours)
        if request.out.suffix == ".npy":
            raise ValueError(choice("--out", str(request.out), "a table: .parquet, .csv, .jsonl or .json"))
        self.input = UsableRows(open_input(request, {"ids": request.ids}, request.folder), request)
        self.output = checked_output(request, self.input.rows)
        self.input.use_model()

    def run(self, display: Display) -> dict[str, Any]:
        """Score the rows, and write the output. Return the numbers that the page shows."""
        request, started = self.request, time.perf_counter()
        with running(request.threads) as engine, work_folder(request.folder):
            rows = self.input.rows
            stamps = rows.stamps()
            used = self.input.load(display, engine)
            display.phase("looking for neighbours")
            found = score(
                rows.whole() if len(used) == len(rows) else rows.features_at(used),
                neighbours=request.neighbours,
                similarity=request.similarity,
                progress=display.step,
            )
            scores = {name: getattr(found, name) for name in SCORES}
            table = place_columns(rows, used) | scores | shown_columns(rows, used)
            rows.check_stamps(stamps)
            write_output(self.output, table, request, display, input_record(rows, self.input.embedder))
            numbers = self._numbers(found, used, time.perf_counter() - started)
            write_json(request.folder / "score.json", numbers, checksum=True)
            return numbers

    def _numbers(self, found: RowScores, used: np.ndarray, seconds: float) -> dict[str, Any]:
        orders = {
            "typical": np.argsort(-found.density, kind="stable"),
            "outliers": np.argsort(-found.distance, kind="stable"),
            "copied": np.argsort(-found.copies, kind="stable"),
            "first": np.argsort(found.rank, kind="stable"),
        }
        some = spread(len(used), POINTS)
        return {
            "title": f"Scores of {len(used):,} rows",
            "rows": len(self.input.rows),
            "left_out": len(self.input.rows) - len(used),
            "with_copies": int((found.copies > 0).sum()),
            "neighbours": min(self.request.neighbours, len(used) - 1),
            "similarity": self.request.similarity,
            "recall": found.recall,
            "seconds": seconds,
            "settings": self.request.settings(),
            "curves": {
                name: {"share": (some / max(1, len(used) - 1)).tolist(), "value": np.sort(values)[some].tolist()}
                for name, values in (("density", found.density), ("distance", found.distance))
            },
            "extremes": {name: self._shown(found, used, order[:SHOWN]) for name, order in orders.items()},
        }

    def _shown(self, found: RowScores, used: np.ndarray, some: np.ndarray) -> list[dict[str, Any]]:
        return [
            {"row": place, **{name: getattr(found, name)[row].item() for name in SCORES}}
            for place, row in zip(places(self.input.rows, used[some]), some, strict=True)
        ]
