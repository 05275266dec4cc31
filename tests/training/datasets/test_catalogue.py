"""Where sets are found, and how they come here."""

import io
import socket
import tarfile
from dataclasses import replace
from hashlib import md5, sha256

import pytest

from smdl.training.datasets import catalogue as module
from smdl.training.datasets.catalogue import diagnosis, find, get, search
from smdl.training.datasets.download import CHUNK
from smdl.training.datasets.problems import DamagedError, DataError
from tests.training.datasets import made


def digest(content):
    return f"sha256:{sha256(content).hexdigest()}"


def change(monkeypatch, name, **changes):
    monkeypatch.setitem(module.ENTRIES, name, replace(module.ENTRIES[name], **changes))


@pytest.fixture
def archived(server, tmp_path, monkeypatch):
    """cifar10, small, on a server of its own."""
    source = tmp_path / "source" / "cifar-10-batches-py"
    made.cifar10(source, 10)
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(source, source.name)
    server.files["cifar-10-python.tar.gz"] = content = packed.getvalue()
    sums = {path.name: digest(path.read_bytes()) for path in source.iterdir()}
    change(
        monkeypatch, "cifar10", host=server.url, downloads={"cifar-10-python.tar.gz": digest(content)}, unpacked=sums
    )
    return server


@pytest.fixture
def filed(server, tmp_path, monkeypatch):
    """fashion-mnist, small, file by file."""
    made.fashion_mnist(tmp_path / "files")
    files = {path.name: path.read_bytes() for path in (tmp_path / "files").iterdir()}
    server.files.update(files)
    sums = {name: digest(content) for name, content in files.items()}
    change(monkeypatch, "fashion-mnist", host=server.url, downloads=sums)
    return server


def test_an_archive_is_fetched_and_unpacked_into_the_cache(archived, tmp_path):
    folder = get("cifar10")
    assert folder == tmp_path / "cache" / "cifar-10-batches-py"
    assert find("cifar10") == folder
    assert (folder / "test_batch").read_bytes() == (tmp_path / "source" / folder.name / "test_batch").read_bytes()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [folder.name]  # no archive, no leftovers
    assert len(archived.asked) == 1


def test_files_are_fetched_one_by_one(filed, tmp_path):
    folder = get("fashion-mnist", tmp_path / "mine")
    assert folder == tmp_path / "mine" / "fashion-mnist"
    assert find("fashion-mnist", tmp_path / "mine") == folder
    assert len(filed.asked) == 4


@pytest.mark.parametrize("name", ["archived", "filed"])
def test_what_is_there_is_not_fetched_again(request, name):
    server = request.getfixturevalue(name)
    data = {"archived": "cifar10", "filed": "fashion-mnist"}[name]
    get(data)
    before = len(server.asked)
    get(data)
    assert len(server.asked) == before


def test_a_missing_or_damaged_file_is_downloaded_again(archived, filed):
    folder = get("cifar10")
    good = (folder / "data_batch_2").read_bytes()
    (folder / "data_batch_2").write_bytes(good[:-1])
    assert (get("cifar10") / "data_batch_2").read_bytes() == good
    folder = get("fashion-mnist")
    before = len(filed.asked)
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    assert (get("fashion-mnist") / "t10k-labels-idx1-ubyte.gz").exists()
    assert len(filed.asked) == before + 1
    assert archived is filed


def test_a_broken_download_of_an_archive_is_resumed(archived):
    archived.breaks, archived.cut = 1, CHUNK
    get("cifar10")
    assert archived.asked == [None, f"bytes={CHUNK}-"]


def test_an_archive_cannot_write_elsewhere(archived, tmp_path, monkeypatch):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../escaped"))
    archived.files["cifar-10-python.tar.gz"] = content = packed.getvalue()
    change(monkeypatch, "cifar10", downloads={"cifar-10-python.tar.gz": digest(content)})
    with pytest.raises(DataError, match="cannot be unpacked"):
        get("cifar10")
    assert not list(tmp_path.rglob("escaped"))
    assert not list(tmp_path.rglob(".unpacking*"))


def test_an_archive_without_the_folder_is_named(archived, monkeypatch):
    change(monkeypatch, "cifar10", folders=("other",))
    with pytest.raises(DataError, match=r"expected to hold a folder other, found \['cifar-10-batches-py'\]"):
        get("cifar10")
    assert archived.asked == [None]


