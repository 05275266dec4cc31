"""Compiled greedy loops: exact (naive or lazy) and stochastic.

A gain never rises as the batch grows, so an earlier gain is an upper bound of the current one. The lazy loops skip a
candidate whose bound is below the best gain. Ties go to the lowest index, except in a first step in which all
candidates tie: there the pick is random.
"""

import math

import numpy as np

from smdl.engine.greedy.gains import add_pick, empty_state, gain_of, single_gains
from smdl.engine.jit import compiled, inlined
from smdl.engine.randomness import below_compiled, derive_compiled, sample_compiled

#: Fewest candidates per block. A block whose greatest bound is below the best gain is skipped.
BLOCK = 16


@compiled
def _check_gain(gain):
    """Raise an error for NaN: a step in which no gain compares would have no winner."""
    if gain != gain:
        raise FloatingPointError("a gain is not a number")


@compiled
def start(term, state, picked, initial):
    """Start the batch with the samples `initial`."""
    for k in range(len(initial)):
        picked[k] = initial[k]
        add_pick(term, state, initial[k])


@inlined
def _ratio(limits, gain, a):
    """Return what a candidate is compared by: its gain, or with limits its gain per cost."""
    if limits is None:
        return gain
    return gain / limits.costs[a]


@inlined
def _goal(limits, best, a):
    """Return a gain below which the candidate cannot win; rounding never makes it too high."""
    if limits is None:
        return best
    gain = best * limits.costs[a]
    return gain - abs(gain) * 2.0**-50


@inlined
def _allowed(limits, left, quotas, a):
    """Return whether the budget and the quota of its group admit the candidate."""
    if limits is None:
        return True
    return limits.costs[a] <= left and quotas[limits.groups[a]] > 0


@compiled
def exact(term, modular, members, low, penalty, lazy, key, initial, picked, gains, limits):
    """Maximise greedily over `members` (ascending). Each step computes the gain of every candidate, or with `lazy`
    only of those whose bound could win. Stop after `low` picks once the best gain is below `penalty`. Write the samples
    `initial`, which the batch starts with, and the picks to `picked`, the gains of the picks to `gains`. Return how
    many were picked. `limits` may be None. With limits, each step picks the greatest gain per cost among the candidates
    that they admit, and ties always go to the lowest index. The key, (1,), decides among candidates that all tie in the
    first step. Without one, (0,), return −1 then: a key is seldom needed, and drawing one may take longer than this."""
    n, given, size, state = len(members), len(initial), len(gains), empty_state(term)
    start(term, state, picked, initial)
    bounds, seen = np.empty(n), np.full(n, given, np.int32)
    single_gains(term, state, modular, members, picked, given, bounds)
    left, quotas = np.inf, np.empty(0, np.int64)
    if limits is not None:
        left, quotas = limits.budget, limits.quotas.copy()
    block = max(BLOCK, int(math.sqrt(n)))
    blocks = (n + block - 1) // block
    tops = np.full(blocks, -np.inf)
    for place in range(n):
        _check_gain(bounds[place])
        tops[place // block] = max(tops[place // block], _ratio(limits, bounds[place], members[place]))
    for count in range(given, given + size):
        best, winner = -np.inf, n
        if limits is None and count == 0 and bounds.min() == bounds.max():
            if len(key) == 0:
                return -1
            winner = below_compiled(derive_compiled(key[0], 0), 0, n)
            best = bounds[winner]
        else:
            first = np.argmax(tops)
            top = first * block + np.argmax(bounds[first * block : (first + 1) * block])
            if lazy and limits is None and bounds[top] > -np.inf:  # start with the greatest bound: it rules out others
                if seen[top] != count:
                    a = members[top]
                    bounds[top], seen[top] = gain_of(
                        term, state, modular[a], a, picked, seen[top], count, bounds[top], -np.inf
                    )
                    _check_gain(bounds[top])
                best, winner = bounds[top], top
            for step in range(-1, blocks):
                k = first if step < 0 else step
                if step == first or (lazy and tops[k] < best):
                    continue
                highest = -np.inf
                for place in range(k * block, min((k + 1) * block, n)):
                    bound, a = bounds[place], members[place]
                    if bound == -np.inf:
                        continue
                    ratio = _ratio(limits, bound, a)
                    if not lazy or ratio > best or (ratio == best and place < winner):
                        if not _allowed(limits, left, quotas, a):
                            bounds[place] = -np.inf
                            continue
                        if seen[place] != count:
                            goal = _goal(limits, best, a) if lazy else -np.inf
                            bound, seen[place] = gain_of(
                                term, state, modular[a], a, picked, seen[place], count, bound, goal
                            )
                            _check_gain(bound)
                            bounds[place], ratio = bound, _ratio(limits, bound, a)
                        if ratio > best or (ratio == best and place < winner):
                            best, winner = ratio, place
                    highest = max(highest, ratio)
                tops[k] = highest
        if winner == n or (count - given >= low and best < penalty):
            return count - given
        picked[count], gains[count - given] = members[winner], bounds[winner]
        bounds[winner] = -np.inf
        add_pick(term, state, members[winner])
        if limits is not None:
            left -= limits.costs[members[winner]]
            quotas[limits.groups[members[winner]]] -= 1
    return size


@compiled
def stochastic(term, modular, members, low, penalty, sample, key, initial, picked, gains):
    """Maximise by lazier-than-lazy greedy: each step considers a new random sample of the remaining members."""
    n, given, size, state = len(members), len(initial), len(gains), empty_state(term)
    start(term, state, picked, initial)
    bounds, seen, order = np.full(n, np.inf), np.full(n, -1, np.int32), np.arange(n).astype(np.int32)
    for count in range(given, given + size):
        step, remaining = derive_compiled(key, count - given), n - (count - given)
        drawn = min(sample, remaining)
        if drawn < remaining:
            sample_compiled(order, remaining, drawn, step)
        best, lowest, winner, where = -np.inf, np.inf, n, 0
        for t in range(drawn):
            place = order[t]
            bound = bounds[place]
            if bound < best or (bound == best and place > winner):
                lowest = min(lowest, bound)
                continue
            if seen[place] != count:
                a = members[place]
                bound, seen[place] = gain_of(term, state, modular[a], a, picked, seen[place], count, bound, best)
                _check_gain(bound)
                bounds[place] = bound
            lowest = min(lowest, bound)
            if bound > best or (bound == best and place < winner):
                best, winner, where = bound, place, t
        if count == 0 and lowest == best:
            where = below_compiled(step, drawn, drawn)
            winner = order[where]
        if count - given >= low and best < penalty:
            return count - given
        picked[count], gains[count - given] = members[winner], best
        order[where], order[remaining - 1] = order[remaining - 1], order[where]
        add_pick(term, state, members[winner])
    return size
