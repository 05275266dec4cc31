"""The environment of a run: versions, device, threads, commit."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from smdl import __version__
from smdl.common.messages import choice

#: The distributions that smdl needs itself, and those that each extra adds.
CORE = ("jsonargparse", "numba", "numpy", "torch")
_PAGES = ("filelock", "Jinja2", "matplotlib", "pillow", "rich")
EXTRA_PACKAGES = {
    "train": (*_PAGES, "pooch", "PyYAML", "requests", "safetensors", "scikit-learn", "scipy"),
    "select": (*_PAGES, "fsspec", "pyarrow", *(["faiss-cpu"] if sys.platform == "linux" else [])),
    "label": ("scikit-learn",),
    "ray": ("ray",),
    "text": ("sentence-transformers",),
    "accelerate": ("accelerate",),
    "lightning": ("lightning",),
    "skorch": ("skorch",),
    "tensorboard": ("tensorboard",),
    "transformers": ("accelerate", "transformers"),
}


def environment(device: torch.device) -> dict[str, Any]:
    """Return everything that the numbers of a run depend on."""
    return {
        "smdl": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": processor(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "packages": versions((*CORE, *EXTRA_PACKAGES["train"])),
        "command": command(),
    }


def command() -> str:
    """Return the command line of this process, quoted for a shell."""
    name = Path(sys.argv[0]).name
    return shlex.join(["smdl" if name == "__main__.py" else name, *sys.argv[1:]])


def pick_device(name: str) -> torch.device:
    """Return a device by name. `auto` is cuda, mps or cpu, whichever is found first."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        float(torch.zeros(1, device=device))  # the device `meta` has no numbers
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ValueError(choice("device", name, "auto, cpu, or an available device") + f" ({error})") from error
    return device


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    return {name: found for name in packages if (found := installed(name))}


def installed(package: str) -> str | None:
    """Return the version of a package, or None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """Return the commit of smdl, marked if files differ from it; None if smdl is not in a git checkout."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def cores() -> int:
    """Return the number of usable cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """Return the name of the processor and the number of usable cores."""
    name = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return f"{name}, {cores()} cores"
