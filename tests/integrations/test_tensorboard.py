"""smdl train --tracker tensorboard writes what metrics.jsonl holds."""

import pytest

from smdl.training import loop
from tests.report.made import read_lines
from tests.training.test_loop import RUNS, Stop

pytestmark = [pytest.mark.integrations, pytest.mark.filterwarnings("default")]
pytest.importorskip("tensorboard")


def written(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    return {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


@pytest.mark.parametrize("interrupted", [False, True])
def test_tensorboard_holds_every_epoch_once(interrupted, tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path / "cache"))
    config, folder = RUNS["uniform"], tmp_path / "run"
    if interrupted:
        with pytest.raises(loop.Interrupted):
            loop.train(config, folder, Stop(9), "tensorboard")
        loop.resume(folder, tracker="tensorboard")
    else:
        loop.train(config, folder, tracker="tensorboard")
    records, found = read_lines(folder / "metrics.jsonl"), written(folder)
    for name in ("test_error", "batch_loss"):
        assert found[name] == [(record["steps"], pytest.approx(record[name])) for record in records]
    assert [value for _, value in found["seconds/training"]] == [
        pytest.approx(record["seconds"]["training"]) for record in records
    ]
