"""SavedState: every wrong value is refused by an error that names the key, the rule and the value."""

import numpy as np
import pytest
import torch

from smdl.common.saved_state import SavedState


def read(value, method, *args, **options):
    return getattr(SavedState("the state", {"key": value}, ["key"]), method)("key", *args, **options)


@pytest.mark.parametrize(
    ("value", "method", "args", "options", "message"),
    [
        (-1, "count", (), {}, "whole number ≥ 0, got -1"),
        (True, "count", (), {}, "whole number ≥ 0, got True"),
        (1, "flag", (), {}, "True or False, got 1"),
        (-0.5, "number", (0.0,), {}, "a number ≥ 0, got -0.5"),
        (torch.zeros(2), "flags", (2,), {}, r"2 flags, got float32 of shape \(2,\)"),
        (torch.zeros(3, dtype=torch.bool), "flags", (2,), {}, r"2 flags, got bool of shape \(3,\)"),
        (torch.zeros(3), "numbers", (2,), {}, "2 numbers, got float32"),
        (torch.zeros(2, 1), "numbers", (2,), {}, r"2 numbers, got float32 of shape \(2, 1\)"),
        (None, "numbers", (2,), {}, "2 numbers, got object"),
        ("ab", "numbers", (2,), {}, "2 numbers, got <U2"),
        (torch.tensor([torch.nan]), "numbers", (1,), {}, "1 numbers, got float32"),
        (torch.tensor([0.5]), "numbers", (), {"low": 1}, "numbers ≥ 1, got float32"),
        (torch.tensor([torch.inf]), "numbers", (), {"finite": True}, "numbers, finite, got float32"),
        (torch.tensor([0.0]), "whole", (1, -1), {}, "1 whole numbers ≥ -1, got float32"),
        (torch.tensor([-2]), "whole", (1, -1), {}, "1 whole numbers ≥ -1, got int64"),
        (torch.tensor([3]), "rows", (3,), {}, r"indices in 0..2, got int64 of shape \(1,\): \[3\]"),
        (torch.tensor([-1]), "rows", (3,), {}, "indices in 0..2"),
        (torch.tensor([1.0]), "rows", (3,), {}, "indices in 0..2, got float32"),
        (torch.tensor([1, 1]), "rows", (3,), {"once": True}, "indices in 0..2, each at most once"),
        (torch.zeros(2), "tensor", (torch.float32, 2, 2), {}, r"torch.float32 with 2 rows, got torch.float32 of shape"),
        (None, "tensor", (torch.float32, 1, 2), {}, "torch.float32 with 2 rows, got NoneType"),
    ],
)
def test_a_wrong_value_is_named(value, method, args, options, message):
    with pytest.raises((TypeError, ValueError), match=f"the state: key must be .*{message}"):
        read(value, method, *args, **options)


def test_right_values_are_copies():
    rows, scores = torch.tensor([2, 0]), torch.tensor([1.0, torch.nan])
    read(rows, "rows", 3)[:] = 1
    read(scores, "numbers", 2, unknown=True)[:] = 7.0
    read(scores, "tensor", torch.float32, 1, 2).zero_()
    assert rows.tolist() == [2, 0]
    assert scores[0] == 1.0
    assert read([], "rows", 3).dtype == np.int64
    assert read(torch.tensor([-1, 4]), "whole", 2, -1).tolist() == [-1, 4]


def test_other_keys_are_refused():
    with pytest.raises(ValueError, match="the state was not made by state_dict of this version: place missing"):
        SavedState("the state", {"order": 1}, ["order", "place"])
    with pytest.raises(ValueError, match="more not known"):
        SavedState("the state", {"order": 1, "more": 2}, ["order"])
    with pytest.raises(TypeError, match="a dict that state_dict returned, got 'list'"):
        SavedState("the state", [1], ["order"])
