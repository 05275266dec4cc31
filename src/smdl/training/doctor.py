"""smdl doctor: report versions, devices and data, and what would fail."""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from smdl.common import memory
from smdl.common.environment import CORE, EXTRA_PACKAGES, environment, pick_device, versions
from smdl.common.messages import not_installed
from smdl.common.storage import cache_folder
from smdl.common.units import size_text
from smdl.training.datasets import catalogue


def report() -> int:
    """Print what was found. Return 1 if something would fail, else 0."""
    here = environment(pick_device("auto"))
    del here["packages"], here["command"]
    for name, value in here.items():
        print(f"{name:<13}{value}")
    print(f"{'memory':<13}{size_text(memory.available())} free")
    print(f"{'devices':<13}{', '.join(devices())}")
    print(f"{'packages':<13}{_packages(CORE)}")
    for extra, packages in EXTRA_PACKAGES.items():
        print(f"{extra:<13}{_packages(packages, extra)}")
    for name in catalogue.ENTRIES:
        folder = catalogue.search(name) or f"not found; `smdl data get {name}` downloads it"
        print(f"{'data':<13}{name}: {folder}")
    problems = {name: check() for name, check in CHECKS.items()}
    for name, problem in problems.items():
        print(f"{'FAILS':<13}{name}: {problem}" if problem else f"{'ok':<13}{name}")
    failures = sum(problem is not None for problem in problems.values())
    print(f"{failures} of {len(CHECKS)} checks failed" if failures else "nothing that is installed would fail")
    return min(failures, 1)


def _packages(names: Sequence[str], extra: str | None = None) -> str:
    """Return the versions of packages, and what installs those that are missing."""
    found = versions(names)
    missing = [name for name in names if name not in found]
    shown = ", ".join(f"{name} {version}" for name, version in found.items())
    return "; ".join(filter(None, [shown, not_installed(missing, extra) if missing and extra else ""]))


def devices() -> list[str]:
    """List the devices that torch can compute on."""
    found = ["cpu"]
    found += [f"cuda:{index} ({torch.cuda.get_device_name(index)})" for index in range(torch.cuda.device_count())]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _selects() -> str | None:
    """Select a small batch; the first time this compiles kernels."""
    import smdl

    try:
        pool = smdl.Pool(torch.rand(20, 4))
        selected = smdl.select(pool, smdl.Objective(redundancy=1.0), 5)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if len(set(selected.indices.tolist())) == 5 else "a sample was selected twice"


def _writable(folder: Path) -> str | None:
    """Create a file in the folder, or in its nearest parent that exists, and check the free space."""
    near = folder
    while not near.exists() and near != near.parent:
        near = near.parent
    try:
        with tempfile.TemporaryFile(dir=near):
            pass
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    free = shutil.disk_usage(near).free
    return None if free > 200e6 else f"only {size_text(free)} are free in {folder}"


def _data_folder() -> str | None:
    """Check that SMDL_DATA, if it is set, is a folder."""
    given = os.environ.get("SMDL_DATA")
    return None if given is None or Path(given).is_dir() else f"SMDL_DATA is {given}, which is not a folder"


CHECKS: dict[str, Callable[[], str | None]] = {
    "selecting a batch": _selects,
    "writing to runs/": lambda: _writable(Path("runs")),
    "writing to the cache": lambda: _writable(cache_folder()),
    "SMDL_DATA": _data_folder,
}
