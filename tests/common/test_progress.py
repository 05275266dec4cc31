"""What a run shows while it goes."""

import io

from rich.console import Console

from smdl.common import progress

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
    assert type(progress.display(quiet=True)) is progress.Display


ARMS = [
    progress.ArmProgress("uniform", 5, 5, "97.25 %", 0.0),
    progress.ArmProgress("[bold]recommended[/]", 2, 5, "96.00 %", 250.0),
    progress.ArmProgress("paper", 0, 5, "-", 61.2),
]


def test_a_comparison_has_a_live_table_of_its_arms():
    file = io.StringIO()
    shown = progress.Terminal(Console(file=file, force_terminal=True, width=80, height=20))
    shown.phase("calibrating")
    shown.arms(ARMS)
    shown.step("training", 7, 15)
    shown.close()
    printed = file.getvalue()
    for word in ("mean so far", "5/5", "97.25 %", "done", "[bold]recommended[/]", "5 min", "62 s"):
        assert word in printed


def test_of_many_arms_the_live_table_shows_those_that_are_not_finished():
    file = io.StringIO()
    shown = progress.Terminal(Console(file=file, force_terminal=True, width=80, height=12))
    shown.arms([progress.ArmProgress(f"arm {place}", int(place < 20), 1, "-", None) for place in range(22)])
    shown.close()
    last = file.getvalue().rpartition("time left")[2]
    assert "arm 21" in last
    assert "arm 19" not in last
    assert "and 16 more" in last


def test_phases_and_arms_are_plain_lines_where_there_is_no_terminal(capsys, monkeypatch):
    shown = progress.Lines()
    for what in ("loading", "compiling kernels", "loading", "compiling kernels", "calibrating"):
        shown.phase(what)
    assert capsys.readouterr().out == "loading\ncompiling kernels\ncalibrating\n"
    shown.arms(ARMS)
    assert capsys.readouterr().out == "", "at most every half minute"
    monkeypatch.setattr(progress, "EVERY", 0.0)
    shown.arms(ARMS)
    assert (
        capsys.readouterr().out == "  uniform 5/5 97.25 %, [bold]recommended[/] 2/5 96.00 %, paper 0/5 -, 6 min left\n"
    )
    monkeypatch.setattr(progress, "EVERY", 30.0)
    shown.arms(ARMS[:1])
    assert capsys.readouterr().out == "  uniform 5/5 97.25 %\n", "the end is always said"
