"""Downloads from a server that breaks, refuses, ignores or lies."""

import socket
from hashlib import sha256

import numpy as np
import pytest

from smdl.training.datasets.download import CHUNK, FAILURES, fetch
from smdl.training.datasets.problems import DataError

CONTENT = np.random.default_rng(0).bytes(3 * CHUNK + 1000)
SUM = f"sha256:{sha256(CONTENT).hexdigest()}"


@pytest.fixture
def place(server, tmp_path):
    server.files["set.bin"] = CONTENT
    return tmp_path / "data" / "set.bin"


def part(place):
    return place.with_name("set.bin.part")


def test_a_file_arrives_whole(server, place):
    assert fetch(server.url + "set.bin", place, SUM) == place
    assert place.read_bytes() == CONTENT
    assert [path.name for path in place.parent.iterdir()] == ["set.bin"]


def test_a_broken_download_resumes_where_it_stopped(server, place):
    server.breaks, server.cut = 3, CHUNK
    fetch(server.url + "set.bin", place, SUM)
    assert place.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={CHUNK}-", f"bytes={2 * CHUNK}-", f"bytes={3 * CHUNK}-"]


def test_the_next_call_resumes_too(server, place):
    server.breaks, server.cut = 1, CHUNK
    answer = server.answer

    def then_fail(handler):
        server.status = 503 if server.asked else 0
        answer(handler)

    server.answer = then_fail
    with pytest.raises(DataError, match=r"it answered 503 .*; the first 0\.1 MB are kept in .*set\.bin\.part"):
        fetch(server.url + "set.bin", place, SUM)
    assert len(part(place).read_bytes()) == CHUNK
    assert not place.exists()
    server.answer, server.status = answer, 0
    fetch(server.url + "set.bin", place, SUM)
    assert server.asked[-1] == f"bytes={CHUNK}-"
    assert place.read_bytes() == CONTENT


def test_a_server_without_ranges_sends_all_of_it_again(server, place):
    server.ranges, server.breaks, server.cut = False, 2, CHUNK
    fetch(server.url + "set.bin", place, SUM)
    assert place.read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={CHUNK}-", f"bytes={CHUNK}-"]


def test_it_gives_up_where_nothing_more_comes(server, place):
    server.ranges, server.breaks, server.cut = False, 1000, CHUNK
    with pytest.raises(DataError, match="could not be reached"):
        fetch(server.url + "set.bin", place, SUM)
    assert len(server.asked) == 1 + FAILURES


def test_it_gives_up_where_it_comes_no_farther(server, place):
    """Without ranges each attempt starts over; that some get farther than the one before is no progress."""
    server.ranges, server.breaks = False, 1000
    answer = server.answer

    def now_more_now_less(handler):
        server.cut = CHUNK * (1 + len(server.asked) % 2)
        answer(handler)

    server.answer = now_more_now_less
    with pytest.raises(DataError, match="could not be reached"):
        fetch(server.url + "set.bin", place, SUM)
    assert len(server.asked) == 2 + FAILURES


def test_a_part_that_is_complete_is_enough(server, place):
    place.parent.mkdir()
    part(place).write_bytes(CONTENT)
    fetch(server.url + "set.bin", place, SUM)
    assert place.read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(CONTENT)}-"]


def test_a_part_longer_than_the_file_is_dropped(server, place):
    place.parent.mkdir()
    part(place).write_bytes(bytes(300_000))
    fetch(server.url + "set.bin", place, SUM)
    assert place.read_bytes() == CONTENT
    assert server.asked == ["bytes=300000-", None]


def test_a_wrong_checksum_leaves_nothing_behind(server, place):
    server.files["set.bin"] = b"something else"
    with pytest.raises(DataError, match=f"does not have the published checksum .{SUM}.; it was removed"):
        fetch(server.url + "set.bin", place, SUM)
    assert list(place.parent.iterdir()) == []


def test_a_part_of_another_file_is_found_out_and_removed(server, place):
    place.parent.mkdir()
    part(place).write_bytes(bytes(1000))
    with pytest.raises(DataError, match="checksum"):
        fetch(server.url + "set.bin", place, SUM)
    assert list(place.parent.iterdir()) == []
    fetch(server.url + "set.bin", place, SUM)
    assert place.read_bytes() == CONTENT


def test_a_missing_file_is_asked_for_once(server, place):
    with pytest.raises(DataError, match=r"answered 404 Not Found to http://.*/none\.bin"):
        fetch(server.url + "none.bin", place, SUM)
    assert len(server.asked) == 1


def test_a_file_with_the_right_sum_is_not_downloaded(server, place):
    place.parent.mkdir()
    place.write_bytes(CONTENT)
    fetch(server.url + "set.bin", place, SUM)
    assert server.asked == []


def test_a_damaged_file_is_downloaded_again(server, place):
    place.parent.mkdir()
    place.write_bytes(CONTENT[:-1])
    fetch(server.url + "set.bin", place, SUM)
    assert place.read_bytes() == CONTENT


@pytest.mark.usefixtures("server")
def test_a_host_that_is_not_there_is_named(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(DataError, match=f"127.0.0.1:{port} could not be reached: .*refused"):
        fetch(f"http://127.0.0.1:{port}/set.bin", tmp_path / "set.bin", SUM)


@pytest.mark.usefixtures("server")
def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk(tmp_path):
    (tmp_path / "data").write_text("a file")
    with pytest.raises(OSError, match="data"):
        fetch("http://127.0.0.1:9/set.bin", tmp_path / "data" / "set.bin", SUM)
