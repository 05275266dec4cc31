"""The downloadable sets: where they come from, how to tell them, where they may lie."""

import hashlib
import os
import tarfile
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from smdl.errors import unknown
from smdl.training.datasets.download import fetch
from smdl.training.datasets.errors import DamagedError, DataError
from smdl.training.files import cache_folder, disk_errors

SYSTEM = Path("/usr/share/datasets")  # of Debian's package dataset-fashion-mnist


@dataclass(frozen=True)
class Download:
    """A file, or a tar.gz that unpacks to the set's folder."""

    url: str
    md5: str
    bytes: int

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Entry:
    """A set: `folders` are the names under which its files are found, the first of them ours."""

    about: str
    folders: tuple[str, ...]
    downloads: tuple[Download, ...]
    files: dict[str, str]  # name: md5

    @property
    def bytes(self) -> int:
        return sum(download.bytes for download in self.downloads)

    @property
    def archive(self) -> bool:
        return self.downloads[0].name.endswith(".tar.gz")


class Row(NamedTuple):
    """A line of the list: `folder` is None where the set is not on this machine."""

    name: str
    about: str
    bytes: int
    folder: Path | None


def _plain(about: str, folders: tuple[str, ...], host: str, files: dict[str, tuple[str, int]]) -> Entry:
    downloads = tuple(Download(host + name, md5, size) for name, (md5, size) in files.items())
    return Entry(about, folders, downloads, {download.name: download.md5 for download in downloads})


ENTRIES = {
    "fashion-mnist": _plain(
        "60,000 + 10,000 grey images of clothes, 28 × 28, 10 classes",
        ("fashion-mnist", "FashionMNIST/raw"),
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            "train-labels-idx1-ubyte.gz": ("25c81989df183df01b3e8a0aad5dffbe", 29_515),
            "t10k-images-idx3-ubyte.gz": ("bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            "t10k-labels-idx1-ubyte.gz": ("bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        },
    ),
    "cifar10": Entry(
        "50,000 + 10,000 colour images of things, 32 × 32, 10 classes",
        ("cifar-10-batches-py",),
        (
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz",
                "c58f30108f718f92721af3b95e74349a",
                170_498_071,
            ),
        ),
        {
            "batches.meta": "5ff9c542aee3614f3951f8cda6e48888",
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    "cifar100": Entry(
        "50,000 + 10,000 colour images of things, 32 × 32, 100 classes",
        ("cifar-100-python",),
        (
            Download(
                "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz",
                "eb9058c3a382ffc7106e4002c42a8d85",
                169_001_437,
            ),
        ),
        {
            "meta": "7973b15100ade9c7d40fb424638fde48",
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
    "svhn": _plain(
        "73,257 + 26,032 colour images of house numbers, 32 × 32, 10 classes",
        ("svhn",),
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": ("e26dedcc434d2e4c54c9b2d4a06d8373", 182_040_794),
            "test_32x32.mat": ("eb5a983be6a315427106f1b164d9cef3", 64_275_384),
        },
    ),
}


def catalogue(root: str | Path | None = None) -> list[Row]:
    """Every downloadable set, and where it was found."""
    return [Row(name, entry.about, entry.bytes, _search(entry, root)) for name, entry in ENTRIES.items()]


def find(name: str, root: str | Path | None = None) -> Path:
    """The folder with the files of a set: below root, SMDL_DATA, the cache or the system's data, or one of them."""
    entry = _entry(name)
    found = _search(entry, root)
    if found is not None:
        return found
    places = "".join(f"\n  {place}{_lack(place, entry)}" for place in _places(entry, root))
    raise DataError(
        f"the data set {name} is not on this machine: {', '.join(entry.files)} were looked for in{places}\n"
        f"`smdl data get {name}` downloads it ({entry.bytes / 1e6:.0f} MB from {entry.downloads[0].url}); "
        "or put the files into one of these folders, or name theirs by data.root or SMDL_DATA"
    )


def get(name: str, root: str | Path | None = None) -> Path:
    """The folder of a set in `root` (the cache unless given), downloaded unless it is there and its checksums right."""
    entry = _entry(name)
    base = cache_folder() if root is None else Path(root).expanduser()
    folder = base / entry.folders[0]
    if all((folder / file).is_file() and _md5(folder / file) == md5 for file, md5 in entry.files.items()):
        return folder
    try:
        for download in entry.downloads:
            path = fetch(download.url, (base if entry.archive else folder) / download.name, download.md5)
            if entry.archive:
                _unpack(path, folder)
                path.unlink()
    except DataError as error:
        urls = ", ".join(download.url for download in entry.downloads)
        raise DataError(
            f"{error}\nTry `smdl data get {name}` again; or fetch {urls} by other means and put "
            f"{', '.join(entry.files)}{' (out of the archive)' if entry.archive else ''} into {folder}"
        ) from error.__cause__
    return folder


def diagnosis(name: str, error: DamagedError) -> DataError:
    """A damaged file, what its checksum says, and the way out. (At every load the sums would cost too much.)"""
    expected = _entry(name).files.get(error.path.name)
    sums = f" (md5 {_md5(error.path)}, published: {expected})" if expected and error.path.is_file() else ""
    return DataError(f"{error}{sums}\nDelete it and run `smdl data get {name}` to fetch it anew")


def _entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise DataError(unknown("downloadable data set", name, ENTRIES))
    return ENTRIES[name]


def _places(entry: Entry, root: str | Path | None) -> list[Path]:
    """Where a set may lie, in order: in these folders, or they are it."""
    bases = [root, os.environ.get("SMDL_DATA"), cache_folder(), SYSTEM]
    bases = [Path(base).expanduser() for base in bases if base]
    return [base / folder for base in bases for folder in ("", *entry.folders)]


def _search(entry: Entry, root: str | Path | None) -> Path | None:
    return next((place for place in _places(entry, root) if _lack(place, entry) == ""), None)


def _lack(place: Path, entry: Entry) -> str:
    """What of the set is not there, in words; nothing if all is."""
    if not place.is_dir():
        return " (no such folder)"
    missing = [file for file in entry.files if not (place / file).is_file()]
    none = len(missing) == len(entry.files)
    return "" if not missing else " (none of them)" if none else f" (lacks {', '.join(missing)})"


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def _unpack(archive: Path, folder: Path) -> None:
    """The folder of that name in a tar.gz, put in its place only when complete."""
    with disk_errors(folder), TemporaryDirectory(dir=folder.parent, prefix=".unpacking-") as temporary:
        try:
            with tarfile.open(archive) as tar:
                tar.extractall(temporary, filter="data")
        except tarfile.TarError as error:
            raise DataError(f"{archive} cannot be unpacked: {error}") from error
        fresh = Path(temporary) / folder.name
        if not fresh.is_dir():
            raise DataError(f"{archive} was expected to hold a folder {folder.name}, found {os.listdir(temporary)}")
        if folder.exists():
            folder.rename(Path(temporary) / f"{folder.name}.old")
        fresh.rename(folder)
