"""Sizes in words: three digits, and the unit that fits them."""

import pytest

from smdl.common.units import size_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1536, "1.54 kB"), (999_400, "999 kB"), (999_600, "1 MB"),
     (2.5e9, "2.5 GB"), (3e12, "3 TB")],
)  # fmt: skip
def test_a_size_has_three_digits_and_a_unit(count, text):
    assert size_text(count) == text
