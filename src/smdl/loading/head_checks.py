"""What refit_head asks of a head and its data: a linear layer of its own, without hooks, and finite numbers."""

import numpy as np
from torch import Tensor, nn
from torch.nn import functional as F

from smdl.scoring.model_access import eval_mode
from smdl.scoring.scorer import NotFiniteError, Scorer
from smdl.scoring.taps import FEW, is_plain, makes


def linear_head(scorer: Scorer) -> nn.Linear:
    """Return the linear layer that makes the outputs, or say why there is none that can be refitted."""
    network = scorer.network
    given = scorer.scoring.head
    head = given if isinstance(given, nn.Module) else network.tap
    if not (network.knows_head and isinstance(head, nn.Linear) and is_plain(head)):
        raise ValueError(
            f"refit_head needs a head that is a plain nn.Linear and makes the outputs of {type(scorer.model).__name__}"
            " from one row of features per sample, without a forward hook of the head that changes them, got"
            f" {type(head).__name__}"
        )
    if hasattr(head.weight, "full_tensor"):
        raise ValueError("refit_head cannot refit a head that fully_shard has divided: refit the gathered model")
    if any(part.is_inference() for part in head.parameters()):
        raise ValueError(
            "refit_head cannot change weights that were made under torch.inference_mode: make or load the model"
            " outside it, or under torch.no_grad"
        )
    _check_own_weight(scorer.model, head)
    return head


def _check_own_weight(model: nn.Module, head: nn.Linear) -> None:
    """Raise an error if another module holds a weight of the head: it would change too."""
    mine = _places(head)
    for name, module in model.named_modules():
        if module is not head and mine & _places(module):
            raise ValueError(
                "refit_head changes the head alone, so no other module may hold the head's weight, and"
                f" {name or 'the model itself'} ({type(module).__name__}) holds it: give the head its own first, by"
                " head.weight = torch.nn.Parameter(head.weight.detach().clone())"
            )


def _places(module: nn.Module) -> set[int]:
    """Return where in memory the weights of a module are. Sharded ones have no one place."""
    weights = (weight.data for weight in module.parameters(recurse=False))
    return {weight.data_ptr() for weight in weights if type(weight) is Tensor} - {0}


def check_finite(head: nn.Linear, features: Tensor, targets: Tensor, rows: np.ndarray | None) -> None:
    """Raise an error that names what is not finite. `rows` are the samples' places in the dataset, if it has any."""
    if not bool(features.isfinite().all()):
        raise NotFiniteError("the model's features must be finite to refit its head: has training diverged?")
    for name, weight in head.named_parameters():
        if not bool(weight.isfinite().all()):
            raise NotFiniteError(f"the head's {name} must be finite to refit it: has training diverged?")
    wrong = (~targets.isfinite()).nonzero()
    if len(wrong):
        row, value = int(wrong[0, 0]), float(targets[tuple(wrong[0])])
        raise NotFiniteError(
            f"targets must be finite to refit the head, got {value} for sample {row if rows is None else rows[row]}"
        )


def check_hooks(model: nn.Module, head: nn.Linear, features: Tensor) -> None:
    """Raise an error if a hook changes what the head makes: the fit knows its weights alone."""
    few = features[:FEW].to(head.weight.device, head.weight.dtype)
    with eval_mode(model):
        made, plain = head(few), F.linear(few, head.weight, head.bias)
        unchanged = makes(made, plain, shifted=False)
    if not unchanged:
        raise ValueError(
            "refit_head fits the head's weights, so its output must be weight · features + bias, and a forward hook of"
            " the head changes it: remove the hook first"
        )
