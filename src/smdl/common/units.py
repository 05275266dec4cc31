"""Times and sizes in words."""

import math


def duration(seconds: float) -> str:
    """Return a time in words, rounded up: "a second", "40 s", "3 min"."""
    if seconds < 1:
        return "a second"
    return f"{math.ceil(seconds)} s" if seconds < 120 else f"{math.ceil(seconds / 60)} min"


def size_text(count: float) -> str:
    """Return a number of bytes in words: "1.54 GB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:  # which is rounded to 1000
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} TB"


def share_text(share: float) -> str:
    """Return a share in percent; a small one is not 0.0%."""
    return "< 0.1%" if 0 < share < 0.0005 else f"{share:.1%}"
