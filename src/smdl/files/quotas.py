"""How many rows of each group may be chosen: by --per_group, or by --shares within --at_least and --per_group."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from smdl.engine.shares import SHARES, quotas_of_shares
from smdl.files.file_paths import suffix_of
from smdl.files.request import SelectRequest
from smdl.files.row_files import RowFile
from smdl.files.rows import FORMATS, Rows, numbered, open_file


def quotas_of(
    request: SelectRequest, source: Rows, mask: np.ndarray, size: int | None, note: Callable[[str], None]
) -> dict[str, int] | None:
    """Return the most rows per group, by the text of its name; None if nothing limits them. `mask` says which rows may
    be chosen."""
    if request.per_group is None and request.shares is None:
        return None
    names, numbers = numbered(source.column("groups")[mask])
    texts, counts = _texts(names), np.bincount(numbers, minlength=len(names))
    if request.shares is None:
        return {text: min(int(count), request.per_group or 0) for text, count in zip(texts, counts, strict=True)}
    if size is None:
        raise ValueError("--shares needs --size or --fraction: the number of rows that they divide")
    given = _given(request, texts)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        quotas = quotas_of_shares(given["shares"], texts, counts, size, given["at_least"], given["per_group"])
    for warning in caught:
        note(str(warning.message))
    return dict(zip(texts, quotas.tolist(), strict=True))


def _texts(names: list[Any]) -> list[str]:
    """Return the texts of distinct names. Two names of one text are an error: they would share a quota."""
    found: dict[str, Any] = {}
    for name in names:
        if str(name) in found:
            other = found[str(name)]
            raise ValueError(f"--groups holds {other!r} and {name!r}, which are written alike: give both one type")
        found[str(name)] = name
    return list(found)


def _given(request: SelectRequest, groups: list[str]) -> dict[str, Any]:
    """Return the shares and limits: of the options, and of a file with the columns group, share, minimum, maximum. Of
    two limits of a group, the stricter one holds."""
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
    found["shares"] = _numbers(file, "share", texts)
    for column, option, stricter in (("minimum", "at_least", max), ("maximum", "per_group", min)):
        if column in file.columns:
            limits, every = _numbers(file, column, texts), found[option]
            if every is not None:
                limits |= {group: stricter(every, limits.get(group, every)) for group in groups}
            found[option] = limits
    return found


def _numbers(file: RowFile, column: str, groups: list[str]) -> dict[str, float]:
    """Return the numbers of the groups. A limit may be missing, a share may not."""
    what, values, found = f"--shares: {column} of {file.path}", file.column(column), {}
    if values.dtype.kind not in "fiu":
        raise ValueError(f"{what} must be numbers")
    rule = "a number ≥ 0" if column == "share" else "a whole number ≥ 0"
    for group, value in zip(groups, values.tolist(), strict=True):
        if math.isnan(value) and column != "share":
            continue
        if not (0 <= value < math.inf and (column == "share" or value == int(value))):
            raise ValueError(f"{what} must be {rule}, got {value} for the group {group!r}")
        found[group] = value if column == "share" else int(value)
    return found
