"""What spreadsheets do to ids is forgiven; another id is not."""

import pytest

from smdl.labelling.same_cell import is_same


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("a17", "a17"),
        ("61", "0061"),
        ("1.0", 1),
        ("1", 1.0),
        ("1,5", 1.5),
        ("'0061", "0061"),
        ("TRUE", True),
        (" two  words ", "two\nwords"),
        ("1.23457E+19", "12345678901234567890"),
        ("1234567890123450000", "1234567890123456789"),
        ("1.00E+05", "1E5"),
        ("0.3", 0.1 + 0.2),
        ("12-Mar", "3-12"),
        ("1-Mar", "MAR1"),
        ("2-Sep", "SEPT2"),
        ("05/01/2024", "2024-01-05"),
        ("1/5/24", "2024-01-05"),
        ("12.03.2026", "3-12"),
        ("na?ve ??", "naïve \N{GRINNING FACE}"),
        ("na?ve ?", "naïve \N{GRINNING FACE}"),
        ("???é\N{GRINNING FACE}?", "\N{GRINNING FACE}?é\N{GRINNING FACE}ß"),
        ("caf\u0065\u0301", "caf\u00e9"),
    ],
)
def test_what_a_spreadsheet_makes_of_an_id_is_the_same_id(cell, value):
    assert is_same(cell, value)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("a18", "a17"),
        ("a17", "A17"),
        ("", "0"),
        ("62", "0061"),
        ("610", "0061"),
        ("-1", "1"),
        ("FALSE", True),
        ("1", True),
        ("123456789012345679", "123456789012345678"),
        ("1.23467E+19", "12345678901234567890"),
        ("2024-05-01", "2024-01-05"),
        ("3-12", "12-3"),
        ("12-Apr", "3-12"),
        ("06/01/2024", "2024-01-05"),
        ("12.03.2026 10:00", "3-12"),
        ("3-12", "3-12-14"),
        ("n??ves", "naïve"),
        ("n??ve", "naïve"),
        ("????", "a\N{GRINNING FACE}b"),
        ("?????", "\N{GRINNING FACE}\N{GRINNING FACE}"),
        ("a?b", "acb"),
        ("1e999", "2e999"),
    ],
)
def test_another_id_is_another_id(cell, value):
    assert not is_same(cell, value)


def test_long_values_of_lost_letters_are_compared_at_once():
    """By trying one way after the other this would take longer than anybody can wait."""
    assert is_same("?" * 60, "这" * 60)
    assert not is_same("?" * 60, "这" * 58 + " b")
    assert is_same("?" * 90 + " b", "\N{GRINNING FACE}" * 60 + " b")
    assert not is_same("?" * 90 + " c", "\N{GRINNING FACE}" * 60 + " b")
