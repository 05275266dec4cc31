"""How many rows of each group may be chosen: by --per_group, or by --shares within --at_least and --per_group."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from smdl.engine.shares import SHARES, quotas_of_shares
from smdl.files.file_paths import suffix_of
from smdl.files.request import SelectRequest
from smdl.files.rows import FORMATS, Rows, numbered, open_file

#: Columns of a file of --shares, and what they are in Python.
COLUMNS = {"share": "shares", "minimum": "at_least", "maximum": "per_group"}


def quotas_of(
    request: SelectRequest, source: Rows, mask: np.ndarray, size: int | None, note: Callable[[str], None]
) -> dict[str, int] | None:
    """Return the most rows per group, by the text of its name; None if nothing limits them. `mask` says which rows may
    be chosen."""
    if request.per_group is None and request.shares is None:
        return None
    names, numbers = numbered(source.column("groups")[mask])
    texts, counts = [str(name) for name in names], np.bincount(numbers, minlength=len(names))
    if request.shares is None:
        return {text: min(int(count), request.per_group or 0) for text, count in zip(texts, counts, strict=True)}
    if size is None:
        raise ValueError("--shares needs --size or --fraction: the number of rows that they divide")
    given = _given(request)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quotas = quotas_of_shares(given["shares"], texts, counts, size, given["at_least"], given["per_group"])
    for warning in caught:
        note(str(warning.message))
    return dict(zip(texts, quotas.tolist(), strict=True))


def _given(request: SelectRequest) -> dict[str, Any]:
    """Return the shares and limits: of the options, or of a file with the columns group, share, minimum, maximum."""
    shares = str(request.shares)
    found: dict[str, Any] = {"shares": shares, "at_least": request.at_least, "per_group": request.per_group}
    if shares in SHARES:
        return found
    if suffix_of(shares) not in FORMATS:
        allowed = f"{', '.join(SHARES)}, or a file with the columns group and share"
        raise ValueError(f"--shares must be {allowed}, got {shares}")
    file = open_file(shares)
    if not {"group", "share"} <= set(file.columns):
        raise ValueError(f"--shares: {shares} must have the columns group and share, got {', '.join(file.columns)}")
    texts = [str(name) for name in file.exact("group", np.arange(file.rows))]
    if len(set(texts)) < len(texts):
        raise ValueError(f"--shares: {shares} must name each group once")
    for column, option in COLUMNS.items():
        if column in file.columns:
            found[option] = _numbers(file.column(column), texts, f"--shares: {column} of {shares}")
    return found


def _numbers(values: np.ndarray, texts: list[str], what: str) -> Mapping[str, float]:
    """Return the numbers by group, without those that are missing."""
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{what} must be numbers")
    plain = [int(value) if float(value).is_integer() else value for value in values.tolist()]
    return {text: value for text, value in zip(texts, plain, strict=True) if not math.isnan(value)}
