from collections import OrderedDict, defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import default_collate

from smdl.scoring.batches import height, join, move, take
from tests.toys import Pair


@st.composite
def collated(draw: st.DrawFn, batches: int = 1) -> tuple[list, list]:
    """Draw items of one random form, and the batches that default_collate makes of them."""

    def form(depth: int) -> st.SearchStrategy:
        leaves = st.sampled_from(["number", "vector", "array", "string"])
        if depth == 0:
            return leaves
        inner = form(depth - 1)
        return st.one_of(
            leaves,
            st.lists(inner, min_size=1, max_size=3).map(tuple),
            st.dictionaries(st.sampled_from("abc"), inner, min_size=1),
            st.tuples(inner, inner).map(lambda two: Pair(*two)),
        )

    def item(shape, number: int):
        if isinstance(shape, dict):
            return {key: item(inner, number) for key, inner in shape.items()}
        if isinstance(shape, tuple):
            parts = [item(inner, number) for inner in shape]
            return Pair(*parts) if isinstance(shape, Pair) else tuple(parts)
        vector = torch.arange(3.0) + number
        return {"number": number, "vector": vector, "array": vector.numpy(), "string": f"sample {number}"}[shape]

    shape = draw(form(2))
    sizes = draw(st.lists(st.integers(1, 4), min_size=batches, max_size=batches))
    items = [item(shape, number) for number in range(sum(sizes))]
    ends = np.cumsum(sizes)
    return items, [default_collate(items[end - size : end]) for size, end in zip(sizes, ends, strict=True)]


def same(one, other) -> bool:
    """Return whether both are equal in form, types and values."""
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    return one == other


def test_rows_of_several_shapes_are_not_joined():
    with pytest.raises(ValueError, match=r"rows have one shape, got rows of shapes \(2,\) and \(3,\)"):
        join([(torch.zeros(4, 2),), (torch.zeros(4, 3),)])


@given(collated(), st.data())
def test_rows_taken_from_a_batch_are_the_batch_of_those_rows(made, data):
    items, (batch,) = made
    rows = data.draw(st.lists(st.integers(0, len(items) - 1), min_size=1, max_size=5))
    assert same(take(batch, np.array(rows)), default_collate([items[row] for row in rows]))


@given(collated(batches=3))
def test_batches_joined_are_the_batch_of_all_their_rows(made):
    items, batches = made
    assert same(join(batches), default_collate(items))
    assert height(join(batches)) == len(items)


def test_arrays_and_the_types_of_containers_survive():
    batch = OrderedDict(x=np.arange(6).reshape(3, 2), names=["a", "b", "c"], pair=Pair(torch.arange(3), torch.ones(3)))
    taken = take(batch, np.array([2, 0]))
    assert type(taken) is OrderedDict
    assert type(taken["pair"]) is Pair
    assert taken["x"].tolist() == [[4, 5], [0, 1]]
    assert taken["names"] == ["c", "a"]
    assert join([batch, batch])["x"].shape == (6, 2)
    assert take(defaultdict(list, x=torch.arange(3)), np.array([1]))["x"].tolist() == [1]


def test_a_number_for_the_whole_batch_stays_as_it_is():
    batch = (torch.tensor(7.0), torch.arange(3))
    assert take(batch, np.array([2]))[0].item() == 7
    assert join([batch, batch])[0].item() == 7
    assert height(batch) == 3


def test_moving_reaches_every_tensor_and_leaves_the_rest():
    moved = move({"x": torch.ones(2), "deep": [(torch.ones(2), ["a", "b"])], "array": np.ones(2)}, torch.device("meta"))
    assert moved["x"].device.type == moved["deep"][0][0].device.type == "meta"
    assert moved["deep"][0][1] == ["a", "b"]
    assert isinstance(moved["array"], np.ndarray)


def test_rows_that_do_not_line_up_are_refused():
    """A list of samples, as some collate_fn return it, has no columns."""
    samples = [(torch.ones(4), torch.tensor([k])) for k in range(3)]
    for batch in (samples, (torch.ones(3), torch.ones(5))):
        with pytest.raises(ValueError, match=r"one row per sample in every column, got columns of \d and \d rows"):
            take(batch, np.array([0]))


def test_what_has_no_rows_is_refused():
    with pytest.raises(ValueError, match="must be made of tensors, arrays, lists, tuples and dicts, got Thing"):
        take((torch.ones(2), type("Thing", (), {})()), np.array([0]))
    with pytest.raises(ValueError, match="one row per sample"):
        height({"temperature": torch.tensor(1.0)})
