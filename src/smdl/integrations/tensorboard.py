"""TensorBoard: the measurements of `smdl train --tracker tensorboard`."""

import shutil
from pathlib import Path
from typing import Any

from torch.utils.tensorboard.writer import SummaryWriter

from smdl.training.trackers import Tracker, scalars


class TensorBoard(Tracker):
    """Writes the numbers of every epoch into `tensorboard` in the folder of the run."""

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder / "tensorboard", ignore_errors=True)  # a resumed run writes its earlier epochs again
        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def epoch(self, record: dict[str, Any]) -> None:
        for name, value in scalars(record).items():
            if name not in ("epoch", "steps"):
                self._writer.add_scalar(name, value, record["steps"])
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
