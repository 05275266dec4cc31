"""The hot loops, compiled: exact (naive or lazy) and stochastic greedy.

Bounds: a gain, once computed, stays an upper bound for the rest of the selection, so a candidate whose bound is below
the best gain is not looked at. Ties go to the lowest index; only a first step in which all candidates tie draws lots.
"""

import numpy as np

from smdl.greedy.gains import blank, evaluate, remember, singles
from smdl.jit import compiled
from smdl.randomness import below_compiled, derive_compiled, sample_compiled

#: Candidates are kept in blocks of this many, with the greatest bound of each: a block below the best is passed over.
BLOCK = 256


@compiled
def exact(term, modular, members, size, low, penalty, lazy, key):
    """Greedy over `members` (ascending): every candidate looked at in every step, or with lazy only those whose
    bound could win. Stops after `low` picks once the best gain is below `penalty`."""
    n = len(members)
    memory, picked, gains = blank(term), np.empty(size, np.int32), np.empty(size)
    bounds, seen = np.empty(n), np.zeros(n, np.int32)
    singles(term, memory, modular, members, bounds)
    blocks = (n + BLOCK - 1) // BLOCK
    tops = np.empty(blocks)
    for k in range(blocks):
        tops[k] = bounds[k * BLOCK : (k + 1) * BLOCK].max()
    for count in range(size):
        best, chosen = -np.inf, n
        if count == 0 and bounds.min() == bounds.max():
            chosen = below_compiled(derive_compiled(key, 0), 0, n)
            best = bounds[chosen]
        else:
            first = np.argmax(tops)
            for step in range(-1, blocks):
                k = first if step < 0 else step
                if step == first or (lazy and tops[k] < best):
                    continue
                top = -np.inf
                for place in range(k * BLOCK, min((k + 1) * BLOCK, n)):
                    bound = bounds[place]
                    if bound == -np.inf:
                        continue
                    if not lazy or bound > best or (bound == best and place < chosen):
                        if seen[place] != count:
                            a = members[place]
                            bound, seen[place] = evaluate(
                                term,
                                memory,
                                modular[a],
                                a,
                                picked,
                                seen[place],
                                count,
                                bound,
                                best if lazy else -np.inf,
                            )
                            bounds[place] = bound
                        if bound > best or (bound == best and place < chosen):
                            best, chosen = bound, place
                    top = max(top, bound)
                tops[k] = top
        if count >= low and best < penalty:
            return picked[:count], gains[:count]
        picked[count], gains[count] = members[chosen], best
        bounds[chosen] = -np.inf
        remember(term, memory, members[chosen])
    return picked, gains


@compiled
def stochastic(term, modular, members, size, low, penalty, sample, key):
    """Lazier-than-lazy greedy: each step looks at `sample` of the remaining members, drawn anew."""
    n = len(members)
    memory, picked, gains = blank(term), np.empty(size, np.int32), np.empty(size)
    bounds, seen, order = np.full(n, np.inf), np.full(n, -1, np.int32), np.arange(n).astype(np.int32)
    for count in range(size):
        step, remaining = derive_compiled(key, count), n - count
        drawn = min(sample, remaining)
        if drawn < remaining:
            sample_compiled(order, remaining, drawn, step)
        best, lowest, chosen, where = -np.inf, np.inf, n, 0
        for t in range(drawn):
            place = order[t]
            bound = bounds[place]
            if bound < best or (bound == best and place > chosen):
                lowest = min(lowest, bound)
                continue
            if seen[place] != count:
                a = members[place]
                bound, seen[place] = evaluate(term, memory, modular[a], a, picked, seen[place], count, bound, best)
                bounds[place] = bound
            lowest = min(lowest, bound)
            if bound > best or (bound == best and place < chosen):
                best, chosen, where = bound, place, t
        if count == 0 and lowest == best:
            where = below_compiled(step, drawn, drawn)
            chosen = order[where]
        if count >= low and best < penalty:
            return picked[:count], gains[:count]
        picked[count], gains[count] = members[chosen], best
        order[where], order[remaining - 1] = order[remaining - 1], order[where]
        remember(term, memory, members[chosen])
    return picked, gains
