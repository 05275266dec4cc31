"""A tracker gets the numbers of every epoch, whatever it does with them."""

import pytest

from smdl.cli.commands import main
from smdl.training import loop
from smdl.training.trackers import Tracker, scalars
from tests.report.made import read_lines
from tests.training.test_loop import RUNS, Stop

MADE: list["Notebook"] = []


class Notebook(Tracker):
    """Keeps what it gets."""

    def __init__(self, folder, config):
        self.folder, self.config, self.records, self.closed = folder, config, [], False
        MADE.append(self)

    def epoch(self, record):
        self.records.append(record)

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))
    MADE.clear()


def test_a_tracker_by_its_name_gets_every_epoch(tmp_path):
    options = ["--data.train_size", "130", "--epochs", "2", "--model.name", "mlp", "--method", "uniform"]
    assert (
        main(["train", "--tracker", f"{__name__}:Notebook", "--out", str(tmp_path / "run"), "--quiet", *options]) == 0
    )
    (made,) = MADE
    assert made.records == read_lines(tmp_path / "run" / "metrics.jsonl")
    assert made.config["epochs"] == 2
    assert made.folder == tmp_path / "run"
    assert made.closed


def test_a_resumed_run_tells_the_earlier_epochs_again(tmp_path):
    with pytest.raises(loop.Interrupted):
        loop.train(RUNS["uniform"], tmp_path / "run", Stop(9), f"{__name__}:Notebook")
    loop.resume(tmp_path / "run", tracker=f"{__name__}:Notebook")
    first, second = MADE
    assert first.closed
    assert [record["epoch"] for record in first.records] == [0]
    assert [record["epoch"] for record in second.records] == [0, 1, 2]


def test_scalars_are_the_numbers_of_a_record_with_those_of_its_parts():
    record = {"epoch": 3, "test_error": 0.5, "train_loss": None, "seconds": {"data": 1.5}, "class_counts": [1, 2]}
    assert scalars(record) == {"epoch": 3, "test_error": 0.5, "seconds/data": 1.5}
