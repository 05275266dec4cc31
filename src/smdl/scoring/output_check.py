"""Compare what the layer before the outputs made with the model's outputs, row by row, in every training forward.

Where they are equal, the rows inside the model are in the order of its inputs, and the layer is the head. This was so
when the model was first looked at, in eval mode. In training a model may shuffle or sort its rows, and an adapter, a
temperature or a prior may come to add to what the layer makes.
"""

import torch
from torch import Tensor

from smdl.scoring.row_matching import answers_at_once

#: Relative differences that are rounding.
ROUNDING, SHORT_ROUNDING = 1e-5, 2.0**-7
#: Rows that are looked for among the others.
ASKED = 16


def agreement(made: Tensor, outputs: Tensor, shifted: bool) -> Tensor | None:
    """Return which rows are equal up to rounding, (B,) bool; None if all are, as far as that is known without waiting
    for a device. With `shifted`, up to a constant per row, which a softmax removes and log_softmax adds. Rows that are
    not finite count as equal."""
    if answers_at_once(made) and torch.equal(made, outputs):
        return None
    equal = ~(_gaps(made, outputs, shifted) > _tolerance(made, outputs))
    return None if answers_at_once(made) and bool(equal.all()) else equal


def are_moved(made: Tensor, outputs: Tensor, agrees: Tensor, shifted: bool) -> bool:
    """Whether the rows that do not agree are equal to other rows of what the layer made: all of a sample of them."""
    rows = (~agrees).nonzero()[:ASKED, 0]
    one, all_made = outputs[rows, None], made[None].expand(len(rows), *made.shape)  # (R, 1, W), (R, B, W)
    equal = ~(_gaps(all_made, one, shifted) > _tolerance(all_made, one))
    return bool(equal.any(dim=1).all())


def _gaps(made: Tensor, outputs: Tensor, shifted: bool) -> Tensor:
    gaps = made.float() - outputs.float()
    return (gaps - gaps[..., :1] if shifted else gaps).abs().amax(dim=-1)


def _tolerance(made: Tensor, outputs: Tensor) -> Tensor:
    long = (torch.float32, torch.float64)
    rounding = ROUNDING if made.dtype in long and outputs.dtype in long else SHORT_ROUNDING
    return rounding * (made.abs().amax(dim=-1) + outputs.abs().amax(dim=-1)).float()
