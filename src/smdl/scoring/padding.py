"""Padding: batches whose rows were padded to different lengths become batches of one length."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import functional as F

from smdl.common.messages import number
from smdl.scoring.batches import in_form

Padding = Mapping[Any, float] | float | None

#: The mask by which tokenizers say what is padding, and the value that losses ignore in a column of this name.
MASK, IGNORED = "attention_mask", {"labels": -100}


def check_padding(padding: Any) -> Padding:
    """Return the padding if it is a number, or a dict of numbers by column."""
    values = padding.values() if isinstance(padding, Mapping) else [] if padding is None else [padding]
    for value in values:
        number("padding", value, "a number, or a dict of column: number")
    return padding


def same_length(batches: Sequence[Any], padding: Padding) -> Sequence[Any]:
    """Return the batches with every tensor padded along its second dimension to the longest of them.

    padding   the value for every column, or values by column. By default batches with an `attention_mask` are padded
              with 0, and their `labels` with −100. They are padded on the side where the mask shows padding.
    """
    first = batches[0]
    if len(batches) == 1 or not isinstance(first, Mapping | tuple | list):
        return batches
    places = list(first) if isinstance(first, Mapping) else list(range(len(first)))
    columns = {place: same_length([batch[place] for batch in batches], padding) for place in places}
    uneven = [place for place in places if _differ(columns[place])]
    values = _values(first, uneven, padding)
    left = MASK in uneven and _padded_on_the_left(columns[MASK])
    columns |= {place: _padded(columns[place], values[place], left) for place in uneven}
    return [in_form(first, [columns[place][k] for place in places]) for k in range(len(batches))]


def _differ(column: Sequence[Any]) -> bool:
    """Whether these tensors, one per batch, have rows of different lengths and can be padded."""
    if not all(isinstance(part, Tensor) and part.ndim >= 2 for part in column):
        return False
    same_rest = len({(part.ndim, part.shape[2:]) for part in column}) == 1
    return same_rest and len({part.shape[1] for part in column}) > 1


def _values(batch: Any, uneven: list[Any], padding: Padding) -> dict[Any, float]:
    if padding is None and isinstance(batch, Mapping) and MASK in uneven:
        return {place: IGNORED.get(place, 0) for place in uneven}
    given = padding if isinstance(padding, Mapping) else {} if padding is None else dict.fromkeys(uneven, padding)
    for place in uneven:
        if place not in given:
            raise ValueError(
                f"rows of column {place!r} have different lengths in the batches that are joined: pass padding=, the"
                f" value that fills the shorter ones, or a dict of column: value for {', '.join(map(repr, uneven))}"
            )
    return {place: given[place] for place in uneven}


def _padded_on_the_left(masks: Sequence[Tensor]) -> bool:
    starts = any(bool((mask[:, 0] == 0).any()) for mask in masks)
    return starts and all(bool((mask[:, -1] != 0).all()) for mask in masks)


def _padded(column: Sequence[Tensor], value: float, left: bool) -> list[Tensor]:
    """Return the tensors with rows as long as the longest."""
    longest, made = max(part.shape[1] for part in column), []
    for part in column:
        missing, later = longest - part.shape[1], [0, 0] * (part.ndim - 2)  # F.pad starts with the last dimension
        made.append(F.pad(part, [*later, missing, 0] if left else [*later, 0, missing], value=value))
    return made
