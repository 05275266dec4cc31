"""Where a run took place: versions, device, threads, commit."""

import os
import platform
import shlex
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from smdl import __version__
from smdl.errors import choice

_PACKAGES = ("torch", "numpy", "numba", "scikit-learn", "scipy", "matplotlib", "jsonargparse", "pooch", "safetensors")


def environment(device: torch.device) -> dict[str, Any]:
    """What the numbers of a run depend on."""
    return {
        "smdl": __version__,
        "commit": commit(),
        "python": platform.python_version(),
        "platform": platform.platform(terse=True),
        "processor": processor(),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "packages": {name: found for name in _PACKAGES if (found := installed(name))},
        "command": command(),
    }


def command() -> str:
    """What was typed, ready to be typed again."""
    name = Path(sys.argv[0]).name
    return shlex.join(["smdl" if name == "__main__.py" else name, *sys.argv[1:]])


def pick_device(name: str) -> torch.device:
    """A device by name; `auto` is the best there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(choice("device", name, "auto, cpu, or a device that is here") + f" ({error})") from error
    return device


def installed(package: str) -> str | None:
    """Its version, if it is there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit() -> str | None:
    """The commit smdl runs from, marked where files differ; None where it is not a checkout."""
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here, capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def processor() -> str:
    """The processor's name and how many cores may be used."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    except OSError:
        pass
    return f"{name}, {cores} cores"
