"""Compiled gains of one set term plus the modular scores.

The file of each set term holds its compiled form (see `terms.term.Loops`). Numba chooses the functions by the type of
the term when it compiles a loop:

    empty_state(term)                        what the term keeps of the batch S, for S = ∅
    gain_of(term, state, base, a, ...)       (F(a | S), number of picks of S taken into account)
    add_pick(term, state, a)                 S <- S + {a}
"""

from typing import Any, NamedTuple

import numpy as np
from numba.extending import overload

from smdl.engine.jit import INLINED, PLAIN, compiled
from smdl.engine.objective import Problem
from smdl.engine.terms import TERMS
from smdl.engine.terms.term import Loops


class ModularOnly(NamedTuple):
    """No set term: only the modular scores."""

    weight: float


def _no_state(term):  # noqa: ARG001
    return np.zeros(0, np.float32)


def _base_gain(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    return base, count


def _add_nothing(term, state, a):  # noqa: ARG001
    return


LOOPS: dict[type, Loops] = {ModularOnly: Loops(_no_state, _base_gain, _add_nothing)}
for _term in TERMS.values():
    LOOPS.update(_term.loops)


def compiled_term(problem: Problem, size: int) -> Any:
    """Return the set term of the problem as the compiled loops take it, for batches of `size`."""
    for name, term in problem.set_terms.items():
        coefficient = problem.coefficient(name)
        return term.compiled(coefficient, size) if term.unit > 0.0 else ModularOnly(0.0)  # 0: all samples are one point
    return ModularOnly(0.0)


def empty_state(term: Any) -> Any:
    """Return the state of a term for S = ∅ (for compiled callers)."""
    raise NotImplementedError


@overload(empty_state, jit_options=PLAIN)
def _empty_state(term):
    return LOOPS[term.instance_class].empty_state


def gain_of(term, state, base, a, picked, seen, count, bound, best) -> tuple[float, int]:
    """Return (gain, or a bound below `best`; number of picks taken into account) (for compiled callers)."""
    raise NotImplementedError


@overload(gain_of, jit_options=INLINED)
def _gain_of(term, state, base, a, picked, seen, count, bound, best):  # noqa: ARG001
    return LOOPS[term.instance_class].gain_of


def add_pick(term, state, a):
    """Update the state: S <- S + {a} (for compiled callers)."""
    raise NotImplementedError


@overload(add_pick, jit_options=PLAIN)
def _add_pick(term, state, a):  # noqa: ARG001
    return LOOPS[term.instance_class].add_pick


@compiled
def single_gains(term, state, modular, members, picked, count, bounds):
    """Write F(a | S) of every member to `bounds`; S are the first `count` of `picked` (for compiled callers)."""
    for k in range(len(members)):
        bounds[k], _ = gain_of(term, state, modular[members[k]], members[k], picked, -1, count, np.inf, -np.inf)
