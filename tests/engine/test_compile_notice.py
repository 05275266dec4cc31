"""The line that tells why the first selection takes long."""

import time

import pytest

from smdl.engine import compile_notice
from smdl.engine.compile_notice import CompileNotice


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(compile_notice, "PATIENCE", 0.2)


def test_compiling_that_takes_long_is_told_once(capfd):
    notice = CompileNotice()
    for _ in range(2):
        notice.begin()
        notice.begin()  # a loop that the first one calls
        notice.end()
        time.sleep(0.5)
        notice.end()
    assert capfd.readouterr().err == "smdl: compiling the selection, once: about 20 s\n"


def test_nothing_is_told_of_what_is_compiled_soon(capfd):
    notice = CompileNotice()
    notice.begin()
    notice.end()
    time.sleep(0.5)
    assert capfd.readouterr().err == ""
