"""The clock that stands still while others have the core."""

import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from smdl import clock

RECORDED = pytest.mark.skipif(not Path(clock.RECORD).exists(), reason="this kernel keeps no record of waiting threads")


def burn(seconds):
    """Use the core for so many CPU seconds of this thread."""
    started = time.thread_time()
    while time.thread_time() - started < seconds:
        pass


def compete(core, ready):
    os.sched_setaffinity(0, {core})
    ready.set()
    burn(60)


@pytest.fixture
def shared_core():
    """Run this thread on a core that another process uses too."""
    allowed = os.sched_getaffinity(0)
    core, context = min(allowed), multiprocessing.get_context("spawn")
    ready = context.Event()
    other = context.Process(target=compete, args=(core, ready), daemon=True)
    other.start()
    ready.wait(60)
    os.sched_setaffinity(0, {core})
    yield
    os.sched_setaffinity(0, allowed)
    other.kill()
    other.join()


@RECORDED
@pytest.mark.usefixtures("shared_core")
def test_time_without_a_core_does_not_count():
    wall, own = time.perf_counter(), clock.now()
    burn(0.5)
    wall, own = time.perf_counter() - wall, clock.now() - own
    assert own < 0.8 * wall, "about half of the core was ours"
    assert own > 0.45


def test_waiting_for_something_counts():
    started = clock.now()
    time.sleep(0.2)
    assert clock.now() - started > 0.19


@RECORDED
def test_each_thread_and_each_forked_process_reads_its_own_record(monkeypatch):
    opened = []
    monkeypatch.setattr(clock, "_open", lambda: opened.append(threading.get_ident()))
    monkeypatch.setattr(clock, "_opened", threading.local())
    clock.now()
    clock.now()
    thread = threading.Thread(target=clock.now)
    thread.start()
    thread.join()
    assert len(opened) == 2
    monkeypatch.setattr(os, "getpid", lambda: -1)
    clock.now()
    assert len(opened) == 3


@pytest.mark.parametrize("content", [None, "", "one", "1 two 3"])
def test_without_a_record_it_is_wall_clock_time(content, tmp_path, monkeypatch):
    record = tmp_path / "schedstat"
    if content is not None:
        record.write_text(content)
    monkeypatch.setattr(clock, "RECORD", str(record))
    monkeypatch.setattr(clock, "_opened", threading.local())
    before = time.perf_counter()
    found = clock.now()
    assert before <= found <= time.perf_counter()
