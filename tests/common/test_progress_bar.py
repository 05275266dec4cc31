"""Lines where there is no terminal, a bar where there is one."""

import sys

import pytest

from smdl.common import progress_bar as module
from smdl.common.progress_bar import progress_bar


def test_what_is_over_soon_says_nothing(capsys):
    with progress_bar("reading", 10) as advance:
        for _ in range(10):
            advance(1)
    assert capsys.readouterr() == ("", "")


def test_lines_come_at_intervals(capsys, monkeypatch):
    clock = iter(range(0, 1000, 3))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    with progress_bar("reading", 8) as advance:
        for _ in range(8):
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["reading: 50 %", "reading: 100 %"]


@pytest.mark.parametrize("total", [0, 10])
def test_a_terminal_shows_a_bar(monkeypatch, capsys, total):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar("reading", total) as advance:
        advance(10)
    assert "reading" in capsys.readouterr().err