@pytest.mark.usefixtures("server")
def test_offline_one_message_says_what_to_do(tmp_path, monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host = f"127.0.0.1:{free.getsockname()[1]}"
    change(monkeypatch, "cifar100", host=f"http://{host}/", downloads={"cifar-100-python.tar.gz": "sha256:0"})
    with pytest.raises(DataError) as caught:
        get("cifar100")
    message = str(caught.value)
    assert f"{host} could not be reached" in message
    assert f"put meta, train, test (from the archive) into {tmp_path}/cache/cifar-100-python" in message
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("below", ["", "svhn"])
@pytest.mark.parametrize("where", ["root", "environment", "cache", "system"])
def test_a_set_is_found_wherever_it_may_lie(tmp_path, monkeypatch, where, below):
    base = tmp_path / where
    made.svhn(base / below, 1)
    monkeypatch.setenv("SMDL_DATA", str(tmp_path / "environment"))
    assert find("svhn", tmp_path / "root") == base / below
    assert find("svhn", str(tmp_path / "root")) == base / below


def test_a_root_goes_before_the_environment_and_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SMDL_DATA", str(tmp_path / "environment"))
    for where in ("cache", "environment", "root"):
        made.svhn(tmp_path / where, 1)
        assert find("svhn", tmp_path / "root") == tmp_path / where


def test_torchvisions_folder_is_known(tmp_path):
    made.fashion_mnist(tmp_path / "FashionMNIST" / "raw", 1)
    assert find("fashion-mnist", tmp_path) == tmp_path / "FashionMNIST" / "raw"


def test_files_of_another_set_with_the_same_names_are_not_taken(tmp_path, monkeypatch):
    made.fashion_mnist(tmp_path, 1)
    sums = {path.name: f"sha256:{sha256(path.read_bytes()).hexdigest()}" for path in tmp_path.glob("*.gz")}
    ordered = {file: sums[file] for file in module.ENTRIES["fashion-mnist"].downloads}
    change(monkeypatch, "fashion-mnist", downloads=ordered)
    assert find("fashion-mnist", tmp_path) == tmp_path
    with pytest.raises(DataError, match=r"\(holds fashion-mnist\)"):
        find("mnist", tmp_path)


def test_a_set_that_is_missing_says_where_it_was_looked_for_and_how_to_get_it(tmp_path):
    made.svhn(tmp_path / "svhn", 1)
    (tmp_path / "svhn" / "test_32x32.mat").unlink()
    with pytest.raises(DataError) as caught:
        find("svhn", tmp_path)
    message = str(caught.value)
    assert f"{tmp_path / 'svhn'} (lacks test_32x32.mat)" in message
    assert f"{tmp_path} (none of them)" in message
    assert f"{tmp_path / 'cache'} (no such folder)" in message
    assert "`smdl data get svhn` downloads it (246 MB from http://ufldl.stanford.edu/housenumbers/" in message


def test_an_unknown_set_gives_near_names():
    for function in (find, get):
        with pytest.raises(DataError, match="unknown downloadable data set 'cifar-10'; did you mean 'cifar10'"):
            function("cifar-10")


def test_a_search_finds_what_is_here(tmp_path):
    made.cifar100(tmp_path / "cifar-100-python")
    found = {name: search(name, tmp_path) for name in module.ENTRIES}
    here = tmp_path / "cifar-100-python"
    assert found == {"mnist": None, "fashion-mnist": None, "cifar10": None, "cifar100": here, "svhn": None}
    assert round(module.ENTRIES["fashion-mnist"].bytes / 1e6) == 31


def test_the_error_for_a_damaged_file_shows_both_checksums(tmp_path):
    path = tmp_path / "test_batch"
    path.write_bytes(b"cut")
    message = str(diagnosis("cifar10", DamagedError(path, "a pickle was expected")))
    assert f"{path} is damaged: a pickle was expected" in message
    assert f"checksum {digest(b'cut')}, published: sha256:f53d8d457504" in message
    assert "Delete it and run `smdl data get cifar10`" in message


def test_files_published_with_an_md5_are_checked_by_it(tmp_path):
    path = tmp_path / "meta"
    path.write_bytes(b"cut")
    assert f"checksum md5:{md5(b'cut').hexdigest()}, published: md5:7973" in str(
        diagnosis("cifar100", DamagedError(path, "a pickle was expected"))
    )


def test_every_download_has_a_sha256():
    for entry in module.ENTRIES.values():
        for checksum in entry.downloads.values():
            algorithm, _, digits = checksum.partition(":")
            assert (algorithm, len(digits)) == ("sha256", 64)
