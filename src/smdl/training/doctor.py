"""smdl doctor: what is here, and what would fail."""

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from smdl.training.datasets import catalogue
from smdl.training.environment import environment, pick_device
from smdl.training.files import cache_folder


def report(console: Console | None = None) -> int:
    """Print what was found; returns how many things would fail."""
    show = console or Console(highlight=False)
    here = environment(pick_device("auto"))
    packages = here.pop("packages")
    here.pop("command")
    for name, value in here.items():
        show.print(f"{name:<12}{value}")
    show.print(f"{'packages':<12}{', '.join(f'{name} {version}' for name, version in packages.items())}")
    show.print(f"{'devices':<12}{', '.join(devices())}")
    for name, _, _, folder in catalogue.catalogue():
        show.print(f"{'data':<12}{name}: {folder or 'not here, smdl data get ' + name + ' downloads it'}", markup=False)
    failures = 0
    for name, check in CHECKS.items():
        problem = check()
        failures += problem is not None
        show.print(
            f"{'ok' if problem is None else 'FAILS':<12}{name}{'' if problem is None else f': {problem}'}", markup=False
        )
    show.print("nothing would fail" if not failures else f"{failures} would fail")
    return min(failures, 1)


def devices() -> list[str]:
    """What torch can compute on here."""
    found = ["cpu"]
    found += [f"cuda:{index} ({torch.cuda.get_device_name(index)})" for index in range(torch.cuda.device_count())]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


def _selects() -> str | None:
    """A selection, compiled if need be."""
    import smdl

    try:
        pool = smdl.Pool(torch.rand(20, 4))
        chosen = smdl.select(pool, smdl.Objective(redundancy=1.0), 5)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if len(set(chosen.indices.tolist())) == 5 else "picked a sample twice"


def _writable(folder: Path) -> str | None:
    """A file can be made there, and there is room."""
    near = folder
    while not near.exists() and near != near.parent:
        near = near.parent
    try:
        with tempfile.TemporaryFile(dir=near):
            pass
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    free = shutil.disk_usage(near).free
    return None if free > 200e6 else f"{folder} has {free / 1e6:.0f} MB left"


def _root() -> str | None:
    """SMDL_DATA, where it is set, leads somewhere."""
    given = os.environ.get("SMDL_DATA")
    return None if given is None or Path(given).is_dir() else f"SMDL_DATA is {given}, which is no folder"


CHECKS: dict[str, Callable[[], str | None]] = {
    "selecting (compiles kernels the first time)": _selects,
    "writing runs/": lambda: _writable(Path("runs")),
    "writing the cache": lambda: _writable(cache_folder()),
    "SMDL_DATA": _root,
}
