"""Files are complete or absent."""

import errno
import json
import os
import subprocess
import sys

import pytest

from smdl.common import storage
from tests.faults import MUTATIONS, mutated


def write(path, content, error=None):
    with storage.replacing(path) as file:
        file.write(content)
        if error is not None:
            raise error


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "summary.json"
    storage.write_json(path, {"a": 1})
    with pytest.raises(RuntimeError):
        write(path, b"half", RuntimeError())
    assert json.loads(path.read_text()) == {"a": 1}
    assert os.listdir(tmp_path) == ["summary.json"]


def test_the_error_of_a_full_disk_is_in_words(tmp_path, monkeypatch):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(storage.DiskError, match=r"checkpoint\.pt cannot be written: the disk is full.*intact"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["checkpoint.pt"]


def test_a_sealed_file_is_read_if_it_is_unchanged_and_of_its_kind(tmp_path):
    path = tmp_path / "features"
    for payload in (b"", b"features 2 sha256", bytes(range(256)) * 9):
        storage.write_sealed(path, payload, "features 2")
        assert storage.read_sealed(path, "features 2") == payload
        with pytest.raises(storage.DamagedFileError, match="does not have the checksum"):
            storage.read_sealed(path, "features")
        with pytest.raises(storage.DamagedFileError, match="is not a file of the kind 'features 3'"):
            storage.read_sealed(path, "features 3")


VALUE = {"final": {"test_error": 0.0625, "test_loss": 0.1234567890123}, "epochs": 12, "classes": ["a", "ß"]}


def test_a_json_file_with_a_checksum_has_the_keys_of_the_value_and_is_read_without_it(tmp_path):
    path = tmp_path / "summary.json"
    storage.write_json(path, VALUE, checksum=True)
    assert list(json.loads(path.read_text())) == [*VALUE, "checksum"]
    assert storage.read_json(path) == VALUE
    storage.write_json(path, VALUE)
    assert storage.read_json(path) == json.loads(path.read_text()) == VALUE, "without a checksum it is believed"


def test_no_mutation_of_a_json_file_with_a_checksum_is_believed(tmp_path):
    path, refused = tmp_path / "summary.json", 0
    storage.write_json(path, VALUE, checksum=True)
    content = path.read_bytes()
    places = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    other_digits = [content[:at] + str(9 - int(content[at : at + 1])).encode() + content[at + 1 :] for at in places]
    for changed in [*other_digits, *(mutated(content, number) for number in range(MUTATIONS))]:
        path.write_bytes(changed)
        found = storage.read_json(path)
        refused += found is None
        assert found is None or {**found, **VALUE} == found, "space, or the name of the checksum"
    assert len(places) == 67, "docs/reliability.md says so"
    assert refused > 0.9 * (len(places) + MUTATIONS)


def claim(path):
    with storage.claimed(path) as folder:
        (folder / "config.yaml").touch()
    return folder.name


def test_an_existing_folder_is_never_used(tmp_path):
    names = [claim(tmp_path / "runs" / "digits") for _ in range(3)]
    assert names == ["digits", "digits-2", "digits-3"]


def test_an_existing_file_is_never_replaced_by_a_folder(tmp_path):
    (tmp_path / "digits").write_text("mine")
    assert claim(tmp_path / "digits") == "digits-2"
    assert (tmp_path / "digits").read_text() == "mine"
    with pytest.raises(storage.DiskError, match="a part of the path is a file, not a folder"):
        claim(tmp_path / "digits" / "run")


def test_a_folder_that_a_killed_process_left_empty_is_used_unless_another_process_has_it(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / ".config.yaml.1.2.part").touch()
    with storage.claimed(tmp_path / "run") as first, storage.claimed(tmp_path / "run") as second:
        assert (first.name, second.name) == ("run", "run-2")
    assert claim(tmp_path / "run") == "run"
    assert claim(tmp_path / "run") == "run-2"


def test_the_cache_is_where_the_user_says(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_CACHE", str(tmp_path))
    assert storage.cache_folder() == tmp_path


def test_a_folder_is_one_process_s_at_a_time(tmp_path):
    with storage.locked(tmp_path), pytest.raises(storage.BusyError, match="another process is at work"):
        storage.locked(tmp_path).__enter__()
    with storage.locked(tmp_path):  # released, so it can be locked again
        pass


def test_a_folder_that_cannot_be_written_cannot_be_locked(tmp_path, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(storage.DiskError, match="permission is denied"), storage.locked(tmp_path):
        pass


def test_a_lock_ends_with_its_process_and_can_be_waited_for(tmp_path):
    code = f"""
from pathlib import Path
from smdl.common.storage import locked
with locked(Path({str(tmp_path)!r})):
    print("held", flush=True)
    input()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(storage.BusyError), storage.locked(tmp_path):
                pass
        finally:
            holder.kill()
        with storage.locked(tmp_path, wait=True):
            pass
