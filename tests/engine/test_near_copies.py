"""Near-copies equal plain loops over all pairs, also with cells, cut lists and identical rows."""

import numpy as np
import pytest
import torch

import smdl
from smdl.engine import near_copies, similar_pairs


def piles(seed=0, rows=300, width=6, copies=0.4, noise=0.15):
    """Random rows, some of them near-copies of others, some identical."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(rows, width))
    for row in np.flatnonzero(rng.random(rows) < copies):
        values[row] = values[rng.integers(rows)] + noise * rng.normal(size=width) * (rng.random() < 0.8)
    return values.astype(np.float32)


def by_loops(values, limit, prefer=None, against=None):
    """The rule as it is written: visit by preference, keep what is similar to no kept row."""
    first = 0 if against is None else len(against)
    rows = values if against is None else np.concatenate([against, values])
    unit = torch.nn.functional.normalize(torch.from_numpy(rows)).numpy()
    similar = unit @ unit.T
    for i in range(len(rows)):
        similar[i, (rows == rows[i]).all(axis=1)] = 1.0
    if prefer is None:
        prefer = (similar[first:, first:] >= limit).sum(axis=1) + (similar[first:, :first] >= limit).sum(axis=1)
    kept = list(range(first))
    for i in np.argsort(-np.asarray(prefer, float), kind="stable") + first:
        if not any(similar[i, j] >= limit for j in kept):
            kept.append(int(i))
    return sorted(row - first for row in kept if row >= first), similar[first:]


@pytest.mark.parametrize("limit", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_kept_as_by_loops_over_all_pairs(seed, limit):
    values = piles(seed)
    expected, similar = by_loops(values, limit)
    found = smdl.deduplicate(values, limit)
    assert found.kept.tolist() == expected
    for row, other in enumerate(found.copy_of):
        if row != other:
            assert other in found.kept
            assert similar[row, other] >= limit - 1e-6
            assert similar[row, other] == pytest.approx(similar[row, found.kept].max(), abs=1e-6)
            assert found.similarity[row] == pytest.approx(similar[row, other], abs=1e-6)
    assert np.isnan(found.similarity[found.kept]).all()


@pytest.mark.parametrize("limit", [0.9, 0.97])
def test_the_first_or_the_highest_is_kept_on_request(limit):
    values, scores = piles(1), np.random.default_rng(5).permutation(300)
    assert smdl.deduplicate(values, limit, keep="first").kept.tolist() == by_loops(values, limit, -np.arange(300))[0]
    assert smdl.deduplicate(values, limit, keep_by=scores).kept.tolist() == by_loops(values, limit, scores)[0]


def test_another_threshold_needs_no_other_search(monkeypatch):
    values = piles(2)
    found = smdl.deduplicate(values, 0.95)
    monkeypatch.setattr(near_copies, "similar_pairs", lambda *_: pytest.fail("another search"))
    for limit in (0.9, 0.93, 0.99, 1.0):
        assert found.at(limit).kept.tolist() == by_loops(values, limit)[0]
    thresholds, counts = found.curve(5)
    assert counts.tolist() == [len(by_loops(values, limit)[0]) for limit in thresholds]
    with pytest.raises(ValueError, match=r"at least the floor of the search, 0\.9, got 0\.8"):
        found.at(0.8)


def test_a_chain_keeps_both_of_its_ends():
    angles = np.radians([0, 15, 30])
    found = smdl.deduplicate(np.column_stack([np.cos(angles), np.sin(angles)]), 0.95, keep="first")
    assert found.kept.tolist() == [0, 2]  # 1 is a copy of either; 2 is no copy of 0
    assert smdl.deduplicate(np.column_stack([np.cos(angles), np.sin(angles)]), 0.95).kept.tolist() == [1]


@pytest.mark.parametrize("limit", [0.9, 0.97])
def test_rows_against_others_are_compared_with_them_first(limit):
    values, others = piles(3), piles(4)[:80]
    others[:40] = values[:40] + np.float32(0.01)
    found = smdl.deduplicate(values, limit, against=others)
    expected, _ = by_loops(values, limit, against=others)
    assert found.kept.tolist() == expected
    leaks = np.flatnonzero(found.against >= 0)
    assert {0, 1, 2} <= set(leaks.tolist())
    assert (found.copy_of[leaks] == -1).all()


def test_a_row_like_one_of_against_is_its_copy_even_if_a_kept_row_is_nearer():
    angles = np.deg2rad([15, 20])
    found = smdl.deduplicate(np.column_stack([np.cos(angles), np.sin(angles)]), 0.95, against=np.array([[1.0, 0.0]]))
    assert (found.kept.tolist(), found.against.tolist(), found.copy_of.tolist()) == ([1], [0, -1], [-1, 1])
    assert found.similarity[0] == pytest.approx(np.cos(angles[0]))


def large_groups():
    """Rows whose lists are cut, and others like some of them."""
    rng = np.random.default_rng(1)
    noise = np.repeat([0.02, 0.1, 0.2, 0.3], 120)[:, None]
    values = (np.repeat(rng.normal(size=(4, 16)), 120, axis=0) + noise * rng.normal(size=(480, 16))).astype(np.float32)
    return values, values[::20] + np.float32(0.01)


@pytest.mark.parametrize("limit", [0.85, 0.9, 0.95, 0.99])
def test_all_copies_of_against_are_found_though_lists_are_cut(limit, monkeypatch):
    values, others = large_groups()
    monkeypatch.setattr(near_copies, "BLOCK", 7)
    found = smdl.deduplicate(values, limit, against=others)
    unit = [torch.nn.functional.normalize(torch.from_numpy(rows)) for rows in (values, others)]
    similar = (unit[0] @ unit[1].T).numpy()
    leaks = (similar >= limit).any(axis=1)
    assert ((found.against >= 0) == leaks).all()
    assert found.similarity[leaks] == pytest.approx(similar.max(axis=1)[leaks], abs=1e-6)
    assert found.kept.tolist() == by_loops(values, limit, against=others)[0]


def test_the_rows_of_against_are_compared_once_whatever_the_threshold(monkeypatch):
    values, others = large_groups()
    others = others[:6]  # like rows of one group: lists of the other groups are cut too, and hold no row of these
    found = smdl.deduplicate(values, 0.9, keep="first", against=others)
    read, original = [], near_copies.UnitRows.__getitem__
    monkeypatch.setattr(near_copies.UnitRows, "__getitem__", lambda self, at: (read.append(at), original(self, at))[1])
    thresholds, counts = found.curve(9)
    assert found.at(0.9).copy_of.tolist() == found.copy_of.tolist()
    assert not [at for at in read if isinstance(at, slice) and at.stop <= len(others)]
    unit = [torch.nn.functional.normalize(torch.from_numpy(rows)) for rows in (values, others)]
    best = (unit[0] @ unit[1].T).numpy().max(axis=1)
    for limit, count in zip(thresholds.tolist(), counts.tolist(), strict=True):
        expected = by_loops(values, limit - near_copies.TOLERANCE, -np.arange(len(values)), others)[0]
        again = found.at(limit)
        assert again.kept.tolist() == expected
        assert count == len(expected)
        leaks = again.against >= 0
        assert (leaks == (best >= limit - near_copies.TOLERANCE)).all()
        assert again.similarity[leaks] == pytest.approx(best[leaks], abs=1e-6)


@pytest.mark.parametrize("width", [16, 384, 4096])
def test_scaled_copies_have_the_similarity_one(width):
    values = np.random.default_rng(0).normal(size=(200, width)).astype(np.float32)
    rows = np.concatenate([values, values * np.float32(3), values * np.float32(0.1)])
    assert smdl.deduplicate(rows, 1.0).kept.tolist() == list(range(200))
    assert smdl.deduplicate(rows, 0.95).at(1.0).kept.tolist() == list(range(200))
    assert len(smdl.deduplicate(rows, 1.0, against=values).kept) == 0


def test_new_rows_against_kept_ones_are_never_near_copies():
    values = piles(6, rows=600)
    old = values[smdl.deduplicate(values[:300], 0.95).kept]
    new = values[300:][smdl.deduplicate(values[300:], 0.95, against=old).kept]
    unit = torch.nn.functional.normalize(torch.from_numpy(np.concatenate([old, new])))
    assert (unit @ unit.T).fill_diagonal_(0).max() < 0.95


def test_cells_find_what_all_pairs_find(monkeypatch):
    values = piles(7, rows=3000, width=100, noise=0.05)
    exact = smdl.deduplicate(values, 0.95)
    monkeypatch.setattr(similar_pairs, "EXACT_ROWS", 1000)
    monkeypatch.setattr(similar_pairs, "_all_pairs", lambda *_: iter(()))
    found = smdl.deduplicate(values, 0.95)
    assert found.recall >= 0.999
    assert np.mean(found.copy_of == exact.copy_of) >= 0.999


def test_cells_that_miss_pairs_are_not_used(monkeypatch):
    values = piles(8, rows=2000, width=40, noise=0.3)
    exact = smdl.deduplicate(values, 0.7)
    monkeypatch.setattr(similar_pairs, "EXACT_ROWS", 500)
    monkeypatch.setattr(similar_pairs, "PROBES", (1, 1))
    monkeypatch.setattr(similar_pairs, "RECALL", 1.0)
    found = smdl.deduplicate(values, 0.7)
    assert found.recall == 1.0
    assert found.copy_of.tolist() == exact.copy_of.tolist()


@pytest.mark.parametrize("against", [False, True])
def test_very_long_lists_are_cut_without_a_loss(monkeypatch, against):
    rng = np.random.default_rng(9)
    values = (rng.normal(size=(3, 8))[rng.integers(3, size=400)] + 0.01 * rng.normal(size=(400, 8))).astype(np.float32)
    others = values[:1] + np.float32(0.001) if against else None
    monkeypatch.setattr(similar_pairs, "LONGEST", 5)
    found = smdl.deduplicate(values, 0.9, against=others)
    assert len(found.kept) == (2 if against else 3)
    assert (found.copy_of[found.against < 0] >= 0).all()


def test_equal_rows_are_one_group_and_cost_no_pairs():
    values = np.ones((20_000, 4), np.float32)
    found = smdl.deduplicate(values)
    assert found.kept.tolist() == [0]
    assert (found.copy_of == 0).all()
    assert len(found.search.pairs.others) == 0
    assert smdl.deduplicate(values, keep_by=np.arange(20_000)).kept.tolist() == [19_999]


def test_pairs_near_the_threshold_are_on_their_sides_of_it():
    values = piles(10)
    found = smdl.deduplicate(values, 0.95)
    unit = torch.nn.functional.normalize(torch.from_numpy(values)).numpy()
    above, below = found.pairs(5)
    assert len(above) == len(below) == 5
    assert all(unit[i] @ unit[j] >= 0.95 - 1e-6 for i, j in above)
    assert all(unit[i] @ unit[j] < 0.95 for i, j in below)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": 0.0}, r"similarity must be a number in \(0, 1\], got 0.0"),
        ({"similarity": 1.5}, r"similarity must be a number in \(0, 1\], got 1.5"),
        ({"floor": 0.99}, "floor must be at most the similarity"),
        ({"keep": "last"}, "unknown keep 'last'"),
        ({"keep_by": np.zeros(3)}, "keep_by must be 5 finite numbers"),
        ({"keep_by": [1, 2, np.nan, 4, 5]}, "keep_by must be 5 finite numbers, got nan for row 2"),
        ({"against": np.ones((2, 3))}, "the width of against must be that of the features, 2, got 3"),
        ({"features": np.array([[0.0, 0.0], [1.0, 0.0]])}, "not all zeros, got row 0"),
        ({"features": np.array([[np.nan, 0.0], [1.0, 0.0]])}, "as float32, are finite"),
        ({"features": np.full((2, 2), 1e300)}, "as float32, are finite and not all zeros, got row 0 and 1 more"),
        ({"features": np.ones(3)}, "features must be numbers of shape"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        smdl.deduplicate(**{"features": np.ones((5, 2)), "similarity": 0.95} | options)


@pytest.mark.parametrize("exponent", [-100, -80, 66, 124])
def test_a_power_of_two_changes_no_row_that_is_kept(exponent):
    """Squares of float32 below 2^-75 or above 2^64 are zero or infinite."""
    values = piles(11)
    expected, found = smdl.deduplicate(values), smdl.deduplicate(np.ldexp(values, exponent))
    assert found.kept.tolist() == expected.kept.tolist()
    assert found.similarity.tobytes() == expected.similarity.tobytes()
    own = np.arange(len(values)) % 2 * exponent  # the same row at two scales is a copy of similarity 1
    mixed = smdl.deduplicate(np.ldexp(values, own[:, None]))
    assert mixed.kept.tolist() == expected.kept.tolist()


def test_bfloat16_is_read_as_float32():
    values = torch.from_numpy(piles(12)).bfloat16()
    prefer = torch.arange(len(values)).bfloat16()
    found = smdl.deduplicate(values, keep_by=prefer, against=values[:3])
    expected = smdl.deduplicate(values.float(), keep_by=prefer.float(), against=values[:3].float())
    assert found.copy_of.tolist() == expected.copy_of.tolist()
    assert smdl.score(values).rank.tolist() == smdl.score(values.float()).rank.tolist()


def test_one_row_is_kept():
    assert smdl.deduplicate(torch.ones(1, 3)).kept.tolist() == [0]


@pytest.mark.parametrize("count", [1, 5, 40])
def test_the_nearest_cells_are_those_of_a_full_sort(count):
    values = torch.rand(30, 40 * similar_pairs.GROUP, generator=torch.Generator().manual_seed(0))
    found = similar_pairs._largest(values, count)
    assert found.tolist() == values.argsort(dim=1, descending=True)[:, :count].tolist()
