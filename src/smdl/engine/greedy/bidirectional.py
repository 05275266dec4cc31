"""Double greedy: batches of any size, for functions that fall when a batch holds too many similar samples."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smdl.common.messages import choice
from smdl.engine import similarity_sums
from smdl.engine.objective import Objective, Problem
from smdl.engine.pool import host, widest
from smdl.engine.terms import TERMS
from smdl.engine.terms.pair_sums import PairSums


def check_bidirectional(objective: Objective, limits: Mapping[str, Any]) -> None:
    """Raise an error if the size is limited, or if the objective does not fall: it would pick the whole pool."""
    for name, value in limits.items():
        if value is not None:
            raise ValueError(f'{name} cannot be set: optimizer="bidirectional" decides how many samples it picks')
    terms = [TERMS[name] for name in objective.set_terms]
    if not terms or not objective.has_value or not all(issubclass(term, PairSums) for term in terms):
        wanted = 'graph_cut or sum_redundancy, alone or with scores of single samples, and normalize="pool"'
        raise ValueError(f'optimizer="bidirectional" needs an objective that falls: {choice("it", objective, wanted)}')


def from_both_ends(problem: Problem, members: np.ndarray, initial: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Start with the batch `initial` and with all members beside it. Each member in turn joins the first or leaves the
    second, whichever gains more, until both are equal. Return the picks and their gains."""
    given, device = len(initial), problem.pool.device
    table = torch.from_numpy(np.concatenate([initial, members]).astype(np.int64)).to(device)
    modular, inside = widest(problem.modular[host(table)], device), torch.arange(len(table), device=device) < given
    gains = np.zeros(len(members))

    def gain(k: int, similar: Tensor) -> float:
        """Return F(a | S) of member k from Σ_{j ∈ S} (s_aj + s_ja)."""
        total = modular[k]
        for name, term in problem.set_terms.items():
            assert isinstance(term, PairSums)
            total = total + problem.coefficient(name) * (term.first[table[k]] - term.rate * similar)
        return float(total)

    for k in range(given, len(table)):
        similar = similarity_sums.between(problem.geometry, table, table[k])  # to every row
        first = similar[inside].sum()
        rise, loss = gain(k, first), -gain(k, first + similar[k + 1 :].sum())
        if math.isnan(rise + loss):
            raise FloatingPointError("a gain is not a number")
        inside[k], gains[k - given] = rise >= loss, rise
        problem.geometry.report("picks", k + 1 - given, len(members))
    picked = host(inside[given:])
    if len(picked) > 1 and picked.all():
        warnings.warn(
            "every sample was picked, because the objective never falls: raise `overlap` of graph_cut above 0.5, or use"
            " another optimizer with a size",
            stacklevel=2,
        )
    return members[picked], gains[picked]
