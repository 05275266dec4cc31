"""Whether a cell of a table still shows the value that was written there, whatever a spreadsheet made of it."""

import re
import unicodedata
from collections import Counter
from decimal import Decimal
from typing import Any

_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_MONTHS = ("january", "february", "march", "april", "may", "june", "july")
_MONTHS += ("august", "september", "october", "november", "december")


def is_same(cell: Any, value: Any) -> bool:
    """Return whether a cell shows a value. Spreadsheets drop zeros (0061, 1.0), round (1.23457E+19), add an apostrophe,
    write dates (3-12, MAR1) and TRUE in their own way, and put ? for letters that their encoding lacks."""
    found, wanted = _plain(cell), _plain(value)
    if found == wanted or found.removeprefix("'") == wanted.removeprefix("'"):
        return True
    if wanted.casefold() in ("true", "false"):
        return found.casefold() == wanted.casefold()
    if _NUMBER.fullmatch(found) and _NUMBER.fullmatch(wanted):
        return _is_same_number(found, wanted)
    return _is_same_date(found, wanted) or _is_same_without_letters(found, wanted)


def _plain(value: Any) -> str:
    return " ".join(unicodedata.normalize("NFC", str(value)).split())


def _is_same_number(found: str, wanted: str) -> bool:
    """Compare as many digits as the cell has, or as a spreadsheet keeps: 15 of a whole number."""
    cell, value = (Decimal(text.replace(",", ".")) for text in (found, wanted))
    digits = len(re.sub(r"[eE].*|\D", "", found).strip("0"))
    is_whole = value == value.to_integral_value()
    least = 3 if "e" in found.casefold() else 15 if is_whole else 9
    return cell == value or abs(cell - value) < Decimal(1).scaleb(value.adjusted() + 1 - max(least, digits))


def _is_same_date(found: str, wanted: str) -> bool:
    """Whether both have the same day, month and year, in whatever order. A year may be added or lose its century."""
    if re.sub(r"\d+", "0", found) == re.sub(r"\d+", "0", wanted):
        return False  # not written in another way, so it is another date
    cell, value = _date_parts(found), _date_parts(wanted)
    if cell is None or value is None or sum(value.values()) < 2:
        return False
    more = cell - value
    return not value - cell and (not more or (sum(more.values()) == 1 and sum(value.values()) == 2))


def _date_parts(text: str) -> Counter[int] | None:
    """Return the numbers in a date, months among them, without zeros; None if it is no date."""
    parts: Counter[int] = Counter()
    for word in re.findall(r"\d+|[^\W\d]+", text):
        months = [place for place, name in enumerate(_MONTHS, 1) if len(word) > 2 and name.startswith(word.casefold())]
        if not word.isascii() or not (word.isdigit() or months) or len(word) > 9:
            return None
        number = int(word) if word.isdigit() else months[0]
        parts[number % 100 if 1900 <= number < 2100 else number] += 1
    del parts[0]
    return parts


def _is_same_without_letters(found: str, wanted: str) -> bool:
    """Whether ? is where the value has letters beyond ASCII: one for each, or two beyond U+FFFF, which has two units in
    UTF-16. All ways to read the cell are followed at once: bit i of `ends` is whether one of them ends before letter i.
    """
    pairs = sum(each > "\uffff" for each in wanted)
    if "?" not in found or not len(wanted) <= len(found) <= len(wanted) + pairs:
        return False
    places = Counter[str]()  # of each letter of the cell, as bits
    for place, each in enumerate(found):
        places[each] += 1 << place
    ends, lost = 1, places["?"]
    for each in wanted:
        after = (ends & places[each]) << 1
        if not each.isascii():
            after |= (ends & lost) << 1
        if each > "\uffff":
            after |= (ends & lost & lost >> 1) << 2
        ends = after
        if not ends:
            return False
    return bool(ends >> len(found))
