"""What a run shows while it goes."""

import io

from rich.console import Console

from smdl.training import progress

RECORD = {
    "epoch": 99,
    "steps": 100_000,
    "train_loss": 0.1234,
    "train_error": 0.1234,
    "test_loss": 12.3456,
    "test_error": 1.0,
    "seconds": {"data": 1.0, "scoring": 500.0, "selection": 1.0, "training": 1000.0, "evaluation": 7.0},
}


def test_the_live_table_fits_80_columns():
    file = io.StringIO()
    shown = progress.Terminal(Console(file=file, force_terminal=True, width=80, height=20))
    shown.step("epoch 100/100", 5, 10, "loss 0.5")
    shown.epoch(RECORD, 100)
    shown.note("a note")
    shown.close()
    shown.close()  # a run closes its display, and so does the command
    printed = file.getvalue()
    for word in ("100/100", "100000", "0.1234", "12.34%", "100.00%", "1502.0", "33%", "selecting", "test err", "note"):
        assert word in printed
    assert "…" not in printed, "nothing is cut off"


def test_a_long_run_shows_its_latest_epochs():
    file = io.StringIO()
    shown = progress.Terminal(Console(file=file, force_terminal=True, width=80, height=20))
    for epoch in range(40):
        shown.epoch({**RECORD, "epoch": epoch}, 40)
    shown.close()
    last = file.getvalue().rpartition("seconds")[2]
    assert "40/40" in last
    assert " 1/40" not in last


def test_plain_lines_are_few(capsys, monkeypatch):
    shown = progress.Lines()
    for step in range(100):
        shown.step("epoch 1/1", step, 100, "loss 1")
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    shown.step("epoch 1/1", 7, 100, "loss 1")
    assert capsys.readouterr().out == "  epoch 1/1 7/100 loss 1\n"
    shown.epoch({**RECORD, "train_loss": None, "train_error": None}, 100)
    assert "train loss -" in capsys.readouterr().out


def test_where_there_is_no_terminal_there_are_lines():
    assert isinstance(progress.display(), progress.Lines)
    assert isinstance(progress.display(quiet=True), progress.Silent)
