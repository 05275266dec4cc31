"""How much memory is left."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: Assumed where the system does not say: bytes.
UNKNOWN = 4 << 30


def available(device: "torch.device | None" = None) -> int:
    """Return the bytes that this process may still use: of the device, else of the machine, its container's limit and
    its own limits (`ulimit`) included."""
    if device is not None and device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    found = [_machine(), *_container(), *_own_limits()]
    return max(0, min(found))


def _machine() -> int:
    with suppress(OSError, StopIteration, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1])
    with suppress(OSError, ValueError, AttributeError):  # macOS: half of the memory is a guess
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return UNKNOWN


def _container() -> list[int]:
    """Return what the limit of the control group leaves, if there is one."""
    with suppress(OSError, ValueError):
        folder = Path("/sys/fs/cgroup")
        limit, used = ((folder / name).read_text().strip() for name in ("memory.max", "memory.current"))
        return [int(limit) - int(used)]
    return []


def _own_limits() -> list[int]:
    """Return what RLIMIT_AS and RLIMIT_DATA leave."""
    if sys.platform == "win32":
        return []
    import resource

    left = []
    with suppress(OSError, ValueError, IndexError):
        pages = [int(word) for word in Path("/proc/self/statm").read_text().split()]
        page = os.sysconf("SC_PAGE_SIZE")
        for limit, used in ((resource.RLIMIT_AS, pages[0] * page), (resource.RLIMIT_DATA, pages[5] * page)):
            soft, _ = resource.getrlimit(limit)
            if soft != resource.RLIM_INFINITY:
                left.append(soft - used)
    return left
