"""The clock that does not count the time in which other processes have the core."""

import itertools
import multiprocessing
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import smdl
from smdl.common import clock
from tests.toys import Net, Tuples

RECORDED = pytest.mark.skipif(not Path(clock.RECORD).exists(), reason="this kernel keeps no record of waiting threads")


@pytest.fixture(autouse=True)
def new_thread(monkeypatch):
    """This thread has not used the clock yet, and torch computes with one thread."""
    monkeypatch.setattr(clock, "_own", threading.local())
    monkeypatch.setattr(clock, "_helped", False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def burn(seconds):
    """Use the core for so many CPU seconds of this thread; return them by our clock, and by the clock on the wall read
    within and around ours: other work may come between any two readings."""
    around, own, within, started = time.perf_counter(), clock.now(), time.perf_counter(), time.thread_time()
    while time.thread_time() - started < seconds:
        pass
    within, own = time.perf_counter() - within, clock.now() - own
    return own, within, time.perf_counter() - around


#: Another process, on the core that it is given.
COMPETE = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])}); print(flush=True)\nwhile True: pass"


@pytest.fixture
def shared_core():
    """Run the threads that start from here on a core that another process uses too."""
    allowed = os.sched_getaffinity(0)
    core = min(allowed)
    with subprocess.Popen([sys.executable, "-c", COMPETE, str(core)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        os.sched_setaffinity(0, {core})
        yield
        os.sched_setaffinity(0, allowed)
        other.kill()


@RECORDED
@pytest.mark.usefixtures("shared_core")
def test_time_without_a_core_does_not_count():
    with ThreadPoolExecutor(1) as threads:  # not the main thread: the record is that of the thread
        torch.set_num_threads(1)
        own, within, _ = threads.submit(lambda: (torch.set_num_threads(1), burn(0.5))[1]).result()
    assert own < 0.8 * within, "about half of the core was ours"
    assert own > 0.45


@RECORDED
@pytest.mark.usefixtures("shared_core")
@pytest.mark.parametrize("why", ["threads", "workers"])
def test_it_counts_where_the_waiting_may_be_our_own_doing(why):
    if why == "threads":
        torch.set_num_threads(2)
    else:
        clock.count_waiting()
    own, within, around = burn(0.3)
    assert within <= own <= around


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_with_workers_makes_waiting_count(workers):
    smdl.DataLoader(Tuples(8), Net(), 4, num_workers=workers)
    assert clock._helped == (workers > 0)


def test_waiting_for_something_else_counts():
    started = clock.now()
    time.sleep(0.2)
    assert clock.now() - started > 0.19


def test_a_change_of_the_rule_is_no_jump(monkeypatch):
    waits = iter(range(0, 10_000_000_000, 1_000_000_000))  # a second more at every look
    wall = itertools.count(100.0, 3.0)
    monkeypatch.setattr(clock, "_read", lambda: next(waits))
    monkeypatch.setattr(clock.time, "perf_counter", lambda: next(wall))
    times = [clock.now(), clock.now()]
    clock.count_waiting()
    times += [clock.now(), clock.now()]
    assert [b - a for a, b in itertools.pairwise(times)] == [2.0, 3.0, 3.0]


@RECORDED
def test_a_forked_process_reads_its_own_record():
    clock.now()
    inherited = clock._own.record

    def look(found):
        os.closerange(3, 64 if found.fileno() >= 64 else found.fileno())  # as programs do that become services
        clock.now()
        clock.now()
        found.send(clock._own.record is not inherited and clock._own.record is not None)

    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    child = context.Process(target=look, args=(send,))
    child.start()
    assert receive.poll(60)
    assert receive.recv()
    child.join()


@pytest.mark.parametrize("content", [None, "", "one", "1 two 3"])
def test_without_a_record_it_is_wall_clock_time(content, tmp_path, monkeypatch):
    record = tmp_path / "schedstat"
    if content is not None:
        record.write_text(content)
    monkeypatch.setattr(clock, "RECORD", str(record))
    before = time.perf_counter()
    found = clock.now()
    assert before <= found <= time.perf_counter()


@RECORDED
def test_a_record_that_someone_closed_is_given_up():
    started = clock.now()
    os.close(clock._own.record._file)
    assert 0 <= clock.now() - started < 60
    assert clock._own.record is None


def test_the_clock_never_goes_back(monkeypatch):
    """A wait that ends between the two readings of one call is left out at the next call."""
    waits = iter([0, 0, 50_000_000, 50_000_000, 50_000_000])
    monkeypatch.setattr(clock, "_read", lambda: next(waits))
    times = [clock.now() for _ in range(4)]
    assert times == sorted(times)
