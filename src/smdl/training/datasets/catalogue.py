"""The downloadable data sets: their addresses, their checksums, and the folders where their files may be.

The sha256 sums of the downloads are those of TensorFlow Datasets and Keras, for files of the same address and size.
"""

import os
import tarfile
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from smdl.common.messages import unknown
from smdl.common.storage import cache_folder, digest, disk_errors
from smdl.training.datasets.download import fetch
from smdl.training.datasets.problems import DamagedError, DataError

SYSTEM = Path("/usr/share/datasets")  # Debian's package dataset-fashion-mnist


@dataclass(frozen=True)
class Entry:
    """One data set. Checksums are algorithm:digits, as pooch reads them.

    bytes      to download
    folders    the names that its folder may have; downloads go to the first
    host       where the downloads are
    downloads  checksum of each download; a tar.gz unpacks to the folder of the data set
    unpacked   checksum of each file of a tar.gz
    """

    about: str
    bytes: int
    folders: tuple[str, ...]
    host: str
    downloads: dict[str, str]
    unpacked: dict[str, str] = field(default_factory=dict)

    @property
    def files(self) -> dict[str, str]:
        return self.unpacked or self.downloads

    @property
    def urls(self) -> list[str]:
        return [self.host + name for name in self.downloads]


ENTRIES = {
    "mnist": Entry(
        "60,000 + 10,000 grey images of handwritten digits, 28 × 28, 10 classes",
        11_594_722,
        ("mnist", "MNIST/raw"),
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
        {
            "train-images-idx3-ubyte.gz": "sha256:440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "sha256:3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "sha256:8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "sha256:f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
    "fashion-mnist": Entry(
        "60,000 + 10,000 grey images of clothes, 28 × 28, 10 classes",
        30_878_645,
        ("fashion-mnist", "FashionMNIST/raw"),
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "sha256:3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "train-labels-idx1-ubyte.gz": "sha256:a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "t10k-images-idx3-ubyte.gz": "sha256:346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "t10k-labels-idx1-ubyte.gz": "sha256:67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        },
    ),
    "cifar10": Entry(
        "50,000 + 10,000 colour images of things, 32 × 32, 10 classes",
        170_498_071,
        ("cifar-10-batches-py",),
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-python.tar.gz": "sha256:6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"},
        {
            "batches.meta": "sha256:f962466ef690d46b226450fb9aadc74ba4bc64a76aa526b5827fe4bc5c7125cb",
            "data_batch_1": "sha256:54636561a3ce25bd3e19253c6b0d8538147b0ae398331ac4a2d86c6d987368cd",
            "data_batch_2": "sha256:766b2cef9fbc745cf056b3152224f7cf77163b330ea9a15f9392beb8b89bc5a8",
            "data_batch_3": "sha256:0f00d98ebfb30b3ec0ad19f9756dc2630b89003e10525f5e148445e82aa6a1f9",
            "data_batch_4": "sha256:3f7bb240661948b8f4d53e36ec720d8306f5668bd0071dcb4e6c947f78e9682b",
            "data_batch_5": "sha256:d91802434d8376bbaeeadf58a737e3a1b12ac839077e931237e0dcd43adcb154",
            "test_batch": "sha256:f53d8d457504f7cff4ea9e021afcf0e0ad8e24a91f3fc42091b8adef61157831",
        },
    ),
    "cifar100": Entry(
        "50,000 + 10,000 colour images of things, 32 × 32, 100 classes",
        169_001_437,
        ("cifar-100-python",),
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-100-python.tar.gz": "sha256:85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"},
        {
            # published as md5 only; the archive they come from is checked by its sha256
            "meta": "md5:7973b15100ade9c7d40fb424638fde48",
            "train": "md5:16019d7e3df5f24257cddd939b257f8d",
            "test": "md5:f0ef6b0ae62326f3e7ffdfab6717acfc",
        },
    ),
    "svhn": Entry(
        "73,257 + 26,032 colour images of house numbers, 32 × 32, 10 classes",
        246_316_178,
        ("svhn",),
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "sha256:435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
            "test_32x32.mat": "sha256:cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        },
    ),
}


def search(name: str, root: str | Path | None = None) -> Path | None:
    """Return the folder that holds the files of a data set; None if there is none."""
    entry = _entry(name)
    return next((place for place in _places(entry, root) if _lack(place, entry) == ""), None)


def find(name: str, root: str | Path | None = None) -> Path:
    """Return the folder that holds the files of a data set. It may be root, SMDL_DATA, the cache or the system's data
    folder, or a folder inside one of them."""
    if (found := search(name, root)) is not None:
        return found
    entry = _entry(name)
    places = "".join(f"\n  {place}{_lack(place, entry)}" for place in _places(entry, root))
    raise DataError(
        f"the data set {name} is not on this machine. Its files {', '.join(entry.files)} were looked for in{places}\n"
        f"`smdl data get {name}` downloads it ({entry.bytes / 1e6:.0f} MB from {entry.urls[0]}); "
        "or put the files into one of these folders, or set data.root or SMDL_DATA to their folder"
    )


def get(name: str, root: str | Path | None = None) -> Path:
    """Return the folder of a data set in `root` (default: the cache). Download the set unless its files are there with
    the right checksums."""
    entry = _entry(name)
    base = cache_folder() if root is None else Path(root).expanduser()
    folder = base / entry.folders[0]
    if all((folder / file).is_file() and _sum(folder / file, right) == right for file, right in entry.files.items()):
        return folder
    try:
        for url, (file, checksum) in zip(entry.urls, entry.downloads.items(), strict=True):
            path = fetch(url, (base if entry.unpacked else folder) / file, checksum)
            if entry.unpacked:
                _unpack(path, folder)
                path.unlink()
    except DataError as error:
        raise DataError(
            f"{error}\nTry `smdl data get {name}` again; or download {', '.join(entry.urls)} by other means and put "
            f"{', '.join(entry.files)}{' (from the archive)' if entry.unpacked else ''} into {folder}"
        ) from error.__cause__
    return folder


def diagnosis(name: str, error: DamagedError) -> DataError:
    """Return the error for a damaged file, with its checksum and the remedy. The checksum is computed only here: at
    every load it would take too long."""
    expected = _entry(name).files.get(error.path.name)
    sums = (
        f" (checksum {_sum(error.path, expected)}, published: {expected})" if expected and error.path.is_file() else ""
    )
    return DataError(f"{error}{sums}\nDelete it and run `smdl data get {name}` to download it again")


def _entry(name: str) -> Entry:
    if name not in ENTRIES:
        raise DataError(unknown("downloadable data set", name, ENTRIES))
    return ENTRIES[name]


def _places(entry: Entry, root: str | Path | None) -> list[Path]:
    """Folders in which the files of a data set may be, in order."""
    bases = [root, os.environ.get("SMDL_DATA"), cache_folder(), SYSTEM]
    bases = [Path(base).expanduser() for base in bases if base]
    return [base / folder for base in bases for folder in ("", *entry.folders)]


def _lack(place: Path, entry: Entry) -> str:
    """Say which files are missing from a folder; an empty string if none is."""
    if not place.is_dir():
        return " (no such folder)"
    missing = [file for file in entry.files if not (place / file).is_file()]
    if missing:
        return " (none of them)" if len(missing) == len(entry.files) else f" (lacks {', '.join(missing)})"
    other = _owner(place, entry)
    return "" if other is None else f" (holds {other})"


def _owner(place: Path, entry: Entry) -> str | None:
    """Return the other data set that the files of a folder belong to, if any: MNIST and Fashion-MNIST have the same
    file names. The last file is the smallest, so its checksum takes no time."""
    file = list(entry.files)[-1]
    for name, other in ENTRIES.items():
        if other is not entry and file in other.files and _sum(place / file, other.files[file]) == other.files[file]:
            return name
    return None


def _sum(path: Path, like: str) -> str:
    """Checksum of a file, by the algorithm of the checksum `like`."""
    algorithm = like.partition(":")[0]
    return f"{algorithm}:{digest(path, algorithm)}"


def _unpack(archive: Path, folder: Path) -> None:
    """Unpack a tar.gz and put its folder into place once it is complete."""
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
